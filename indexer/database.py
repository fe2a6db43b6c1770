"""Connections to PostgreSQL, with the codecs that every table of ours relies on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import urlsplit

import asyncpg

from indexer.errors import DatabaseUnreachable
from indexer.numeric import decode_numeric, encode_numeric

if TYPE_CHECKING:
    Connection: TypeAlias = "asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]"
    Pool: TypeAlias = "asyncpg.Pool[Any]"
else:
    Connection = asyncpg.Connection
    Pool = asyncpg.Pool

AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    ConnectionError,
)
"""What says beyond doubt that the server is away."""

CONNECTION_LOST = (*AWAY, asyncpg.InterfaceError, OSError)
"""What asyncpg raises when the server goes away, in mid-query or between queries."""


def is_unstorable(error: BaseException) -> bool:
    """Whether a value is to blame and no connection, by asyncpg's word or the server's.

    asyncpg's own DataError is an InterfaceError, as what it says of a closed connection is.
    """
    by_client = isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
    return by_client or isinstance(error, asyncpg.DataError)


BLOCK_CHANNEL = "inferd_block"
"""NOTIFY channel: a block's rows were committed. The payload is its number."""


def plain_text(text: str) -> str:
    """Foreign text as PostgreSQL takes it: no lone surrogates, no zero bytes."""
    return text.encode(errors="replace").decode().replace("\x00", "")


class Fence(Protocol):
    """Called inside a transaction before it writes: raises where the writer has been replaced."""

    async def __call__(self, connection: Connection) -> None: ...


async def prepare_connection(connection: Connection) -> None:
    """Reads and writes numeric as int (amounts are whole wei) and jsonb as Python values."""
    await connection.set_type_codec(
        "numeric",
        schema="pg_catalog",
        encoder=encode_numeric,
        decoder=decode_numeric,
        format="binary",
    )
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads, format="text"
    )


async def connect(url: str) -> asyncpg.Connection[Any]:
    """One connection. Raises DatabaseUnreachable."""
    try:
        connection = await asyncpg.connect(url, timeout=10)
    except (*CONNECTION_LOST, TimeoutError, asyncpg.PostgresError, ValueError) as error:
        raise _unreachable(url, error) from error
    await prepare_connection(connection)
    return connection


async def open_pool(url: str, *, max_size: int = 10) -> Pool:
    """A pool whose connections are all prepared. Raises DatabaseUnreachable."""
    try:
        return await asyncpg.create_pool(
            url, min_size=1, max_size=max_size, init=prepare_connection, timeout=10
        )
    except (*CONNECTION_LOST, TimeoutError, asyncpg.PostgresError, ValueError) as error:
        raise _unreachable(url, error) from error


def _unreachable(url: str, error: Exception) -> DatabaseUnreachable:
    try:
        parts = urlsplit(url)
        where = parts.hostname or "a local socket"
    except ValueError:
        where = "an unreadable address"
    return DatabaseUnreachable(
        f"PostgreSQL at {where} does not answer: {type(error).__name__}",
        help_text="start it, or correct `database_url`; without one inferd starts its own",
    )
