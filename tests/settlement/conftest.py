from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from indexer.database import Pool
from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil, load_anvil_config, start_anvil
from tests.settlement.world import World, build_world


@pytest.fixture
def slots_in_an_epoch() -> int:
    """The final block is two of them behind the head: out of reach of the usual reorganisation."""
    return 32


@pytest.fixture
def anvil(tmp_path: Path, slots_in_an_epoch: int) -> Iterator[Anvil]:
    config = replace(
        load_anvil_config(), port=0, block_time_s=0, slots_in_an_epoch=slots_in_an_epoch
    )
    with start_anvil(config, log=tmp_path / "anvil.log") as running:
        yield running


@pytest.fixture
async def world(anvil: Anvil, pool: Pool) -> AsyncIterator[World]:
    async with Rpc([anvil.url]) as rpc:
        yield await build_world(anvil, rpc, pool)
