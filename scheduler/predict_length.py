"""How many tokens an output will have, learnt per model and requester.

**What is learnt** is the length an output would have without a limit. Outputs that ended by
themselves tell it; one that was cut off at its request's `max_tokens` tells only that it would have
been longer. Both are counted, with forgetting, in bins of an eighth of an octave, and the law is
the product of the bins' survivals (Kaplan and Meier 1958). So a model that fills whatever it is
given is not taken for one that ends at 16 because all asked for 16.

**Few observations.** A requester's law leans on the model's, the model's on a wide prior: each
bin's hazard is (ended + n * parent's probability) / (at risk + n * parent's survival), the
posterior mean of a beta-Stacy process (Walker and Muliere 1997) with the parent as its centre and
the weight of n observations: one for the prior, eight for a model.

**What a round gets**, with the request's own limit m: the mean of min(length, m), and the sigma of
the log-normal law that has this mean and the law's 90 % quantile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from math import erfc, exp, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler import calibration
from scheduler.kinds import Z90

Floats = NDArray[np.float64]

KEEP = 0.99
"""What an observation's weight is multiplied by at each later one: a memory of about 100."""
PARENT_WEIGHT = 8.0
"""How many observations the model's law counts as in a requester's."""
BINS_PER_OCTAVE = 8
BINS = 17 * BINS_PER_OCTAVE + 1
"""Up to 131,072 tokens; longer ones are in the last bin."""
_PRIOR_MEDIAN_TOKENS = 128.0
_PRIOR_SIGMA = 1.0
_PRIOR_WEIGHT = 1.0

EDGES: Floats = 2.0 ** (np.arange(BINS) / BINS_PER_OCTAVE)
"""The upper end of each bin, tokens; a bin holds its upper end."""
_EDGES: list[float] = EDGES.tolist()
_MIDDLES: Floats = np.concatenate(([1.0], (EDGES[:-1] + EDGES[1:]) / 2.0))


class TokensPrediction(NamedTuple):
    """A log-normal law of a request's output tokens."""

    mean: float
    sigma: float


@dataclass(frozen=True, slots=True, eq=False)
class LengthHistory:
    """Output lengths of one model, or of one requester with it, older ones counting less."""

    ended: Floats
    """Weight of the outputs that ended by themselves, by bin."""
    cut: Floats
    """Weight of those that reached their limit, by bin of the limit."""
    log_factor: float = 0.0
    """Of the 90 % quantile, see `scheduler.calibration`."""

    @staticmethod
    def empty(log_factor: float = 0.0) -> LengthHistory:
        """Nothing seen yet. A requester's begins with the factor of its model."""
        return LengthHistory(np.zeros(BINS), np.zeros(BINS), log_factor)


class LengthLaw:
    """The law of lengths without a limit."""

    def __init__(self, survival: Floats, log_factor: float, weight: float) -> None:
        """`survival[i]` is the probability of more than `EDGES[i]` tokens; `weight` is how many
        observations it counts as in a law that leans on it."""
        self._survival = survival
        self._factor = calibration.factor(log_factor)
        self._weight = weight

    def leaning(self, history: LengthHistory) -> LengthLaw:
        """The law of that history where it leans on this one."""
        at_risk = (history.ended + history.cut)[::-1].cumsum()[::-1]
        risk = at_risk + self._weight * self._before
        ends = history.ended + self._weight * self._mass
        hazard = np.divide(ends, risk, out=np.ones(BINS), where=risk > 0.0)
        survival: Floats = np.maximum(1.0 - hazard, 0.0).cumprod()
        return LengthLaw(survival, history.log_factor, PARENT_WEIGHT)

    @cached_property
    def _before(self) -> Floats:
        """Of what reaches each bin."""
        before = np.empty(BINS)
        before[0], before[1:] = 1.0, self._survival[:-1]
        return before

    @cached_property
    def _mass(self) -> Floats:
        mass: Floats = self._before - self._survival
        return mass

    @cached_property
    def p90_tokens(self) -> float:
        """The 90 % quantile as it is calibrated, without a limit."""
        # The first bin at whose end no more are left, in a row that never rises.
        at = int((-self._survival).searchsorted(calibration.LEVEL - 1.0))
        if at >= BINS:
            return float(EDGES[-1]) * self._factor
        if at == 0:
            return self._factor
        before, after = float(self._survival[at - 1]), float(self._survival[at])
        share = (before - (1.0 - calibration.LEVEL)) / (before - after)
        start, end = _EDGES[at - 1], _EDGES[at]
        return (start + share * (end - start)) * self._factor

    def predict(self, max_tokens: int) -> TokensPrediction:
        """For a request with this limit; 0 is no limit."""
        limit = float(max_tokens) if max_tokens > 0 else _EDGES[-1]
        mean = min(max(self._restricted_mean(limit), 1.0), limit)
        p90 = min(max(self.p90_tokens, 1.0), limit)
        # p90 / mean = exp(z s - s^2 / 2) is largest at s = z.
        mean = max(mean, p90 / exp(Z90 * Z90 / 2.0))
        rise = log(max(p90 / mean, 1.0))
        return TokensPrediction(mean, Z90 - sqrt(max(Z90 * Z90 - 2.0 * rise, 0.0)))

    def _restricted_mean(self, limit: float) -> float:
        at = bin_of(limit)
        whole = self._mass[:at] @ _MIDDLES[:at]
        partial = self._mass[at] * min(float(_MIDDLES[at]), limit)
        return float(whole + partial + self._survival[at] * limit)


def bin_of(tokens: float) -> int:
    """The bin that holds so many tokens."""
    return min(bisect_left(_EDGES, tokens), BINS - 1)


def observed(
    history: LengthHistory,
    *,
    tokens: int,
    max_tokens: int,
    p90_tokens: float,
    keep: float = KEEP,
) -> LengthHistory:
    """The history after one more output; `p90_tokens` is what was predicted, 0 if nothing was.

    An output that reached its limit says nothing about the quantile if that was the limit itself.
    Raises ValueError for negative numbers, and for a `keep` outside (0, 1].
    """
    if not (0.0 < keep <= 1.0 and tokens >= 0 and max_tokens >= 0):
        raise ValueError(f"cannot learn from {tokens} of {max_tokens} tokens with keep={keep}")
    is_cut = 0 < max_tokens <= tokens
    ended, cut = history.ended * keep, history.cut * keep
    (cut if is_cut else ended)[bin_of(tokens)] += 1.0
    log_factor = history.log_factor
    if p90_tokens > 0.0 and not (0 < max_tokens <= p90_tokens):
        log_factor = calibration.tracked(log_factor, predicted=p90_tokens, observed=float(tokens))
    return LengthHistory(ended, cut, log_factor)


def law(histories: Iterable[LengthHistory]) -> LengthLaw:
    """The law of the last of them, each leaning on the one before: model, then requester."""
    return reduce(LengthLaw.leaning, histories, PRIOR)


def _normal_above(z: float) -> float:
    return erfc(z / sqrt(2.0)) / 2.0


PRIOR = LengthLaw(
    np.array([_normal_above(log(edge / _PRIOR_MEDIAN_TOKENS) / _PRIOR_SIGMA) for edge in _EDGES]),
    log_factor=0.0,
    weight=_PRIOR_WEIGHT,
)
"""What is assumed of any model."""
