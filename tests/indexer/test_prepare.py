"""What does not belong together is refused before anything is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from indexer.database import Connection, Pool
from indexer.errors import NoContractCode, NodeBehind, RpcUnreachable, WrongChain, WrongDatabase
from indexer.rpc import Rpc
from indexer.types import Address, Hash32
from inferd.chain.anvil import Anvil, free_port
from tests.indexer.scripted import result, scripted_node
from tests.indexer.world import World, index_once, tables


async def test_prepare__all_fits__claims_the_database_once(world: World, pool: Pool) -> None:
    await world.indexer(pool).prepare()
    await world.indexer(pool).prepare()
    rows = await pool.fetch("SELECT * FROM chain.source")
    assert [(row["chain_id"], row["genesis_hash"]) for row in rows] == [(31337, world.genesis_hash)]


async def test_prepare__another_chain_id__wrong_chain(world: World, pool: Pool) -> None:
    indexer = world.indexer(pool, contracts=replace(world.contracts, chain_id=1))
    with pytest.raises(WrongChain, match="31337"):
        await indexer.prepare()
    assert await pool.fetchval("SELECT count(*) FROM chain.source") == 0


async def test_prepare__another_genesis__wrong_chain(world: World, pool: Pool) -> None:
    with pytest.raises(WrongChain, match="first block"):
        await world.indexer(pool, genesis_hash=Hash32(b"\1" * 32)).prepare()


async def test_prepare__first_block_pruned__believed_by_its_chain_id(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    async def script(body: Any) -> Any:
        pruned = isinstance(body, dict) and body["params"][:1] == ["0x0"]
        return result(body, None) if pruned else None

    await world.submit()
    async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
        await index_once(world, pool, rpc=rpc)
        foreign = replace(world.contracts, chain_id=1)
        with pytest.raises(WrongChain):
            await world.indexer(pool, rpc=rpc, contracts=foreign).prepare()
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1


@pytest.mark.parametrize("name", ["requests", "results", "registry", "stakes"])
async def test_prepare__no_contract__no_contract_code(world: World, pool: Pool, name: str) -> None:
    contracts = replace(world.contracts, **{name: Address(b"\xee" * 20)})
    with pytest.raises(NoContractCode, match="ee" * 20):
        await world.indexer(pool, contracts=contracts).prepare()


async def test_prepare__node_before_the_deployment__says_wait(world: World, pool: Pool) -> None:
    contracts = replace(world.contracts, start_block=1000)
    with pytest.raises(NodeBehind):
        await world.indexer(pool, contracts=contracts).prepare()


async def test_prepare__database_of_another_deployment__wrong_database(
    world: World, pool: Pool
) -> None:
    await index_once(world, pool)
    before = await tables(pool)
    contracts = replace(world.contracts, start_block=world.contracts.start_block + 1)
    with pytest.raises(WrongDatabase, match="start_block"):
        await world.indexer(pool, contracts=contracts).prepare()
    assert await tables(pool) == before


async def test_prepare__node_down__unreachable(world: World, pool: Pool) -> None:
    async with Rpc([f"http://127.0.0.1:{free_port()}"]) as rpc:
        with pytest.raises(RpcUnreachable):
            await world.indexer(pool, rpc=rpc).prepare()


async def test_fence__replaced_writer__writes_nothing(world: World, pool: Pool) -> None:
    class ReplacedError(Exception):
        pass

    allowed = 2

    async def fence(connection: Connection) -> None:
        nonlocal allowed
        assert connection.is_in_transaction()
        allowed -= 1
        if allowed < 0:
            raise ReplacedError

    await world.submit()
    with pytest.raises(ReplacedError):
        await index_once(world, pool, fence=fence)
    cursor = await pool.fetchval("SELECT block_number FROM chain.cursor")
    assert cursor == world.contracts.start_block, "one claim and one block were allowed"


async def test_start_block__genesis__indexed_from_there(world: World, pool: Pool) -> None:
    await world.submit()
    contracts = replace(world.contracts, start_block=0)
    await index_once(world, pool, contracts=contracts)
    assert await pool.fetchval("SELECT min(number) FROM chain.block") == 0
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1
