"""What a round makes of a prediction: its size class, and p90s on a worker, for one request.

In plain numbers what rounds make of whole columns (`scheduler.kinds`). Tests hold the two against
each other, so that what is calibrated is what decides.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduler import kinds
from scheduler.model import ServiceEstimate


class Size(NamedTuple):
    """A size class."""

    tokens: float
    sigma: float

    @property
    def p90_tokens(self) -> float:
        """What nine of ten outputs are not longer than."""
        return self.tokens * kinds.p90_factor(0.0, self.sigma)


def size_of(tokens_mean: float, tokens_sigma: float) -> Size:
    """The class of a prediction."""
    return Size(*kinds.size_class(tokens_mean, tokens_sigma))


def p90_ms(estimate: ServiceEstimate, size: Size) -> float:
    """The time that nine of ten requests of that size stay under, the model being loaded."""
    mean = estimate.base_ms + estimate.per_token_ms * size.tokens
    mean = min(max(mean, kinds.MIN_SERVICE_MS), kinds.MAX_SERVICE_MS)
    p90 = mean * kinds.p90_factor(estimate.sigma, size.sigma) * estimate.p90_factor
    return min(max(p90, kinds.MIN_SERVICE_MS), kinds.MAX_SERVICE_MS)
