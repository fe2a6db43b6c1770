"""The models of one worker in the memory that it has: which are loaded, and which make room."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import structlog

from indexer.errors import OperatorError
from inferd.workers.backends.base import Backend

log = structlog.get_logger("workers")


class ModelTooLarge(OperatorError):
    """A model of a worker does not fit the memory that the worker has for all of them."""

    code: ClassVar[str] = "model_too_large"


@dataclass(frozen=True, slots=True)
class Resident:
    """A model that has its memory."""

    name: str
    size_mb: int
    used: int
    """Larger = used later."""
    busy: bool
    """Whether it computes."""


def to_unload(residents: Sequence[Resident], room_mb: int) -> tuple[Resident, ...]:
    """Which models leave so that `room_mb` more are free: none that need not, idle ones before
    those that compute, and of these those that were used longest ago. Pure."""
    chosen: list[Resident] = []
    freed_mb = 0
    for one in sorted(residents, key=lambda one: (one.busy, one.used)):
        if freed_mb >= room_mb:
            break
        chosen.append(one)
        freed_mb += one.size_mb
    for one in reversed(chosen[:-1]):
        if freed_mb - one.size_mb >= room_mb:
            chosen.remove(one)
            freed_mb -= one.size_mb
    return tuple(chosen)


@dataclass(eq=False)
class _Place:
    size_mb: int
    backend: Backend | None = None
    running: int = 0
    resident: bool = False
    """Its memory is reserved."""
    leaving: bool = False
    """Nobody may begin on it any more: another model waits for its memory."""
    arranging: bool = False
    """Somebody who wants it is in line for room."""
    followers: list[asyncio.Future[bool]] = field(default_factory=list)
    """Others who want it: let in together with that one."""
    used: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class ModelMemory:
    """Loads a model when it is wanted, and unloads those that were used longest ago where there is
    no room for it.

    One model at a time is given room, in the order in which they were wanted. Where those that must
    go compute, it waits for that, and who wants one of these meanwhile waits behind it: so each
    gets its turn, however busy the others are. All who wait for a model by then use it together:
    jobs that alternate do not load it for each.
    """

    def __init__(
        self, limit_mb: int | None = None, sizes_mb: Mapping[str, int] | None = None
    ) -> None:
        """Without `limit_mb` there is room for all. `sizes_mb` are by the models' names; one that
        is not named takes none. Raises ModelTooLarge."""
        self._limit_mb = limit_mb
        self._places = {name: _Place(size) for name, size in (sizes_mb or {}).items()}
        self._door = asyncio.Lock()
        self._waiting = 0
        self._uses = itertools.count(1)
        for name, place in self._places.items():
            if limit_mb is not None and place.size_mb > limit_mb:
                raise ModelTooLarge(
                    f"the model {name} takes {place.size_mb} MB, and its worker has {limit_mb} MB"
                    " for all its models",
                    help_text="raise the worker's `memory_mb`, or correct the model's"
                    " `resident_mb`",
                )

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return self._waiting

    @contextlib.asynccontextmanager
    async def holding(self, backend: Backend) -> AsyncIterator[None]:
        """The model is loaded, and stays so until the end. Raises the OperatorErrors of loading."""
        place = self._places.get(backend.name)
        if self._limit_mb is None or place is None or not place.size_mb:
            if not backend.loaded:
                await backend.start()
            yield
            return
        await self._enter(place, backend)
        try:
            if not backend.loaded:
                await backend.start()
            yield
        finally:
            self._end(place)

    async def _enter(self, place: _Place, backend: Backend) -> None:
        place.backend = backend
        if place.resident and not place.leaving:
            self._begin(place)
            return
        self._waiting += 1
        try:
            while not await (self._follow(place) if place.arranging else self._arrange(place)):
                pass
        finally:
            self._waiting -= 1

    async def _arrange(self, place: _Place) -> bool:
        """In turn, gets the room for all who wait for this model by then."""
        place.arranging = True
        try:
            async with self._door:
                if not place.resident:
                    await self._make_room(place.size_mb)
                    place.resident = True
                self._begin(place)
                self._let_in(place, begun=True)
        finally:
            place.arranging = False
            self._let_in(place, begun=False)
        return True

    async def _follow(self, place: _Place) -> bool:
        """Behind another one who wants the same model; False where that one has given up."""
        waiter = asyncio.get_running_loop().create_future()
        place.followers.append(waiter)
        try:
            begun: bool = await asyncio.shield(waiter)
        except asyncio.CancelledError:
            if waiter.done() and waiter.result():
                self._end(place)
            elif not waiter.done():
                place.followers.remove(waiter)
            raise
        return begun

    def _let_in(self, place: _Place, *, begun: bool) -> None:
        followers, place.followers = place.followers, []
        for waiter in followers:
            if begun:
                self._begin(place)
            waiter.set_result(begun)

    def _begin(self, place: _Place) -> None:
        place.used = next(self._uses)
        place.running += 1
        place.idle.clear()

    def _end(self, place: _Place) -> None:
        place.running -= 1
        if not place.running:
            place.idle.set()

    async def _make_room(self, size_mb: int) -> None:
        taken = {name: place for name, place in self._places.items() if place.resident}
        free_mb = (self._limit_mb or 0) - sum(place.size_mb for place in taken.values())
        victims = to_unload(
            [
                Resident(name, place.size_mb, place.used, place.running > 0)
                for name, place in taken.items()
            ],
            size_mb - free_mb,
        )
        leaving = [taken[victim.name] for victim in victims]
        for place in leaving:
            place.leaving = True
        try:
            for place in leaving:
                if place.running:
                    await place.idle.wait()
                await self._unload(place)
        finally:
            for place in leaving:
                place.leaving = False

    async def _unload(self, place: _Place) -> None:
        backend = place.backend
        if backend is not None:
            await backend.unload()
            log.info("model_unloaded", model=backend.name, reason="another one needs its memory")
        place.resident = False
