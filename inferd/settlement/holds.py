"""Items that would fail now and are left alone for a while. In memory: it only saves calls."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from inferd.settlement.records import Item
from scheduler.words import count

_log = structlog.get_logger("settlement")
_MAX_BLOCKS = 32
_MOST_FAILURES = 8
"""So often is an item tried that the node fails on; within some hundred blocks."""
_FOR_GOOD = 2**63
_MOST_CHARACTERS = 120


class Holds:
    def __init__(self) -> None:
        self._until: dict[Item, int] = {}
        self._times: dict[Item, int] = {}
        self._failures: dict[Item, int] = {}
        self._failing: dict[Item, str] = {}

    def hold(self, item: Item, block: int) -> None:
        """For twice as many blocks each time, up to 32."""
        self._failing.pop(item, None)  # There was an answer this time.
        times = self._times.get(item, 0)
        self._times[item] = times + 1
        self._until[item] = block + min(2**times, _MAX_BLOCKS)

    def hold_once(self, item: Item, block: int) -> None:
        """Until the next block."""
        self._until[item] = block + 1

    def set_apart(self, item: Item, block: int, words: str) -> None:
        """The node has no answer for it alone: held as the others are, and after eight times for
        good, which is until this process ends."""
        self.hold(item, block)
        self._failing[item] = words
        tries = self._failures[item] = self._failures.get(item, 0) + 1
        if tries >= _MOST_FAILURES:
            self._until[item] = _FOR_GOOD
        _log.warning(
            "item_set_apart",
            trace_ids=[item.trace_id],
            error=words[:_MOST_CHARACTERS],
            tries=tries,
            of=_MOST_FAILURES,
        )

    def holds(self, item: Item, block: int) -> bool:
        return self._until.get(item, block) > block

    def keep_only(self, items: Iterable[Item]) -> None:
        """Forgets all others: they are settled, expired or gone."""
        wanted = set(items)
        for table in (self._until, self._times, self._failures, self._failing):
            for item in [item for item in table if item not in wanted]:
                del table[item]

    def told(self, what: str) -> str:
        """Which items the node fails on, in one sentence; empty where there are none. `what` is
        their name in the singular."""
        if not self._failing:
            return ""
        item, words = next(iter(self._failing.items()))
        for_good = sum(self._until[one] == _FOR_GOOD for one in self._failing)
        given_up = f", {for_good} of them given up" if for_good else ""
        return (
            f"{count(len(self._failing), what)} set apart, as the endpoint fails on each{given_up}:"
            f" request {item.request_id}, tried {self._failures[item]} of {_MOST_FAILURES} times,"
            f" {words[:_MOST_CHARACTERS]}."
        )
