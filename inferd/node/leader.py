"""One working daemon per database, and one process per poster's key; the others stand by.

An advisory lock says who works: PostgreSQL frees it when the holder's connection ends, so a killed
daemon is followed within a poll. An epoch in node.leader fences: every transaction that writes
reads it first, and a daemon that lost the lock without noticing is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import asyncpg
import structlog

from indexer.database import CONNECTION_LOST, Connection, Fence, prepare_connection
from indexer.errors import DatabaseUnreachable
from indexer.types import Address

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

    def __init__(
        self, connection: asyncpg.Connection[Any], holder: str, role: str, epoch: int
    ) -> None:
        self._connection = connection
        self._holder = holder
        self._asking = asyncio.Lock()
        self._role = role
        self.epoch = epoch

    async def fence(self, connection: Connection) -> None:
        """For the first statement of a writing transaction: holds off a successor until it ends.

        Raises LostLeadership where there is one already.
        """
        await _check(connection, {self._role: self.epoch})

    async def claim(self, role: str) -> Fence | None:
        """Another role beside this one, for as long as the lock's connection lasts: a fence of
        both, or None while another process has it. Raises LostLeadership."""
        try:
            async with self._asking:
                if not await _lock(self._connection, role):
                    return None
                epoch = await self._connection.fetchval(_RAISE_EPOCH, role, self._holder)
        except (*CONNECTION_LOST, TimeoutError) as error:
            raise LostLeadership(f"the lock's connection ended: {error}") from error
        epochs = {self._role: self.epoch, role: int(epoch)}

        async def fence(connection: Connection) -> None:
            await _check(connection, epochs)

        return fence

    async def watch(self) -> None:
        """Returns never; raises LostLeadership when the lock's connection is gone."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            try:
                async with self._asking:
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


async def become_leader(url: str, holder: str, role: str = _ROLE) -> Leadership:
    """Waits until this process is the one that works in that role.

    Raises DatabaseUnreachable, also when the connection ends while waiting.
    """
    connection = None
    try:
        connection = await asyncpg.connect(url, timeout=10, server_settings=_KEEPALIVES)
        await prepare_connection(connection)
        waited = False
        while not await _lock(connection, role):
            if not waited:
                log.info("standing_by", holder=holder)
                waited = True
            await asyncio.sleep(_CHECK_INTERVAL_S)
        epoch: int = await connection.fetchval(_RAISE_EPOCH, role, holder)
    except BaseException as error:
        if connection is not None:
            connection.terminate()  # with it goes the lock, where it was had already
        if isinstance(error, (*CONNECTION_LOST, TimeoutError, asyncpg.PostgresError)):
            raise DatabaseUnreachable(
                f"PostgreSQL does not answer: {type(error).__name__}", help_text="start it"
            ) from error
        raise
    log.info("leading", holder=holder, epoch=epoch)
    return Leadership(connection, holder, role, epoch)


def poster_role(chain_id: int, poster: Address) -> str:
    """Of who sends with that key on that chain."""
    return f"poster {chain_id} 0x{poster.hex()}"


async def _lock(connection: asyncpg.Connection[Any], role: str) -> bool:
    """Whether the role's lock is this connection's; it may have been so before."""
    return bool(await connection.fetchval("SELECT pg_try_advisory_lock($1)", lock_key(role)))


def lock_key(role: str) -> int:
    """Of the role's advisory lock. The daemon's own is that of every release."""
    if role == _ROLE:
        return _LOCK_KEY
    return int.from_bytes(sha256(role.encode()).digest()[:8], "big", signed=True)


async def _check(connection: Connection, epochs: Mapping[str, int]) -> None:
    rows = await connection.fetch(
        "SELECT role, epoch FROM node.leader WHERE role = ANY($1::text[]) ORDER BY role FOR SHARE",
        list(epochs),
    )
    found = {row["role"]: row["epoch"] for row in rows}
    for role, epoch in epochs.items():
        if found.get(role) != epoch:
            raise LostLeadership(f"epoch {epoch} of {role} was followed by {found.get(role)}")
