"""How much the base fee rises within so many blocks: quantiles of what it did lately."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_PPM = 1_000_000
WINDOW_BLOCKS = 256
"""Recent base fees that are looked at: what a node remembers of the chain anyway."""
HORIZONS = 64
"""Blocks ahead up to which rises are measured; what takes longer takes the last."""
_RATIOS_PER_BLOCK = 2
"""A rise over `h` blocks is measured only on a window of at least so many times `h` ratios: those
that overlap tell the same story."""
_MIN_RATIOS = 32
"""Fewer have no tail."""


def quantiles(base_fees_wei: Sequence[int], horizons: int, level: float) -> tuple[int, ...]:
    """The quantile of base_fee[t + h] / base_fee[t] for h = 1, 2, ... up to `horizons`, in parts
    per million, rounded up.

    `base_fees_wei` is of consecutive blocks, oldest first; `level` is from 0 to 1, and the quantile
    is a ratio that occurred (the smallest that at least that part does not exceed). It never falls
    with the horizon: what has to cover the rise within h blocks covers that within fewer. Horizons
    that the window is too short for are left out, and with them all that are further; blocks with a
    base fee of zero have no ratio. Float is exact enough: it is a statistic, and bounded by the
    rule of EIP-1559 where it decides on money (`scheduler.cover.margins_ppm`).
    """
    fees = np.array([float(fee_wei) for fee_wei in base_fees_wei], np.float64)
    found: list[int] = []
    for blocks in range(1, horizons + 1):
        before, after = fees[:-blocks], fees[blocks:]
        counted = before > 0.0
        ratios = after[counted] / before[counted]
        if len(ratios) < max(_MIN_RATIOS, _RATIOS_PER_BLOCK * blocks):
            break
        rank = max(int(np.ceil(level * len(ratios))) - 1, 0)
        ratio_ppm = int(np.ceil(np.partition(ratios, rank)[rank] * _PPM))
        found.append(max(ratio_ppm, found[-1] if found else 0))
    return tuple(found)
