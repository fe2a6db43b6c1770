"""Recorded traces and base fees, or the laws that stand in for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inferd.bench.policies.cells import Cell, Fees
from inferd.bench.recordings import load_series, load_trace
from scheduler.simulation.base_fee import BaseFeeSeries, draw_series
from scheduler.simulation.trace import CONVERSATION, TraceRow, drawn, window

START_WEI = 50_000_000
"""First base fee of a drawn series: 0.05 gwei, as on mainnet in January 2026."""
_SPIKES_PER_BLOCK = 0.05


@dataclass(frozen=True, slots=True)
class Recordings:
    """What worlds are drawn from; None = the law."""

    trace: tuple[TraceRow, ...] | None = None
    base_fees: BaseFeeSeries | None = None

    def rows(self, count: int, random: np.random.Generator) -> Sequence[TraceRow]:
        """A window of the trace that begins anywhere, or so many requests of the law."""
        if self.trace is None:
            return drawn(CONVERSATION, count, random)
        return window(self.trace, count, int(random.integers(len(self.trace))))

    def fees_of(self, cell: Cell) -> Callable[[int, np.random.Generator], Sequence[int]]:
        """How a cell's base fees are drawn: a window of the record where it fits, else a series
        whose blocks are as full as those of the record."""

        def fees(blocks: int, random: np.random.Generator) -> Sequence[int]:
            record = self.base_fees
            spare = 0 if record is None else len(record) - blocks
            if record is not None and spare >= 0 and cell.fees is Fees.RECORDED:
                first = int(random.integers(spare + 1))
                return record.base_fees_wei[first : first + blocks]
            return draw_series(
                int(random.integers(2**32)),
                blocks,
                start_wei=START_WEI if record is None else record.base_fees_wei[0],
                interval_s=cell.setting.block_ms / 1000,
                record=record,
                spikes_per_block=_SPIKES_PER_BLOCK if cell.fees is Fees.SPIKES else 0.0,
            ).base_fees_wei

        return fees


def load(trace: Path | None, base_fee: Path | None) -> Recordings:
    """Raises BadRecording."""
    return Recordings(
        None if trace is None else load_trace(trace),
        None if base_fee is None else load_series(base_fee),
    )
