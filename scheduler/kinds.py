"""What a request is to a worker: its model and its size class.

All predictions of a round are per (worker, kind). The classes round up, tokens to an eighth of an
octave and their spread to a quarter, so that there are few of them and none promises too much.

    mean_ms  = base_ms + per_token_ms * tokens (+ load_ms where the model is not loaded)
    s        = min(sqrt(sigma_worker^2 + sigma_tokens^2), z90)
    p90_ms   = mean_ms * exp(z90 * s - s^2 / 2) * p90_factor of the worker

which is, but for the last factor, the 90 % quantile of a log-normal law with that mean; the factor
is what measurement makes of it. Service times are positive and skewed
to the right, which the normal quantile would ignore. The formula falls again for s > z90 (a few
giants then make the mean), so s is capped there: more spread never promises an earlier end.
"""

from __future__ import annotations

from math import ceil, exp, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Z90 = 1.2815515655446004
"""The 90 % quantile of the standard normal distribution."""

PER_OCTAVE = 8
PER_SIGMA = 4
_MAX_SIGMA_CLASS = ceil(Z90 * PER_SIGMA)
"""Any larger spread is capped in the formula anyway."""
_MAX_TOKENS_CLASS = 64 * PER_OCTAVE

_SIGMA_CODES = 8
_SIZE_CODES = 8192

MIN_SERVICE_MS = 1.0
"""No service is taken to be quicker, so that no lease has a length of zero."""
MAX_SERVICE_MS = 1e9
"""No service is taken to be slower (11 days), so that sums of predictions stay finite."""


def kind_codes(model: Ints, tokens_mean: Floats, tokens_sigma: Floats) -> Ints:
    """One number for each (model index, size class), in the order of the models.

    A mean below one token counts as one, one of 0 as no tokens at all.
    """
    octaves = np.ceil(PER_OCTAVE * np.log2(np.maximum(tokens_mean, 1.0)))
    tokens = np.minimum(octaves, _MAX_TOKENS_CLASS).astype(np.int64) + 1
    tokens[tokens_mean <= 0.0] = 0
    sigma = np.clip(np.ceil(PER_SIGMA * tokens_sigma), 0, _MAX_SIGMA_CLASS).astype(np.int64)
    codes: Ints = model * _SIZE_CODES + tokens * _SIGMA_CODES + sigma
    return codes


def size_class(tokens_mean: float, tokens_sigma: float) -> tuple[float, float]:
    """Output tokens and their spread of the class of one prediction, as `kind_codes` has it."""
    tokens = 0
    if tokens_mean > 0.0:
        octaves = PER_OCTAVE * float(np.log2(max(tokens_mean, 1.0)))
        tokens = ceil(min(octaves, _MAX_TOKENS_CLASS)) + 1
    sigma = ceil(min(max(PER_SIGMA * tokens_sigma, 0.0), _MAX_SIGMA_CLASS))
    return _TOKENS[tokens], sigma / PER_SIGMA


def model_of(kinds: Ints) -> Ints:
    """The model's index."""
    models: Ints = kinds // _SIZE_CODES
    return models


def tokens_of(kinds: Ints) -> Floats:
    """Output tokens: the upper edge of the size class; 0 where there are none."""
    classes = kinds % _SIZE_CODES // _SIGMA_CODES
    tokens: Floats = np.exp2((classes - 1) / PER_OCTAVE)
    tokens[classes == 0] = 0.0
    return tokens


_TOKENS: list[float] = tokens_of(np.arange(_MAX_TOKENS_CLASS + 2) * _SIGMA_CODES).tolist()


def sigma_class_of(kinds: Ints) -> Ints:
    """The class of the tokens' spread; the spread is `sigma_class / PER_SIGMA`."""
    classes: Ints = kinds % _SIGMA_CODES
    return classes


def p90_factors(sigma_worker: Floats, sigma_tokens: float) -> Floats:
    """p90 / mean of log-normal laws with both spreads (see the module's text).

    Rounded to 1e-9, far below what is known of a spread, so that no last bit of `exp` decides.
    """
    s = np.minimum(np.sqrt(sigma_worker * sigma_worker + sigma_tokens * sigma_tokens), Z90)
    factors: Floats = np.exp(Z90 * s - s * s / 2.0)
    np.round(factors, 9, out=factors)
    return factors


def p90_factor(sigma_worker: float, sigma_tokens: float) -> float:
    """`p90_factors` of one."""
    s = min(sqrt(sigma_worker * sigma_worker + sigma_tokens * sigma_tokens), Z90)
    return round(exp(Z90 * s - s * s / 2.0), 9)


def mean_ms(base_ms: Floats, per_token_ms: Floats, tokens: Floats | float) -> Floats:
    """The expected times of requests with so many output tokens; broadcasts."""
    mean: Floats = base_ms + per_token_ms * tokens
    np.maximum(mean, MIN_SERVICE_MS, out=mean)
    np.minimum(mean, MAX_SERVICE_MS, out=mean)
    return mean


def p90_ms(mean: Floats, factors: Floats) -> Floats:
    """The times that nine of ten requests stay under; broadcasts."""
    p90: Floats = mean * factors
    np.maximum(p90, MIN_SERVICE_MS, out=p90)
    np.minimum(p90, MAX_SERVICE_MS, out=p90)
    return p90
