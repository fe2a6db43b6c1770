"""How long a request takes on a worker, learnt from what it took before.

Only the service itself is learnt, never the time spent in this router's own queue: congestion would
make the best worker look bad.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p, sqrt

from scheduler.model import ServiceEstimate

KEEP = 0.98
"""What an observation's weight is multiplied by at each later one: a memory of about 50."""


@dataclass(frozen=True, slots=True)
class ServiceStats:
    """Observed service times of one (worker, model), older ones counting less."""

    count: float = 0.0
    """Sum of the weights: the effective number of observations."""
    mean_ms: float = 0.0
    mean_square_ms2: float = 0.0


@dataclass(frozen=True, slots=True)
class ServicePrior:
    """What is assumed of a worker before it is known."""

    mean_ms: float
    deviation_ms: float
    weight: float = 3.0
    """How many observations the assumption counts as."""


def observed(stats: ServiceStats, service_ms: float, keep: float = KEEP) -> ServiceStats:
    """The stats after one more observation, the earlier ones weighted by `keep` in (0, 1]."""
    if not (0.0 < keep <= 1.0 and 0.0 <= service_ms < float("inf")):
        raise ValueError(f"cannot learn from {service_ms} ms with keep={keep}")
    kept = stats.count * keep
    total = kept + 1.0
    return ServiceStats(
        total,
        (kept * stats.mean_ms + service_ms) / total,
        (kept * stats.mean_square_ms2 + service_ms * service_ms) / total,
    )


def estimate(stats: ServiceStats, prior: ServicePrior) -> ServiceEstimate:
    """The estimate a round uses: observations and prior pooled by weight."""
    total = stats.count + prior.weight
    prior_square_ms2 = prior.mean_ms**2 + prior.deviation_ms**2
    mean_ms = (stats.count * stats.mean_ms + prior.weight * prior.mean_ms) / total
    square_ms2 = (stats.count * stats.mean_square_ms2 + prior.weight * prior_square_ms2) / total
    deviation_ms = sqrt(max(0.0, square_ms2 - mean_ms**2))
    return ServiceEstimate(
        mean_ms, sigma=sigma_of(mean_ms, deviation_ms), samples=round(stats.count)
    )


def sigma_of(mean_ms: float, deviation_ms: float) -> float:
    """The sigma of the log-normal law with this mean and standard deviation.

    sigma^2 = ln(1 + (deviation / mean)^2)
    """
    return sqrt(log1p((deviation_ms / mean_ms) ** 2)) if mean_ms > 0.0 else 0.0
