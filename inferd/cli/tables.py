"""The node's tables, as commands read them, whether or not a daemon runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from indexer.database import Connection, connect
from indexer.schema import chain_migrations, require_current
from inferd.cli.session import Session
from inferd.node.preflight import node_migrations
from inferd.node.store import Database


@asynccontextmanager
async def node_tables(session: Session) -> AsyncIterator[Connection]:
    """Raises DatabaseUnreachable, DatabaseOlder, DatabaseNewer."""
    database = Database(session.settings)
    await database.ensure_running()
    try:
        connection = await connect(database.url)
        try:
            await require_current(connection, "node", node_migrations())
            await require_current(connection, "chain", chain_migrations())
            yield connection
        finally:
            await connection.close()
    finally:
        await database.leave()
