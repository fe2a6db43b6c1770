"""What a worker may have in hand before it has proved itself.

Anyone can register a worker. Until the lower confidence bound of its success with some model
reaches the operator's threshold, it has few requests at a time, and the fees that are lost if it
answers none of them are at most a part of its stake. The operator's own workers are trusted.
"""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

from scheduler.allowance import Probation
from scheduler.cover import EDGE
from scheduler.kinds import Ints
from scheduler.workers import WorkerTable

_BPS = 10_000


class Caps:
    """The caps of one round. Workers are named by rank; those that are trusted have none."""

    def __init__(self, slots: Ints, capped: Ints, in_flight: int, rooms_wei: list[int]) -> None:
        """`rooms_wei` are the fees that the `capped` workers may take beyond those in hand."""
        self.capped = capped
        self.most: Ints = slots.copy()
        """Slots that each worker may use."""
        without_room = np.array([room_wei <= 0 for room_wei in rooms_wei])
        self.most[capped] = np.where(without_room, 0, np.minimum(self.most[capped], in_flight))
        self.ranks = frozenset(capped.tolist())
        self._rooms_wei = dict(zip(capped.tolist(), rooms_wei, strict=True))
        self._room = np.full(len(slots), inf)
        self._room[capped] = rooms_wei

    def lack_room(self, ranks: Ints, fee_wei: int) -> NDArray[np.bool_]:
        """Whether each of the workers has no room for the fee, exactly."""
        room, fee = self._room[ranks], float(fee_wei)
        lacking: NDArray[np.bool_] = room < fee
        for at in np.flatnonzero(np.abs(room - fee) <= EDGE * fee + 2.0).tolist():
            lacking[at] = not self.fits(int(ranks[at]), fee_wei)
        return lacking

    def beyond_all(self, ranks: Ints) -> int:
        """A fee in wei that none of the workers has room for, and hardly more than the least such;
        all of them have caps."""
        return int(self._room[ranks].max(initial=0.0) * (1.0 + EDGE)) + 2

    def fits(self, rank: int, fee_wei: int) -> bool:
        """Whether the worker has room for the fee, exactly."""
        room_wei = self._rooms_wei.get(rank)
        return room_wei is None or fee_wei <= room_wei

    def take(self, rank: int, fee_wei: int) -> None:
        """The worker, which has a cap, gets a request."""
        room_wei = self._rooms_wei[rank] - fee_wei
        self._rooms_wei[rank] = room_wei
        self._room[rank] = room_wei


def caps_of(workers: WorkerTable, terms: Probation) -> Caps | None:
    """None where nobody is on probation."""
    capped = np.flatnonzero((workers.proved < terms.success) & ~workers.owned)
    if not len(capped):
        return None
    rooms_wei = [
        max(0, view.stake_wei * terms.stake_bps // _BPS - view.fees_in_hand_wei)
        for view in map(workers.view, capped.tolist())
    ]
    return Caps(workers.slots, capped, terms.in_flight, rooms_wei)
