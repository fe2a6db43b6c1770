"""One working daemon per database, or one process per role of it, and one per poster's key; the
others stand by.

An advisory lock says who works: PostgreSQL frees it when the holder's connection ends, so a killed
daemon is followed within a poll. An epoch in node.leader fences: every transaction that writes
reads it first, and a daemon that lost the lock without noticing is refused.

Processes that share the roles of a daemon hold its lock together, in shared mode, so a whole daemon
and they never work at the same time; each role has a lock and an epoch of its own beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import structlog

from indexer.database import CONNECTION_LOST, Connection, Fence, prepare_connection
from indexer.errors import DatabaseUnreachable
from indexer.types import Address

_LOCK_KEY = 0x696E6665_72640002
_ROLE = "node"
_PART = "part "
_PROCESS = f"{_PART}process "
CHECKING = "checks"
"""The role of who checks answers; see `inferd.workers.checks`."""
SETTLING = f"{_PART}settling"
"""Whose turn it is of the processes that settle."""
_CHECK_INTERVAL_S = 1.0
_ANSWER_S = 5.0
"""A server that is silent for longer has this process lose its lead."""
_TURN_PAUSE_S = (0.02, 0.08)
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

_DISPLACE_PARTS = f"""
    WITH raised AS (
        UPDATE node.leader SET epoch = epoch + 1, holder = $1, acquired_at = now()
        WHERE starts_with(role, '{_PART}') AND NOT starts_with(role, '{_PROCESS}'))
    DELETE FROM node.leader WHERE starts_with(role, '{_PROCESS}')
"""  # noqa: S608 - constants

log = structlog.get_logger("node")

_Connection: TypeAlias = "asyncpg.Connection[Any]"


class LostLeadership(Exception):
    """Another daemon works on this database now, or the lock's connection ended."""


