"""While one range is written the next is fetched: node, indexer and database work at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from indexer.backfill import ReadRange
from indexer.types import BlockRef


class Reader(Protocol):
    """What reads ranges: see indexer.backfill.RangeReader."""

    async def read(
        self, first: int, target: int, *, cursor: BlockRef | None, keep_from: int
    ) -> ReadRange: ...


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A range on its way, and for which question."""

    first: int
    cursor: BlockRef
    keep_from: int
    task: asyncio.Task[ReadRange]


class ReadAhead:
    """Answers like the reader it is given, and has it read one range further meanwhile.

    What was read for another question than the next one is thrown away: after a reorganisation
    nothing of the old branch is left here.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._ahead: _Ahead | None = None

    async def read(
        self, first: int, target: int, *, cursor: BlockRef | None, keep_from: int
    ) -> ReadRange:
        """Raises what the reader raises."""
        read = await self._taken(first, target, cursor, keep_from)
        if read is None:
            read = await self._reader.read(first, target, cursor=cursor, keep_from=keep_from)
        tip = read.headers[-1]
        if tip.number < target:
            following = self._reader.read(
                tip.number + 1, target, cursor=tip.ref(), keep_from=keep_from
            )
            task = asyncio.create_task(following)
            self._ahead = _Ahead(tip.number + 1, tip.ref(), keep_from, task)
            # Puts the question on its way before the caller goes to work on this answer.
            await asyncio.sleep(0)
        return read

    async def _taken(
        self, first: int, target: int, cursor: BlockRef | None, keep_from: int
    ) -> ReadRange | None:
        """What was read ahead; None where nothing was, or something else."""
        ahead = self._ahead
        if ahead is None:
            return None
        if (ahead.first, ahead.cursor) != (first, cursor) or ahead.keep_from > keep_from:
            await self.close()
            return None
        self._ahead = None
        read = await ahead.task
        return read if read.headers[-1].number <= target else None

    async def close(self) -> None:
        """Gives up what is on its way, and lets go of what was read."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.task.cancel()
            await asyncio.gather(ahead.task, return_exceptions=True)
