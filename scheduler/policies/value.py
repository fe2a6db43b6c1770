"""The operator's view, the default: expected net value per slot-second.

    density  = (fee_wei * success_lower - gas_cost_wei) / (service_ms / 1000)   in wei a second
    boosted  = density * (1 + slack_boost * exp(-slack_s / slack_scale_s)),  where it is positive
    base     = 1/2 + sign(boosted) * log2(1 + |boosted|) / (2 * 384)            in (0, 1)

Highest density first is the greedy of the knapsack relaxation. What has little slack is now or
never, what has much can still be served later at the same value: hence the boost, whose size and
scale are the best of those tried in the simulator (docs/benchmarks.md). The logarithm
keeps the order and needs no scale: 2**384 is above any density of a 256-bit fee.

In bands of age. The longest wait: with W = max_wait_s and A the requests pending at t or submitted
in [t, t + W), a request submitted at t that could take c slots a round is assigned within
ceil((A * max_attempts + 1) / c) rounds (proof in `scheduler.policies.aging`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.policies.aging import banded
from scheduler.policies.choices import EarliestCompletion
from scheduler.policies.protocol import Floats, OrderView, SeatsView

_OCTAVES = 384.0
LEAST_SUCCESS = 0.05
"""A worker whose success nobody can promise counts as twenty times as slow, not as never done."""


@dataclass(frozen=True, slots=True)
class Value(EarliestCompletion):
    """Raises ValueError if the boost is negative or its scale is not positive."""

    slack_boost: float = 8.0
    """How much more a request without slack counts; 1 = twice as much."""
    slack_scale_s: float = 7.0
    """The slack at which the boost has fallen to 37 %."""

    def __post_init__(self) -> None:
        if not (0.0 <= self.slack_boost < float("inf") and 0.0 < self.slack_scale_s < float("inf")):
            raise ValueError("`value` needs a slack boost of at least 0 and a positive scale")

    @property
    def name(self) -> str:
        return "value"

    @property
    def version(self) -> str:
        return f"1:{self.slack_boost:g}/{self.slack_scale_s:g}"

    def work(self, seats: SeatsView) -> Floats:
        """The time until a valid result, the attempts that fail included: mean / success."""
        work: Floats = seats.mean_ms / np.maximum(seats.success_lower, LEAST_SUCCESS)
        return work

    def scores(self, view: OrderView) -> Floats:
        net_wei = view.fee_wei * view.success_lower - view.gas_cost_wei
        density = net_wei * 1000.0 / view.service_ms
        boost = 1.0 + self.slack_boost * np.exp(-view.slack_s / self.slack_scale_s)
        boosted = np.where(density > 0.0, density * boost, density)
        size = np.log2(1.0 + np.abs(boosted)) / (2.0 * _OCTAVES)
        return banded(0.5 + np.copysign(size, boosted), view.wait_s, view.max_wait_s)
