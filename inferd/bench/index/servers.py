"""A PostgreSQL server for one measurement, and a fresh database for each run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from indexer.database import connect
from indexer.schema import chain_migrations, migrate, migrations_in
from inferd.bench.index.jobs import RAW_TABLES
from inferd.node.postgres import EmbeddedPostgres

_TEMPLATE = "bench_template"
_NAME = "bench"


@asynccontextmanager
async def temporary_server(folder: Path) -> AsyncIterator[EmbeddedPostgres]:
    """As the daemon starts its own, crash-safe, with a database to copy from.

    Raises DatabaseUnreachable, EmbeddedPostgresMissing.
    """
    server = EmbeddedPostgres(folder)
    await asyncio.to_thread(server.ensure_running)
    try:
        admin = await connect(server.url)
        await admin.execute(f"CREATE DATABASE {_TEMPLATE}")
        await admin.close()
        template = await connect(_url(server, _TEMPLATE))
        await migrate(template, "chain", chain_migrations())
        await migrate(template, "node", migrations_in(files("inferd.node") / "migrations"))
        await template.execute(RAW_TABLES)
        await template.close()
        yield server
    finally:
        await asyncio.to_thread(server.stop)


@asynccontextmanager
async def fresh_database(server: EmbeddedPostgres) -> AsyncIterator[str]:
    """The URL of an empty database with all tables; what came before is on disk already."""
    admin = await connect(server.url)
    try:
        await admin.execute(f"CREATE DATABASE {_NAME} TEMPLATE {_TEMPLATE}")
        await admin.execute("CHECKPOINT")
        yield _url(server, _NAME)
    finally:
        await admin.execute(f"DROP DATABASE IF EXISTS {_NAME} WITH (FORCE)")
        await admin.close()


def _url(server: EmbeddedPostgres, name: str) -> str:
    return server.url.replace("/postgres?", f"/{name}?")
