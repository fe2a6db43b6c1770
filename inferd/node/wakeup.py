"""Wakes the loops when a block's rows are committed or a worker is done."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Mapping

from indexer.database import BLOCK_CHANNEL, Connection, connect
from indexer.errors import DatabaseUnreachable
from inferd.policies.journal import POLICY_CHANNEL

GRANT_CHANNEL = "inferd_grant"
"""NOTIFY channel: leases were granted, for dispatchers to take."""
ENDED_CHANNEL = "inferd_ended"
"""NOTIFY channel: leases ended in the process that dispatched them."""

_QUIET_S = 5.0


class Wakeup:
    """One loop's bell: rung any number of times while the loop is busy, it wakes it once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._broken = False

    def ring(self) -> None:
        self._event.set()

    def break_off(self) -> None:
        """Nothing rings it any more."""
        self._broken = True
        self._event.set()

    async def wait(self, until_s: float | None = None) -> None:
        """Until rung, or that time of `time.time`, or for 5 s: a lost notification delays work, it
        does not stop it.

        Raises DatabaseUnreachable once the connection that rings it is gone.
        """
        quiet_s = _QUIET_S if until_s is None else min(max(until_s - time.time(), 0.0), _QUIET_S)
        # Not wait_for, which forgets a cancellation that comes together with the ring.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(quiet_s):
                await self._event.wait()
        if self._broken:
            raise DatabaseUnreachable(
                "the connection that tells of new blocks ended", help_text="it is made again"
            )
        self._event.clear()


async def notify(connection: Connection, channel: str) -> None:
    """When the caller's transaction commits."""
    await connection.execute("SELECT pg_notify($1, '')", channel)


@contextlib.asynccontextmanager
async def rung(url: str, rings: Mapping[str, Collection[Wakeup]]) -> AsyncIterator[None]:
    """Rings the bells of each channel with its notifications. Raises DatabaseUnreachable."""
    connection = await connect(url)

    def ring(_connection: object, _pid: int, channel: str, _payload: object) -> None:
        for bell in rings[channel]:
            bell.ring()

    def lost(_: object) -> None:
        for bells in rings.values():
            for bell in bells:
                bell.break_off()

    try:
        connection.add_termination_listener(lost)
        for channel in rings:
            await connection.add_listener(channel, ring)
        yield
    finally:
        with contextlib.suppress(Exception):
            await connection.close(timeout=2)


def by_blocks(*bells: Wakeup) -> dict[str, Collection[Wakeup]]:
    """Rings for `rung`: each commit of the indexer, and each change of the policy."""
    return {BLOCK_CHANNEL: bells, POLICY_CHANNEL: bells}
