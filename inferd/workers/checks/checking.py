"""Runs checks beside the node's work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from inferd.workers.checks import canaries
from inferd.workers.checks.canaries import Canary
from inferd.workers.checks.canary_runs import CanaryRuns
from inferd.workers.checks.desk import Desk
from inferd.workers.checks.spot import SpotChecks
from scheduler.model import RequestKey

_LOOK_EVERY_S = 0.5
_MOST_AT_ONCE = 16


class Checker:
    """One task at most for each result that is checked, each canary that is learnt, and each worker
    that is sent one.

    Of several on one database one does all; the others send canaries to whom their own inspection
    has drawn.
    """

    def __init__(
        self,
        desk: Desk,
        names: Mapping[bytes, str],
        *,
        proved: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """`names` are model names by id; `proved` is how surely a worker must succeed to be off
        probation."""
        self._desk = desk
        self._spot = SpotChecks(desk, names)
        self._canaries = CanaryRuns(desk, proved=proved)
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._known: list[Canary] = []
        self._known_at: Any = None

    @property
    def under_way(self) -> set[RequestKey]:
        """Whose checks some worker computes now."""
        return self._spot.asking

    @property
    def busy(self) -> bool:
        """Whether something is under way, or has ended since the last look."""
        return bool(self._tasks)

    async def run(self, has_all: Callable[[], Awaitable[bool]]) -> None:
        """For ever; `has_all` says, before each look, whether this one does all. Its errors and
        those of the database propagate."""
        try:
            while True:
                await self.look(everything=await has_all())
                await asyncio.sleep(_LOOK_EVERY_S)
        finally:
            await self.close()

    async def close(self) -> None:
        """Ends what is under way: checks of results are gone on with by whoever works next."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._tasks.clear()

    async def look(self, *, everything: bool = True) -> None:
        """Once: begins what is to be done now. Raises what a task that has ended has raised."""
        for name, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[name]
                task.result()
        if everything:
            await self._spot.end_overdue()
        async with self._desk.database.acquire() as connection:
            keys = await self._spot.due(connection) if everything else []
            version = await canaries.version(connection)
            if version != self._known_at:
                self._known, self._known_at = await canaries.load(connection), version
                self._desk.inspection.know(self._known)
            known = self._known
            due = set(self._desk.inspection.due)
            if everything:
                due |= await self._canaries.untried(connection, known)
        for key in keys:
            self._begin(key, partial(self._spot.check, key))
        for canary in known:
            if everything and canary.digest is None:
                self._begin(canary.id, partial(self._canaries.learn, canary))
        for worker, model in sorted(due):
            self._begin((worker, model), partial(self._canaries.send, worker, model, known))

    def _begin(self, name: object, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name not in self._tasks and len(self._tasks) < _MOST_AT_ONCE:
            self._tasks[name] = asyncio.create_task(work())
