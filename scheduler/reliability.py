"""How surely a worker ends a lease with a valid result: a lower bound, learnt with forgetting.

Outcomes are Bernoulli with a Beta prior, so the posterior is Beta too; the bound is its lower
quantile. A newcomer is neither trusted like a worker with a record nor shut out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, lgamma, log, log1p

KEEP = 0.98
"""What an outcome's weight is multiplied by at each later one: a memory of about 50."""
PRIOR_SUCCESSES = 4.0
PRIOR_FAILURES = 0.5
"""A newcomer counts as four good leases and half a failed one."""
CONFIDENCE = 0.9
"""The true probability lies above the bound with this probability."""

_STEPS = 60
_TERMS = 300
_CLOSE = 1e-8
"""A step that small, relatively, leaves an error of about its square."""
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Reliability:
    """Ended leases that say something about the worker, older ones counting less."""

    successes: float = 0.0
    failures: float = 0.0


def outcome(before: Reliability, *, success: bool, keep: float = KEEP) -> Reliability:
    """One more lease has ended; `keep` in (0, 1]."""
    if not 0.0 < keep <= 1.0:
        raise ValueError(f"a past cannot be kept at {keep}")
    return Reliability(before.successes * keep + success, before.failures * keep + (not success))


def success_lower(of: Reliability) -> float:
    """The lower confidence bound of the probability that a lease ends well, in (0, 1)."""
    return beta_quantile(
        1.0 - CONFIDENCE, PRIOR_SUCCESSES + of.successes, PRIOR_FAILURES + of.failures
    )


@lru_cache(maxsize=8192)
def beta_quantile(probability: float, a: float, b: float) -> float:
    """The x at which Beta(a, b) has that much probability below it.

    By Newton's steps from the mean, or halvings of the bracket where a step would leave it.
    """
    if not (0.0 < probability < 1.0 and a > 0.0 and b > 0.0):
        raise ValueError(f"Beta({a}, {b}) has no quantile at {probability}")
    low, high, x = 0.0, 1.0, a / (a + b)
    log_beta = lgamma(a) + lgamma(b) - lgamma(a + b)
    for _ in range(_STEPS):
        if not 0.0 < x < 1.0:  # nearer to the end than a float can tell
            return x
        above = beta_cdf(x, a, b) - probability
        low, high = (low, x) if above > 0.0 else (x, high)
        density = exp((a - 1.0) * log(x) + (b - 1.0) * log1p(-x) - log_beta)
        step = above / density if density > 0.0 else inf
        if low <= x - step <= high:
            x -= step
            if abs(step) <= _CLOSE * x:
                return x
        else:
            x = (low + high) / 2.0
    return x


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b).

    By the continued fraction of DLMF 8.17.22 with Lentz's method, on the side where it converges
    fast.
    """
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for coefficient in (even, odd):
            d = 1.0 / _not_zero(1.0 + coefficient * d)
            c = _not_zero(1.0 + coefficient / c)
            value *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
