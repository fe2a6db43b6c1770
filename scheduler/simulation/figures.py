"""One simulation in figures, and how the figures of policies compare over paired seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from scheduler.simulation.bound import Bound
from scheduler.simulation.outcome import End, Outcome, jain_index, served_share

RESAMPLES = 2_000
_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Quantiles:
    """p50, p95 and p99 of delivered requests, in seconds; 0 where there is none."""

    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What one policy did in one world."""

    value_ratio: float
    """Net value / clairvoyant bound; 1 where there was nothing to earn."""
    operator_ratio: float
    """What the operator has of it / clairvoyant bound."""
    on_time: float
    """Share of all requests that were delivered within their deadline."""
    queue: Quantiles
    run: Quantiles
    post: Quantiles
    max_wait_s: float
    """The longest from a request's first block to its first lease."""
    jain: float
    """Jain index of the delivered shares of the tenants."""
    gas_per_result: float
    posts: int
    losing_posts: int
    """Posts that cost more than they brought the operator."""
    late: int
    not_posted: int
    failed_leases: int
    negative_slack: int
    rounds: int
    fallbacks: int


def figures(outcome: Outcome, bound: Bound) -> Figures:
    """The figures of one simulation."""
    delivered = outcome.delivered
    counts = outcome.counts()
    waits_ms = [
        end.first_leased_at_ms - end.request.seen_at_ms
        for end in outcome.ends
        if end.first_leased_at_ms is not None
    ]
    gas = sum(post.gas for post in outcome.posts)
    return Figures(
        value_ratio=outcome.value_wei / bound.value_wei if bound.value_wei > 1 else 1.0,
        operator_ratio=outcome.operator_wei / bound.value_wei if bound.value_wei > 1 else 1.0,
        on_time=len(delivered) / len(outcome.ends) if outcome.ends else 1.0,
        queue=_quantiles([end.queue_ms for end in delivered]),
        run=_quantiles([end.run_ms for end in delivered]),
        post=_quantiles([end.post_ms for end in delivered]),
        max_wait_s=max(waits_ms, default=0) / 1000,
        jain=jain_index(list(served_share(outcome.ends).values())),
        gas_per_result=gas / len(delivered) if delivered else 0.0,
        posts=len(outcome.posts),
        losing_posts=sum(post.at_a_loss for post in outcome.posts),
        late=counts.get(End.LATE, 0),
        not_posted=counts.get(End.NOT_POSTED, 0),
        failed_leases=sum(end.attempts_failed for end in outcome.ends),
        negative_slack=outcome.negative_slack,
        rounds=outcome.rounds,
        fallbacks=outcome.fallbacks,
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


def bootstrap(values: Sequence[float], resamples: int = RESAMPLES) -> Interval:
    """The percentile interval of the mean (Efron 1979); the same values give the same interval.

    Of paired differences it is the interval of the mean difference. Raises ValueError for none.
    """
    if not values:
        raise ValueError("no values to resample")
    sample = np.array(values, dtype=np.float64)
    random = np.random.default_rng(len(values))
    means = sample[random.integers(0, len(sample), size=(resamples, len(sample)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(float(sample.mean()), float(low), float(high))


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """The interval of the mean difference, seed by seed."""
    return bootstrap([one - other for one, other in zip(ours, theirs, strict=True)])


def _quantiles(times_ms: Sequence[int]) -> Quantiles:
    ordered = sorted(times_ms)

    def at(share: float) -> float:
        """The smallest time that at least this share does not exceed."""
        return ordered[max(0, ceil(share * len(ordered)) - 1)] / 1000 if ordered else 0.0

    return Quantiles(at(0.5), at(0.95), at(0.99))
