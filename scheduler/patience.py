"""How long an answer is waited for, and when a second worker is asked as well. Pure.

Service times are taken for log-normal, as everywhere (`scheduler.kinds`), so
    p99 = p90 * exp((z99 - z90) * s),  s = min(sqrt(sigma_worker^2 + sigma_tokens^2), z90).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot

from scheduler.kinds import Z90

Z99 = 2.3263478740408408
"""The 99 % quantile of the standard normal distribution."""
TIME_OUT_P99S = 2.0
"""A worker that takes longer than so many p99s is lost, and not slow."""
MIN_TIME_OUT_S = 5.0
"""Less would end on network delays alone."""

SLOWEST_SECOND = 10.0
"""A worker that takes so many times as long as the first is not asked as a second."""


@dataclass(frozen=True, slots=True)
class Patience:
    """What a round expected of one lease."""

    p90_ms: float
    p99_ms: float
    inclusion_s: float
    """Time kept free between a result and its deadline."""


def patience_of(
    p90_ms: float, sigma_worker: float, sigma_tokens: float, inclusion_s: float
) -> Patience:
    """By the p90 that the lease was planned with, and both spreads (of logarithms)."""
    spread = min(hypot(sigma_worker, sigma_tokens), Z90)
    return Patience(p90_ms, p90_ms * exp((Z99 - Z90) * spread), inclusion_s)


def time_out_s(expected: Patience, *, lease_s: float, left_s: float) -> float:
    """Seconds after which a worker that has not answered is given up: two p99s, at least 5 s, at
    most its lease and what is left until the deadline. Never negative."""
    patient_s = max(MIN_TIME_OUT_S, TIME_OUT_P99S * expected.p99_ms / 1000.0)
    return max(0.0, min(patient_s, lease_s, left_s))


def may_hedge(expected: Patience, *, lease_s: float, left_s: float) -> bool:
    """Whether any worker that is not more than ten times as slow could be asked as a second one:
    cheap, as most requests have time for another lease. See `hedge_after_s`."""
    slowest_s = SLOWEST_SECOND * expected.p90_ms / 1000.0
    return lease_s + slowest_s > left_s - expected.inclusion_s


def hedge_after_s(
    expected: Patience, *, lease_s: float, left_s: float, other_p90_ms: float
) -> float | None:
    """When to ask a second worker, which takes `other_p90_ms`; in seconds from now, `left_s` before
    the deadline. None: not at all.

    Only where the slack is about to run out: after a lease that ends without an answer there would
    be no time for another one. Then it is asked when nine of ten answers would be here, or at the
    last moment that leaves it time within the lease and before the deadline, whichever is soonest.
    """
    other_s = other_p90_ms / 1000.0
    last_s = left_s - expected.inclusion_s - other_s
    if lease_s <= last_s:
        return None
    after_s = min(last_s, lease_s - other_s, expected.p90_ms / 1000.0)
    return after_s if after_s > 0.0 else None