class Leadership:
    """The locks, while they are held."""

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        holder: str,
        epochs: Mapping[str, int],
        process: str | None = None,
    ) -> None:
        self._connection = connection
        self.holder = holder
        self._asking = asyncio.Lock()
        self._epochs = dict(epochs)
        self._turn: dict[str, int] = {}
        self.process = process
        """The id by which the others know this process for as long as it has its roles; None of a
        daemon that has all."""

    @property
    def epoch(self) -> int:
        """Of the first of its roles."""
        return next(iter(self._epochs.values()))

    async def fence(self, connection: Connection) -> None:
        """For the first statement of a writing transaction: holds off a successor until it ends.

        Raises LostLeadership where there is one already.
        """
        await _check(connection, self._epochs)

    async def claim(self, role: str) -> Fence | None:
        """Another role beside this one, for as long as the lock's connection lasts: a fence of
        both, or None while another process has it. Raises LostLeadership."""
        if not await self._ask("SELECT pg_try_advisory_lock($1)", lock_key(role)):
            return None
        claimed = {role: int(await self._ask(_RAISE_EPOCH, role, self.holder))}

        async def fence(connection: Connection) -> None:
            await _check(connection, {**self._epochs, **self._turn, **claimed})

        return fence

    async def leave(self, role: str) -> None:
        """Gives back what was claimed. Raises LostLeadership."""
        await self._ask("SELECT pg_advisory_unlock($1)", lock_key(role))

    async def is_elsewhere(self, role: str) -> bool:
        """Whether another process has that role now. Raises LostLeadership."""
        if not await self._ask("SELECT pg_try_advisory_lock($1)", lock_key(role)):
            return True
        await self.leave(role)
        return False

    @contextlib.asynccontextmanager
    async def turn(self, role: str) -> AsyncIterator[None]:
        """Waits until no other process has its turn in that role, and has it until the end of the
        block: what is begun with `fence_in_turn` is refused to who has lost its turn unnoticed.

        Raises LostLeadership.
        """
        while True:
            if await self._ask("SELECT pg_try_advisory_lock($1)", lock_key(role)):
                break
            await asyncio.sleep(random.uniform(*_TURN_PAUSE_S))  # noqa: S311
        try:
            self._turn = {role: int(await self._ask(_RAISE_EPOCH, role, self.holder))}
            yield
        finally:
            self._turn = {}
            with contextlib.suppress(LostLeadership):
                await self.leave(role)

    async def fence_in_turn(self, connection: Connection) -> None:
        """As `fence`, and for as long as the turn lasts."""
        await _check(connection, {**self._epochs, **self._turn})

    async def _ask(self, query: str, *arguments: object) -> Any:
        try:
            async with self._asking:
                # Without a limit `watch`, which waits for its turn, would wait for ever as well.
                return await self._connection.fetchval(query, *arguments, timeout=_ANSWER_S)
        except (*CONNECTION_LOST, TimeoutError) as error:
            raise LostLeadership(f"the lock's connection ended: {error}") from error

    async def watch(self) -> None:
        """Returns never; raises LostLeadership when the lock's connection is gone."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            try:
                async with self._asking:
                    await self._connection.fetchval("SELECT 1", timeout=_ANSWER_S)
            except (*CONNECTION_LOST, TimeoutError) as error:
                raise LostLeadership(f"the lock's connection ended: {error}") from error

    async def release(self) -> None:
        with contextlib.suppress(*CONNECTION_LOST, TimeoutError):
            await self._connection.close(timeout=2)


async def displace_leader(connection: Connection, holder: str) -> None:
    """Raises the epochs in the caller's transaction: waits for what the leader is writing, or the
    processes that have its roles, and from the commit on they can write no more. They notice within
    a second, and lead again from the tables as they are then."""
    await connection.execute(_RAISE_EPOCH, _ROLE, holder)
    await connection.execute(_DISPLACE_PARTS, holder)


async def become_leader(url: str, holder: str, role: str = _ROLE) -> Leadership:
    """Waits until this process is the one that works in that role.

    Raises DatabaseUnreachable, also when the connection ends while waiting.
    """

    async def lock(connection: _Connection) -> bool:
        return await _lock(connection, role)

    async def lead(connection: _Connection) -> Leadership:
        epoch: int = await connection.fetchval(_RAISE_EPOCH, role, holder)
        if role == _ROLE:
            await connection.execute(_DISPLACE_PARTS, holder)
        return Leadership(connection, holder, {role: epoch})

    return await _won(url, holder, lock, lead)


async def become_part(
    url: str, holder: str, roles: Sequence[str], keys: Sequence[str] = ()
) -> Leadership:
    """Waits until no daemon works as a whole, and this process is the one that has each of `roles`,
    of which there may be none, and the locks of `keys`, which it can then claim: it has all of them
    or none while it waits.

    Raises DatabaseUnreachable, also when the connection ends while waiting.
    """
    process = uuid4().hex
    parts = [_PROCESS + process, *(_PART + role for role in roles)]

    async def lock(connection: _Connection) -> bool:
        shared = "SELECT pg_try_advisory_lock_shared($1)"
        if await connection.fetchval(shared, _LOCK_KEY):
            for part in (*parts, *keys):
                if not await _lock(connection, part):
                    break
            else:
                return True
        await connection.execute("SELECT pg_advisory_unlock_all()")
        return False

    async def lead(connection: _Connection) -> Leadership:
        # For a daemon that worked as a whole and has not noticed that it lost its lock.
        await connection.execute(_RAISE_EPOCH, _ROLE, holder)
        epochs = {part: await connection.fetchval(_RAISE_EPOCH, part, holder) for part in parts}
        return Leadership(connection, holder, epochs, process)

    return await _won(url, holder, lock, lead)


async def bury_processes(connection: Connection) -> tuple[list[str], list[str]]:
    """Forgets the processes whose locks are gone. The ids of those that live, and of those that are
    gone: what these were writing is written, and they can write no more."""
    rows = await connection.fetch(
        "SELECT role FROM node.leader WHERE starts_with(role, $1) ORDER BY role", _PROCESS
    )
    dead = [
        row["role"]
        for row in rows
        if await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", lock_key(row["role"]))
    ]
    if dead:
        await connection.execute("DELETE FROM node.leader WHERE role = ANY($1::text[])", dead)
    living = [row["role"] for row in rows if row["role"] not in dead]
    return [_process_of(role) for role in living], [_process_of(role) for role in dead]


def _process_of(role: str) -> str:
    return role.removeprefix(_PROCESS)


async def is_led_as_a_whole(connection: Connection) -> bool:
    """Whether one daemon has all roles on this database now."""
    async with connection.transaction():
        return not await connection.fetchval(
            "SELECT pg_try_advisory_xact_lock_shared($1)", _LOCK_KEY
        )


async def _won(
    url: str,
    holder: str,
    lock: Callable[[_Connection], Awaitable[bool]],
    lead: Callable[[_Connection], Awaitable[Leadership]],
) -> Leadership:
    connection = None
    try:
        connection = await asyncpg.connect(url, timeout=10, server_settings=_KEEPALIVES)
        await prepare_connection(connection)
        waited = False
        while not await lock(connection):
            if not waited:
                log.info("standing_by", holder=holder)
                waited = True
            await asyncio.sleep(_CHECK_INTERVAL_S)
        leadership = await lead(connection)
    except BaseException as error:
        if connection is not None:
            connection.terminate()  # with it goes the lock, where it was had already
        if isinstance(error, (*CONNECTION_LOST, TimeoutError, asyncpg.PostgresError)):
            raise DatabaseUnreachable(
                f"PostgreSQL does not answer: {type(error).__name__}", help_text="start it"
            ) from error
        raise
    log.info("leading", holder=holder, epoch=leadership.epoch)
    return leadership


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
