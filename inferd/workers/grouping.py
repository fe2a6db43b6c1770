"""Work that is cheaper together: what comes while one group is under way is the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from indexer.database import AWAY
from indexer.together import end

T = TypeVar("T")
R = TypeVar("R")


class Grouped(Generic[T, R]):
    """Hands single items to a function that takes many, one call at a time.

    No timer: an item that comes alone is served at once and alone. Where a group fails, its halves
    are tried apart, so that one item cannot spoil the others; unless the database is away, which
    all of them are told.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        most: int,
        apart: Callable[[T], Hashable] = id,
    ) -> None:
        """`work` gives a result for each item, in order, or does nothing and raises. A group has at
        most `most` items, and no two of the same `apart`."""
        self._work = work
        self._most = most
        self._apart = apart
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._serving: asyncio.Task[None] | None = None

    async def do(self, item: T) -> R:
        """The item's own result. Raises what `work` raises of it.

        Whoever is cancelled here does not hear how it went; what has begun goes on.
        """
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve_all())
        return await future

    async def close(self) -> None:
        """Ends what is under way; whoever waits is cancelled."""
        if self._serving is not None:
            await end(self._serving)

    async def _serve_all(self) -> None:
        try:
            while self._waiting:
                await self._serve(self._next_group())
        finally:
            self._serving = None
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()

    def _next_group(self) -> list[tuple[T, asyncio.Future[R]]]:
        group: list[tuple[T, asyncio.Future[R]]] = []
        later: list[tuple[T, asyncio.Future[R]]] = []
        present: set[Hashable] = set()
        while self._waiting and len(group) < self._most:
            item, future = self._waiting.popleft()
            if future.done():
                continue  # Nobody waits for it any more.
            if (key := self._apart(item)) in present:
                later.append((item, future))
                continue
            present.add(key)
            group.append((item, future))
        self._waiting.extendleft(reversed(later))
        return group

    async def _serve(self, group: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        if not group:
            return
        try:
            results = await self._work([item for item, _ in group])
        except asyncio.CancelledError:
            for _, future in group:
                future.cancel()
            raise
        except Exception as error:
            half = len(group) // 2
            if half and not isinstance(error, (*AWAY, OSError)):
                await self._serve(group[:half])
                await self._serve(group[half:])
                return
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), result in zip(group, results, strict=True):
                if not future.done():
                    future.set_result(result)
