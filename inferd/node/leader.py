"""One working daemon per database; the others stand by.

An advisory lock says who works: PostgreSQL frees it when the holder's connection ends, so a killed
daemon is followed within a poll. An epoch in node.leader fences: every transaction that writes
reads it first, and a daemon that lost the lock without noticing is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import asyncpg
import structlog

from indexer.database import CONNECTION_LOST, Connection, prepare_connection
from indexer.errors import DatabaseUnreachable

_LOCK_KEY = 0x696E6665_72640002
_ROLE = "node"
_CHECK_INTERVAL_S = 1.0
# A holder whose machine vanished sends no FIN: the server notices by probes within 5 + 3*2 seconds.
_KEEPALIVES = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}

_RAISE_EPOCH = """
    INSERT INTO node.leader (role, epoch, holder) VALUES ($1, 1, $2)
    ON CONFLICT (role) DO UPDATE
        SET epoch = node.leader.epoch + 1, holder = $2, acquired_at = now()
    RETURNING epoch
"""

log = structlog.get_logger("node")


class LostLeadership(Exception):
    """Another daemon works on this database now, or the lock's connection ended."""


class Leadership:
    """The lock, while it is held."""

    def __init__(self, connection: asyncpg.Connection[Any], epoch: int) -> None:
        self._connection = connection
        self.epoch = epoch

    async def fence(self, connection: Connection) -> None:
        """For the first statement of a writing transaction: holds off a successor until it ends.

        Raises LostLeadership where there is one already.
        """
        epoch = await connection.fetchval(
            "SELECT epoch FROM node.leader WHERE role = $1 FOR SHARE", _ROLE
        )
        if epoch != self.epoch:
            raise LostLeadership(f"epoch {self.epoch} was followed by {epoch}")

    async def watch(self) -> None:
        """Returns never; raises LostLeadership when the lock's connection is gone."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            try:
                await self._connection.fetchval("SELECT 1", timeout=5)
            except (*CONNECTION_LOST, TimeoutError) as error:
                raise LostLeadership(f"the lock's connection ended: {error}") from error

    async def release(self) -> None:
        with contextlib.suppress(*CONNECTION_LOST, TimeoutError):
            await self._connection.close(timeout=2)


async def displace_leader(connection: Connection, holder: str) -> None:
    """Raises the epoch in the caller's transaction: waits for what the leader is writing, and from
    the commit on it can write no more. It notices within a second, and leads again from the tables
    as they are then."""
    await connection.execute(_RAISE_EPOCH, _ROLE, holder)


async def become_leader(url: str, holder: str) -> Leadership:
    """Waits until this process is the one that works.

    Raises DatabaseUnreachable, also when the connection ends while waiting.
    """
    connection = None
    try:
        connection = await asyncpg.connect(url, timeout=10, server_settings=_KEEPALIVES)
        await prepare_connection(connection)
        waited = False
        while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK_KEY):
            if not waited:
                log.info("standing_by", holder=holder)
                waited = True
            await asyncio.sleep(_CHECK_INTERVAL_S)
        epoch: int = await connection.fetchval(_RAISE_EPOCH, _ROLE, holder)
    except BaseException as error:
        if connection is not None:
            connection.terminate()  # with it goes the lock, where it was had already
        if isinstance(error, (*CONNECTION_LOST, TimeoutError, asyncpg.PostgresError)):
            raise DatabaseUnreachable(
                f"PostgreSQL does not answer: {type(error).__name__}", help_text="start it"
            ) from error
        raise
    log.info("leading", holder=holder, epoch=epoch)
    return Leadership(connection, epoch)
