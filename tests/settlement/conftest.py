from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from indexer.database import Pool
from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil
from tests.settlement.world import World, build_world


@pytest.fixture
async def world(anvil: Anvil, pool: Pool) -> AsyncIterator[World]:
    async with Rpc([anvil.url]) as rpc:
        yield await build_world(anvil, rpc, pool)
