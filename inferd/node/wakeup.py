"""Wakes the loops when a block's rows are committed or a worker is done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from indexer.database import BLOCK_CHANNEL, connect

_QUIET_S = 5.0


class Wakeup:
    """One loop's bell: rung any number of times while the loop is busy, it wakes it once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Until rung, or for 5 s: a lost notification delays work, it does not stop it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), _QUIET_S)
        self._event.clear()


@contextlib.asynccontextmanager
async def rung_by_blocks(url: str, *bells: Wakeup) -> AsyncIterator[None]:
    """Rings all bells at each commit of the indexer. Raises DatabaseUnreachable."""
    connection = await connect(url)

    def ring(*_: object) -> None:
        for bell in bells:
            bell.ring()

    try:
        await connection.add_listener(BLOCK_CHANNEL, ring)
        yield
    finally:
        with contextlib.suppress(Exception):
            await connection.close(timeout=2)
