"""Which of the operator's keys sends what is planned in a step.

One plan for all keys, so that each result goes to one of them: the key with the most free slots,
and of these with the most ether. A key that cannot send leaves the step, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from inferd.settlement.chain import Sight
from inferd.settlement.fees import Fees
from inferd.settlement.launch import Launched, Launcher
from inferd.settlement.records import Draft
from inferd.settlement.settings import KeyStatus, PausedReason


@dataclass(slots=True, eq=False)
class Lane:
    """One key in a step."""

    launcher: Launcher
    sight: Sight
    """With its nonce and balance."""
    slots: int
    """Transactions that it may still have on their way."""
    key: KeyStatus
    is_short: bool = False
    """What is to be posted next costs more than it has; a call or a refund may not."""


class Lanes:
    """Those that may send something new; fewer as the step goes on."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._open = [lane for lane in lanes if lane.slots > 0]

    @property
    def slots(self) -> int:
        """Of all keys together, but for those that cannot pay for the next post: what waits while
        the others are full waits for a slot."""
        return sum(lane.slots for lane in self._open if not lane.is_short)

    def next(self, cost_wei: int) -> Lane | None:
        """For a transaction that can cost so much; None where no key has that, which is said."""
        able = [lane for lane in self._open if lane.sight.free_wei >= cost_wei]
        if not able:
            for lane in self._open:
                lane.key.noticed = PausedReason.INSUFFICIENT_FUNDS
                lane.is_short = True
        return max(able, key=lambda lane: (lane.slots, lane.sight.free_wei), default=None)

    def richest(self) -> Lane | None:
        """For a transaction that takes as much as the balance pays for."""
        return max(self._open, key=lambda lane: lane.sight.free_wei, default=None)

    def expect_others(self) -> None:
        """Transactions, of ours or of rivals, may be on their way before what is new."""
        for lane in self._open:
            lane.launcher.behind_others = True

    async def launch(self, lane: Lane, draft: Draft, fees: Fees) -> Launched:
        """Raises RPC_TROUBLE."""
        done = await lane.launcher.launch(draft, fees, lane.sight)
        if done is Launched.SENT:
            lane.slots -= 1
            lane.key.in_flight += 1
        if lane.slots <= 0 or done in (Launched.KEPT, Launched.NOT_BY_THIS_KEY):
            self._open.remove(lane)
        return done
