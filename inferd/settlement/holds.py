"""Items that would fail now and are left alone for a while. In memory: it only saves calls."""

from __future__ import annotations

from collections.abc import Iterable

from inferd.settlement.records import Item

_MAX_BLOCKS = 32


class Holds:
    def __init__(self) -> None:
        self._until: dict[Item, int] = {}
        self._times: dict[Item, int] = {}

    def hold(self, item: Item, block: int) -> None:
        """For twice as many blocks each time, up to 32."""
        times = self._times.get(item, 0)
        self._times[item] = times + 1
        self._until[item] = block + min(2**times, _MAX_BLOCKS)

    def hold_once(self, item: Item, block: int) -> None:
        """Until the next block."""
        self._until[item] = block + 1

    def holds(self, item: Item, block: int) -> bool:
        return self._until.get(item, block) > block

    def keep_only(self, items: Iterable[Item]) -> None:
        """Forgets all others: they are settled, expired or gone."""
        wanted = set(items)
        for table in (self._until, self._times):
            for item in [item for item in table if item not in wanted]:
                del table[item]
