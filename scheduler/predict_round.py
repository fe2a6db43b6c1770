"""What a round makes of a prediction: its size class, and p90s on a worker, for one request.

The same functions as the round's columns go through (`scheduler.kinds`), so that what is calibrated
is what decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler import kinds
from scheduler.model import ServiceEstimate


class Size(NamedTuple):
    """A size class."""

    tokens: float
    sigma: float

    @property
    def p90_tokens(self) -> float:
        """What nine of ten outputs are not longer than."""
        (factor,) = kinds.p90_factors(np.zeros(1), self.sigma)
        return self.tokens * float(factor)


def size_of(tokens_mean: float, tokens_sigma: float) -> Size:
    """The class of a prediction."""
    codes = kinds.kind_codes(
        np.zeros(1, np.int64), np.array([tokens_mean]), np.array([tokens_sigma])
    )
    (tokens,), (sigma_class,) = kinds.tokens_of(codes), kinds.sigma_class_of(codes)
    return Size(float(tokens), float(sigma_class) / kinds.PER_SIGMA)


def p90_ms(estimate: ServiceEstimate, size: Size) -> float:
    """The time that nine of ten requests of that size stay under, the model being loaded."""
    mean = kinds.mean_ms(
        np.array([estimate.base_ms]), np.array([estimate.per_token_ms]), size.tokens
    )
    factors = kinds.p90_factors(np.array([estimate.sigma]), size.sigma) * estimate.p90_factor
    (p90,) = kinds.p90_ms(mean, factors)
    return float(p90)
