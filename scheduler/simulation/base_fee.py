"""Base fees to simulate with: recorded ones, and drawn ones that obey the exact rule.

A drawn series starts from the fullness of blocks. It is a moving-block bootstrap of recorded
fullness (Künsch, "The jackknife and the bootstrap for general stationary observations", 1989),
whose runs keep the correlation of neighbours, or without a record an autoregression with the
statistics of 1,000 recorded mainnet blocks. Demand is elastic around a level that wanders from
hour to hour (`scheduler.simulation.regime`), spikes fill all blocks for a while, and the base fee
follows by EIP-1559 in integers.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from statistics import median_low

import numpy as np
from numpy.typing import NDArray

from scheduler.gas import next_base_fee
from scheduler.simulation.regime import Regime

COLUMNS = ("number", "timestamp", "base_fee_per_gas_wei", "gas_used", "gas_limit")
"""Of a recorded series, by name; others are ignored. `timestamp` is in seconds."""

_FULLNESS_MEAN, _FULLNESS_SD = 0.506, 0.22
_FULLNESS_LAGS = (-0.268, -0.154, -0.126)
"""By Yule and Walker from the correlations over one, two and three blocks, -0.225, -0.065 and
-0.074."""
_NOISE_SHARE = 0.92
"""What of the variance is new with each block, by the same."""
_RUN_BLOCKS = 25
"""Length of a bootstrapped run: a correlation over one block survives in 24 pairs of 25."""
_ELASTICITY = 0.05
"""How much emptier blocks are, in shares of the limit, for each unit that the logarithm of the
base fee is above that of the hour's level. With it the variance of the change over 2 to 60 blocks,
relative to that of one block's, is within a tenth of that of the recorded blocks."""
_BALKING = 0.5
"""The deviation at which elasticity has doubled; further away it grows with the square, so that a
fee that a spike has driven up comes down at nearly the rule's full speed."""
_SPIKE_BLOCKS = 8
_GAS_LIMIT = 60_000_000
_LEAST_WEI = 7
"""Below 8 wei the rule's integers hold a falling fee where it is."""


@dataclass(frozen=True, slots=True)
class BaseFeeSeries:
    """Consecutive blocks."""

    base_fees_wei: tuple[int, ...]
    gas_used: tuple[int, ...]
    gas_limits: tuple[int, ...]
    interval_s: float
    """Between two blocks, as a rule."""

    def __len__(self) -> int:
        return len(self.base_fees_wei)

    @property
    def fullness(self) -> NDArray[np.float64]:
        """Gas used / gas limit of each block."""
        used = np.array(self.gas_used, dtype=np.float64)
        return used / np.array(self.gas_limits, dtype=np.float64)


def read_series(lines: Iterable[str]) -> BaseFeeSeries:
    """A series from the lines of a CSV file with a head of `COLUMNS`.

    Raises ValueError, in one line that says what is wrong, where a column is missing, a value is
    no number or of no block, blocks are not consecutive, or there are fewer than two.
    """
    reader = csv.DictReader(lines)
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise ValueError(f"a base-fee series needs the columns {', '.join(missing)}")
    rows = []
    for row in reader:
        try:
            number, timestamp_s, fee_wei, used, limit = (int(row[name]) for name in COLUMNS)
            next_base_fee(fee_wei, used, limit)
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {reader.line_num} of the series: {error}") from None
        rows.append((number, timestamp_s, fee_wei, used, limit))
    if len(rows) < 2:
        raise ValueError("a base-fee series needs at least two blocks")
    for (before, *_), (after, *_) in pairwise(rows):
        if after != before + 1:
            raise ValueError(f"block {after} follows block {before} in the series")
    _, timestamps_s, fees_wei, used_gas, limits = zip(*rows, strict=True)
    steps_s = [later - earlier for earlier, later in pairwise(timestamps_s)]
    return BaseFeeSeries(fees_wei, used_gas, limits, float(median_low(steps_s)))


def draw_series(
    seed: int,
    blocks: int,
    *,
    start_wei: int,
    interval_s: float = 12.0,
    record: BaseFeeSeries | None = None,
    regime: Regime | None = None,
    spikes_per_block: float = 0.0,
) -> BaseFeeSeries:
    """A series of so many blocks; the same arguments give the same series.

    Fullness is bootstrapped from `record` where there is one. `start_wei` is the first base fee
    and the level of the first hour; without a `regime` the level stays. A spike is 8 full blocks
    on average (geometric), and `spikes_per_block` the chance that one begins.
    """
    rng = np.random.default_rng(seed)
    fullness = _drawn(rng, blocks) if record is None else _bootstrapped(rng, blocks, record)
    levels = np.zeros(blocks)
    if regime is not None:
        levels = regime.draw(rng, np.arange(blocks, dtype=np.float64) * interval_s / 3600.0)
    in_spike = _spikes(rng, blocks, spikes_per_block)
    fees_wei, used_gas = [], []
    fee_wei = max(start_wei, _LEAST_WEI)
    log_start = log(fee_wei)
    for index in range(blocks):
        above = log(fee_wei) - log_start - levels[index]
        elastic = _ELASTICITY * above * (1.0 + (above / _BALKING) ** 2)
        share = 1.0 if in_spike[index] else fullness[index] - elastic
        used = int(min(max(share, 0.0), 1.0) * _GAS_LIMIT)
        fees_wei.append(fee_wei)
        used_gas.append(used)
        fee_wei = max(next_base_fee(fee_wei, used, _GAS_LIMIT), 1)
    return BaseFeeSeries(tuple(fees_wei), tuple(used_gas), (_GAS_LIMIT,) * blocks, interval_s)


def _drawn(rng: np.random.Generator, blocks: int) -> NDArray[np.float64]:
    noise = rng.normal(0.0, _FULLNESS_SD * _NOISE_SHARE**0.5, blocks)
    deviations = [0.0, 0.0, 0.0]
    for shock in noise:
        past = sum(a * d for a, d in zip(_FULLNESS_LAGS, reversed(deviations[-3:]), strict=True))
        deviations.append(past + float(shock))
    return np.clip(_FULLNESS_MEAN + np.array(deviations[3:]), 0.0, 1.0)


def _bootstrapped(
    rng: np.random.Generator, blocks: int, record: BaseFeeSeries
) -> NDArray[np.float64]:
    fullness = record.fullness
    run = min(_RUN_BLOCKS, len(fullness))
    starts = rng.integers(0, len(fullness) - run + 1, -(-blocks // run))
    return np.concatenate([fullness[start : start + run] for start in starts])[:blocks]


def _spikes(rng: np.random.Generator, blocks: int, per_block: float) -> Sequence[bool]:
    begins = rng.random(blocks) < per_block
    lengths = rng.geometric(1.0 / _SPIKE_BLOCKS, blocks)
    in_spike, left = [], 0
    for index in range(blocks):
        left = max(left - 1, int(lengths[index]) if begins[index] else 0)
        in_spike.append(left > 0)
    return in_spike
