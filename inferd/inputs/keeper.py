"""The task that has named inputs here before a worker needs them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import structlog

from indexer.database import Fence, Pool
from inferd.inputs import rows, tries
from inferd.inputs.fetch import Fetcher
from inferd.inputs.room import Room
from inferd.inputs.source import InputError, NeverHad
from inferd.inputs.tries import Wanted

_LOOKS_FOR_ROOM_EVERY_S = 5.0

log = structlog.get_logger("inputs")


@dataclass(frozen=True, slots=True)
class KeeperLimits:
    """What all fetches may take together."""

    at_once: int
    per_host: int
    max_tries: int
    inclusion_s: float
    """So long before its deadline a request has no use for its input any more."""
    max_bytes: int
    """Of one."""
    total_bytes: int
    """Of all that are kept, with those that are being fetched counted as the largest."""


class Bell(Protocol):
    """Rung when requests may have come, or a time has."""

    def ring(self) -> None: ...

    async def wait(self, until_s: float | None = None) -> None:
        """Until rung, or that time in seconds since the epoch."""


class Keeper:
    """One in a session. What has been had is never fetched again while somebody waits for it, by
    whomever it is named and whatever restarts."""

    def __init__(
        self,
        pool: Pool,
        fetcher: Fetcher,
        limits: KeeperLimits,
        *,
        fence: Fence,
        bell: Bell,
        on_try: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        """`on_try` is told of each try, after its commit: "here", "again" or "lost"; `on_change` is
        called when a round may decide otherwise."""
        self._pool = pool
        self._fetcher = fetcher
        self._limits = limits
        self._fence = fence
        self._bell = bell
        self._on_try = on_try
        self._on_change = on_change
        self._running: dict[bytes, Wanted] = {}
        self.room = Room(limits.total_bytes, limits.max_bytes)
        self._looks_for_room_at_s = 0.0
        self.waiting_for_room = 0
        """Contents that are not fetched for want of room."""

    async def begin_again(self) -> None:
        """At a session's start, before its first round: what was given up is tried again."""
        async with self._pool.acquire() as connection, connection.transaction():
            await self._fence(connection)
            await rows.begin_again(connection)
            self.room.measured(await rows.held_bytes(connection), added_before=0)

    async def run(self) -> None:
        """Until cancelled. Errors of the database and of the fence propagate."""
        try:
            async with asyncio.TaskGroup() as tasks:
                again_at_s: float | None = None
                while True:
                    await self._bell.wait(again_at_s)
                    # What ends while the rows are read is in them as if nobody had tried.
                    seen = dict(self._running)
                    wanted = await self._look()
                    now_s = time.time()
                    running = seen | self._running
                    due = self._due(wanted, running, now_s)
                    begun = await self._with_room(due, now_s)
                    self.waiting_for_room = len(
                        {one.key for one in wanted if one.told_of_room}.union(
                            one.key for one in due
                        ).difference(running, (one.key for one in begun))
                    )
                    for one in begun:
                        self._running[one.key] = one
                        tasks.create_task(self._serve(one))
                    again_at_s = tries.wake_at_s(wanted, now_s)
                    if self.waiting_for_room and self._looks_for_room_at_s > now_s:
                        again_at_s = min(again_at_s or inf, self._looks_for_room_at_s)
        finally:
            await self._fetcher.close()

    async def _look(self) -> list[Wanted]:
        async with self._pool.acquire() as connection:
            wanted, overlooked = await rows.load_wanted(connection)
            if overlooked:
                async with connection.transaction():
                    await self._fence(connection)
                    await rows.touch(connection, overlooked)
        if overlooked:
            self._on_change()
        return wanted

    def _due(
        self, wanted: Sequence[Wanted], running: Mapping[bytes, Wanted], now_s: float
    ) -> list[Wanted]:
        return tries.due(
            wanted,
            running.values(),
            now_s=now_s,
            at_once=self._limits.at_once,
            per_host=self._limits.per_host,
        )

    async def _with_room(self, due: Sequence[Wanted], now_s: float) -> Sequence[Wanted]:
        """Those of them that there is room for. The others wait, and are told so."""
        room = self.room.for_more(len(self._running))
        if room < len(due) and now_s >= self._looks_for_room_at_s:
            await self._make_room(len(due) - room)
            self._looks_for_room_at_s = now_s + _LOOKS_FOR_ROOM_EVERY_S
            room = self.room.for_more(len(self._running))
        waiting = due[room:]
        untold = [one for one in waiting if not one.told_of_room]
        if untold:
            async with self._pool.acquire() as connection, connection.transaction():
                await self._fence(connection)
                await rows.tell_of_room(connection, untold, self._looks_for_room_at_s)
            log.warning("no_room_for_inputs", inputs=len(untold), held_bytes=self.room.held_bytes)
        return due[:room]

    async def _make_room(self, fetches: int) -> None:
        before = self.room.added_bytes
        async with self._pool.acquire() as connection, connection.transaction():
            await self._fence(connection)
            await rows.make_room(connection, fetches * self.room.each_bytes)
            held = await rows.held_bytes(connection)
        self.room.measured(held, added_before=before)

    async def _serve(self, wanted: Wanted) -> None:
        try:
            outcome = await self._try(wanted)
        finally:
            del self._running[wanted.key]
        self._on_try(outcome)
        self._on_change()
        # Its place is free for another.
        self._bell.ring()

    async def _try(self, wanted: Wanted) -> str:
        told = log.bind(key=wanted.key.hex()[:16], request_id=wanted.newest_request)
        try:
            content = await self._fetcher.fetch(wanted.input)
        except InputError as error:
            return await self._failed(wanted, error, told)
        async with self._pool.acquire() as connection, connection.transaction():
            await self._fence(connection)
            await rows.write_content(connection, wanted, content)
        self.room.add(len(content))
        told.info("input_here", bytes=len(content), tries=wanted.tries + 1)
        return "here"

    async def _failed(
        self, wanted: Wanted, error: InputError, told: structlog.stdlib.BoundLogger
    ) -> str:
        next_try_s = None
        if not isinstance(error, NeverHad):
            next_try_s = tries.next_try_s(
                wanted.tries + 1,
                max_tries=self._limits.max_tries,
                now_s=time.time(),
                latest_s=wanted.deadline_s - self._limits.inclusion_s,
                jitter=random.random(),  # noqa: S311 - only spreads load
            )
        async with self._pool.acquire() as connection, connection.transaction():
            await self._fence(connection)
            await rows.write_failure(connection, wanted, error.reason, next_try_s)
        outcome = "lost" if next_try_s is None else "again"
        told.info("input_not_had", outcome=outcome, reason=error.reason, tries=wanted.tries + 1)
        return outcome
