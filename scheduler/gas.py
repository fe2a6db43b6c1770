"""What gas costs next, and how much of it a post takes."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from scheduler.model import GasModel

_ELASTICITY = 2
_MAX_CHANGE_DENOMINATOR = 8
_MIN_GAS_LIMIT = 5_000


def next_base_fee(base_fee_wei: int, gas_used: int, gas_limit: int) -> int:
    """The base fee of the block after one with these figures, in wei per gas; exact.

    EIP-1559: the target is half the limit; the fee moves by 1/8 of itself times the relative
    distance from the target, in integers, and by at least 1 wei when it rises.
    """
    if gas_limit < _ELASTICITY or not 0 <= gas_used <= gas_limit:
        raise ValueError(f"gas used {gas_used} and gas limit {gas_limit} are of no block")
    target = gas_limit // _ELASTICITY
    if gas_used == target:
        return base_fee_wei
    if gas_used > target:
        rise = base_fee_wei * (gas_used - target) // target // _MAX_CHANGE_DENOMINATOR
        return base_fee_wei + max(rise, 1)
    return base_fee_wei - base_fee_wei * (target - gas_used) // target // _MAX_CHANGE_DENOMINATOR


def base_fee_bound(base_fee_wei: int, blocks: int) -> int:
    """The most the base fee can be `blocks` blocks after one where it is `base_fee_wei`.

    Full blocks raise it by 1/8 each. An odd gas limit lets a full block overshoot its target, by
    one gas more than the target, which weighs most when the limit is small: the bound takes the
    least limit a chain may have (5,000, go-ethereum `params.MinGasLimit`), so it holds for any.
    """
    target = _MIN_GAS_LIMIT // _ELASTICITY
    for _ in range(blocks):
        rise = base_fee_wei * (target + 1) // target // _MAX_CHANGE_DENOMINATOR
        base_fee_wei += max(rise, 1)
    return base_fee_wei


INTRINSIC_GAS = 21_000
"""No transaction takes less (Yellow Paper, G_transaction)."""
_LOWER = (float(INTRINSIC_GAS), 0.0, 0.0)
_UPPER = (5e6, 1e6, 1e6)
"""Above these a coefficient is the fit's error, not the contract's: a post of 100 results takes
about 600,000 in all."""
_SAME = 1e-6
"""Directions with less than this share of the largest singular value count as not observed."""


def fit_gas_model(observations: Sequence[tuple[int, int, int]], prior: GasModel) -> GasModel:
    """The least-squares gas model of observed posts, each (groups, results, gas used).

    What the observations do not determine stays as near to the prior as they allow (the
    minimum-norm correction of it, in units of its coefficients): few observations, or posts that
    all had one group, or all the same size, are no special case, and none at all give the prior.
    A coefficient out of its sane range is set to the range's end and the others are fitted again.
    """
    rows = np.array([(1.0, groups, results) for groups, results, _ in observations])
    rows = rows.reshape(len(observations), 3)
    used = np.array([float(gas) for _, _, gas in observations])
    start = np.array([prior.fixed_gas, prior.per_group_gas, prior.per_result_gas], dtype=float)
    fitted = np.clip(start, _LOWER, _UPPER)
    free = [0, 1, 2]
    while free and len(observations):
        trial = _corrected(rows, used, fitted, free)
        outside = np.abs(trial - np.clip(trial, _LOWER, _UPPER)) / np.array(_UPPER)
        worst = int(np.argmax(outside))
        if outside[worst] == 0.0:
            fitted = trial
            break
        fitted[worst] = np.clip(trial[worst], _LOWER[worst], _UPPER[worst])
        free.remove(worst)
    return GasModel(*(round(float(coefficient)) for coefficient in fitted))


def _corrected(
    rows: NDArray[np.float64],
    used: NDArray[np.float64],
    start: NDArray[np.float64],
    free: Sequence[int],
) -> NDArray[np.float64]:
    """`start` with the least correction of its `free` coefficients that fits best."""
    scale = np.maximum(start[list(free)], 1.0)
    correction, *_ = np.linalg.lstsq(rows[:, free] * scale, used - rows @ start, rcond=_SAME)
    result = start.copy()
    result[list(free)] += correction * scale
    if not all(isfinite(value) for value in result):
        raise ValueError("gas observations must be finite")
    return result
