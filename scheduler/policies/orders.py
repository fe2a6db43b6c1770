"""Plain orders: the published formula, and by one column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.policies.choices import EarliestCompletion
from scheduler.policies.protocol import Floats, OrderView

_FEE_UNIT_WEI = 1e16
_URGENT_S = 30.0


@dataclass(frozen=True, slots=True)
class WeightedRaw(EarliestCompletion):
    """The published formula, a baseline (docs/architecture.md).

    0.6 * fee / 0.01 ETH + 0.3 * log2(1 + age_s) + 0.1 * f, with f = exp((30 - slack_s) / 30) when
    the slack is under 30 s and 1 otherwise. Its terms have no common scale and no upper bound.
    """

    @property
    def name(self) -> str:
        return "weighted-raw"

    @property
    def version(self) -> str:
        return "1"

    def scores(self, view: OrderView) -> Floats:
        pressure = np.exp(np.maximum(_URGENT_S - view.slack_s, 0.0) / _URGENT_S)
        fee, age = view.fee_wei / _FEE_UNIT_WEI, np.log2(1.0 + view.wait_s)
        scores: Floats = 0.6 * fee + 0.3 * age + 0.1 * pressure
        return scores


@dataclass(frozen=True, slots=True)
class Fifo(EarliestCompletion):
    """Oldest first."""

    @property
    def name(self) -> str:
        return "fifo"

    @property
    def version(self) -> str:
        return "1"

    def scores(self, view: OrderView) -> Floats:
        return -view.submitted_at_s


@dataclass(frozen=True, slots=True)
class EarliestDeadline(EarliestCompletion):
    """Earliest deadline first."""

    @property
    def name(self) -> str:
        return "edf"

    @property
    def version(self) -> str:
        return "1"

    def scores(self, view: OrderView) -> Floats:
        return -view.deadline_s


@dataclass(frozen=True, slots=True)
class FeeFirst(EarliestCompletion):
    """Highest fee first."""

    @property
    def name(self) -> str:
        return "fee-first"

    @property
    def version(self) -> str:
        return "1"

    def scores(self, view: OrderView) -> Floats:
        return view.fee_wei
