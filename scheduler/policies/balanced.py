"""The requester's view: fee, wait and slack, weighted 60/30/10 on one scale.

Three terms, each in [0, 1], so that the weights mean what they say:

    base = 0.6 * fee + 0.3 * wait + 0.1 * urgency
    fee      quantile of the fee in the recent window (ties in the middle of their range)
    wait     wait_s / max_wait_s, at most 1
    urgency  1 - slack_s / max_wait_s, between 0 and 1

in bands of age. The longest wait: with W = max_wait_s and A the requests pending at t or submitted
in [t, t + W), a request submitted at t that could take c slots a round is assigned within
ceil((A * max_attempts + 1) / c) rounds (proof in `scheduler.policies.aging`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.policies.aging import banded, urgency
from scheduler.policies.choices import EarliestCompletion
from scheduler.policies.protocol import Floats, OrderView


@dataclass(frozen=True, slots=True)
class Balanced(EarliestCompletion):
    """Weights are relative to their sum. Raises ValueError if one is negative or all are 0."""

    fee: float = 0.6
    wait: float = 0.3
    urgency: float = 0.1

    def __post_init__(self) -> None:
        if not (min(self.fee, self.wait, self.urgency) >= 0.0 < self._sum < float("inf")):
            raise ValueError("the weights of `balanced` must be at least 0, and one of them more")

    @property
    def name(self) -> str:
        return "balanced"

    @property
    def version(self) -> str:
        return "1:" + "/".join(map(_exactly, (self.fee, self.wait, self.urgency)))

    @classmethod
    def of_version(cls, version: str) -> Balanced:
        """With the weights that it names. Raises ValueError if it is no version of this policy."""
        release, _, weights = version.partition(":")
        found = [float(one) for one in weights.split("/")]
        if release != "1" or len(found) != 3:
            raise ValueError(f"`balanced` has no version {version}")
        return cls(*found)

    @property
    def _sum(self) -> float:
        return self.fee + self.wait + self.urgency

    def scores(self, view: OrderView) -> Floats:
        # As floats, fees above 2**53 wei can tie with a neighbour: good enough to rank.
        window = view.recent_fees_wei if len(view.recent_fees_wei) else np.sort(view.fee_wei)
        below = np.searchsorted(window, view.fee_wei, side="left")
        not_above = np.searchsorted(window, view.fee_wei, side="right")
        fee = (below + not_above) / (2.0 * max(1, len(window)))
        wait = np.minimum(view.wait_s / max(1.0, view.max_wait_s), 1.0)
        pressing = urgency(view.slack_s, view.max_wait_s)
        base = (self.fee * fee + self.wait * wait + self.urgency * pressing) / self._sum
        return banded(base, view.wait_s, view.max_wait_s)


def _exactly(weight: float) -> str:
    """As short as it can be without becoming another number."""
    short = f"{weight:g}"
    return short if float(short) == weight else repr(float(weight))
