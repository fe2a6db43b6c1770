"""Keeps a predicted quantile true: one factor, moved by every outcome.

A law that is fitted to the past misses its quantile where the future differs: lengths cluster in
time, workers drift, a fitted shape is not the real one. So the prediction is multiplied by a
factor whose logarithm rises by `step * level` when an outcome lies above it and falls by
`step * (1 - level)` when not. While it stays bounded, the share of outcomes below tends to `level`
whatever the outcomes' law is, at a rate of 1 / (step * outcomes): the quantile tracking of adaptive
conformal inference (Gibbs and Candès 2021; Angelopoulos, Candès and Tibshirani 2023).
"""

from __future__ import annotations

from math import exp, isfinite

LEVEL = 0.9
"""The share of outcomes that shall not lie above the prediction."""
STEP = 0.1
"""How far the logarithm moves: 9 % up after a miss, 1 % down after a hit."""
BOUND = 1.5
"""No factor is above e^1.5 or below e^-1.5: beyond, the law itself has to be learnt."""


def tracked(log_factor: float, *, predicted: float, observed: float, step: float = STEP) -> float:
    """The logarithm of the factor after an outcome that was predicted with it.

    Raises ValueError for what is not finite.
    """
    if not (isfinite(log_factor) and isfinite(predicted) and isfinite(observed)):
        raise ValueError(f"cannot calibrate {predicted} by {observed}")
    moved = log_factor + step * (LEVEL if observed > predicted else LEVEL - 1.0)
    return min(max(moved, -BOUND), BOUND)


def factor(log_factor: float) -> float:
    """What the prediction is multiplied by."""
    return exp(log_factor)
