"""How much gas a post takes, learnt from the receipts of earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.gas import INTRINSIC_GAS
from scheduler.model import GasModel

_FLOAT = NDArray[np.float64]

_RANGE = 4.0
"""A coefficient further from its prior than this factor is the fit's error, not the contract's."""
_PRIOR_SPREAD = 0.5
"""Standard deviation of a coefficient around its prior, as a share of it."""
_NOISE_GAS = 500.0
"""Standard deviation of a receipt around the model, at least: zero bytes in calldata are cheaper
than others, and a batch does not always meet the same slots."""
_HUBER = 1.345
"""Residuals beyond so many standard deviations weigh less (Huber, "Robust Estimation of a Location
Parameter", 1964; the constant keeps 95 % efficiency under normal noise)."""
_MAD_TO_SD = 1.4826
_ROUNDS = 20
_FITTED = (
    "fixed_gas",
    "per_group_gas",
    "per_result_gas",
    "per_stored_gas",
    "per_callback_gas",
)
"""What of a model posts tell."""


@dataclass(frozen=True, slots=True)
class GasObservation:
    """A post that was mined and settled all of its results."""

    groups: int
    results: int
    gas_used: int
    stored: int = 0
    """Results among them with delivery `STORED`."""
    callbacks: int = 0
    """Results among them with delivery `CALLBACK`."""


def fit_gas_model(observations: Sequence[GasObservation], prior: GasModel) -> GasModel:
    """The gas model that explains the observed posts and the prior best.

    A ridge towards the prior: what the observations do not determine stays as near to it as they
    allow. So few posts, or posts that all had one group, or one size, or one kind of delivery, are
    no special case, and none at all give the prior. Posts that stick out, such as one that wrote
    fresh slots, weigh less (Huber's weights, refitted until they settle). A coefficient that leaves
    a factor of 4 around its prior is set to the range's end and the others are fitted again. The
    order of the observations is irrelevant.
    """
    start = np.array([getattr(prior, name) for name in _FITTED], dtype=np.float64)
    if not observations:
        return prior
    table = np.array([astuple(one) for one in observations], dtype=np.float64)
    rows = np.column_stack(
        [np.ones(len(table)), table[:, 0], table[:, 1], table[:, 3], table[:, 4]]
    )
    used = table[:, 2]
    weights = np.ones(len(rows))
    fitted = start
    for _ in range(_ROUNDS):
        fitted = _bounded(rows, used, weights, start)
        residuals = np.abs(used - rows @ fitted)
        spread = max(float(np.median(residuals)) * _MAD_TO_SD, _NOISE_GAS)
        weights = np.minimum(1.0, _HUBER * spread / np.maximum(residuals, 1e-9))
    coefficients = (round(float(coefficient)) for coefficient in fitted)
    return replace(prior, **dict(zip(_FITTED, coefficients, strict=True)))


def _bounded(rows: _FLOAT, used: _FLOAT, weights: _FLOAT, start: _FLOAT) -> _FLOAT:
    """The weighted ridge around `start` within the coefficients' ranges."""
    lower, upper = start / _RANGE, start * _RANGE
    lower[0] = INTRINSIC_GAS
    upper[0] = max(upper[0], lower[0])
    fitted = np.clip(start, lower, upper)
    free = list(range(len(start)))
    while free:
        trial = _ridge(rows, used, weights, start, fitted, free)
        outside = np.abs(trial - np.clip(trial, lower, upper)) / np.maximum(upper, 1.0)
        worst = int(np.argmax(outside))
        if outside[worst] == 0.0:
            return trial
        fitted[worst] = np.clip(trial[worst], lower[worst], upper[worst])
        free.remove(worst)
    return fitted


def _ridge(
    rows: _FLOAT,
    used: _FLOAT,
    weights: _FLOAT,
    start: _FLOAT,
    fitted: _FLOAT,
    free: Sequence[int],
) -> _FLOAT:
    """`fitted` with its `free` coefficients at their weighted ridge around `start`.

    In units of the prior's spread, as rows of one least-squares problem: the posts, each divided
    by the noise, and the prior.
    """
    columns = list(free)
    scale = np.maximum(start[columns] * _PRIOR_SPREAD, 1.0)
    fixed = fitted.copy()
    fixed[columns] = start[columns]
    root = np.sqrt(weights) / _NOISE_GAS
    left = np.vstack([rows[:, columns] * scale * root[:, None], np.eye(len(columns))])
    right = np.concatenate([(used - rows @ fixed) * root, np.zeros(len(columns))])
    correction, *_ = np.linalg.lstsq(left, right, rcond=None)
    fixed[columns] += correction * scale
    return fixed
