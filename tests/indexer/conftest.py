"""A deployed chain per test, and a second database to compare with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from indexer.database import Pool, connect, open_pool
from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil
from inferd.node.postgres import EmbeddedPostgres
from tests.conftest import database_url
from tests.indexer.world import World, build_world


@pytest.fixture
async def rpc(anvil: Anvil) -> AsyncIterator[Rpc]:
    async with Rpc([anvil.url]) as opened:
        yield opened


@pytest.fixture
async def world(anvil: Anvil, rpc: Rpc) -> World:
    return await build_world(anvil, rpc)


@pytest.fixture
async def fresh_pool(postgres: EmbeddedPostgres, database: str) -> AsyncIterator[Pool]:
    """An empty index beside the one under test."""
    name = urlsplit(database).path.removeprefix("/") + "_fresh"
    admin = await connect(postgres.url)
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE inferd_template")
    opened = await open_pool(database_url(postgres, name))
    yield opened
    await opened.close()
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()
