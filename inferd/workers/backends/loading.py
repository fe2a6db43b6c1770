"""One load of a model at a time, however many wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Loading:
    """Shares one load among all who come while it is under way.

    A thread that loads cannot be ended from outside: whoever is cancelled, as by the end of a
    lease, leaves it to the others and to those who come later.
    """

    def __init__(self, load: Callable[[], Awaitable[None]]) -> None:
        self._load = load
        self._under_way: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Begins a load where none is under way, and waits for its end. Raises what it raises."""
        if self._under_way is None:
            self._under_way = asyncio.ensure_future(self._load_once())
            self._under_way.add_done_callback(_hear)
        await asyncio.shield(self._under_way)

    async def settle(self) -> None:
        """Waits until none is under way, however it ends."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])

    async def _load_once(self) -> None:
        try:
            await self._load()
        finally:
            self._under_way = None


def _hear(ended: asyncio.Task[None]) -> None:
    """An error that nobody waits for any more is met again by the next load."""
    if not ended.cancelled():
        ended.exception()
