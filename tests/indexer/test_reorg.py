"""Reorganisations on Anvil: the tables always equal a fresh index of the chain as it is now."""

from __future__ import annotations

import asyncio
import random

import pytest

from indexer.database import Pool
from indexer.errors import ReorgTooDeep
from indexer.rebuild import empty_tables
from indexer.rpc.types import Header
from indexer.types import Hash32
from inferd.protocol import calls
from tests.indexer.world import (
    FEE_WEI,
    World,
    caught_up,
    differences,
    index_once,
    running,
    tables,
)

DIGEST = b"\x0d" * 32


async def test_reorg__removes_moves_and_unsettles__equals_fresh_index(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    await world.register()
    served = await world.submit(b"served")
    await world.mine(3)
    indexer = world.indexer(pool)
    async with running(indexer):
        await caught_up(indexer, world)
        removed = await world.submit(b"removed")
        moved = await world.submit(b"moved")
        await world.post({served: DIGEST})
        await world.mine(2)
        await caught_up(indexer, world)
        before = {row["id"]: row for row in await pool.fetch("SELECT * FROM chain.request")}
        assert before.keys() == {served, removed, moved}
        assert before[served]["status"] == "fulfilled"

        move = await world.transaction(
            1, world.contracts.requests, calls.submit(world.params[moved]), FEE_WEI
        )
        await world.reorg(5, [(move, 3)])
        await caught_up(indexer, world)

        after = {row["id"]: row for row in await pool.fetch("SELECT * FROM chain.request")}
        assert after.keys() == {served, removed}, "the moved request took the removed one's id"
        assert after[removed]["input"] == b"moved"
        assert after[removed]["commitment"] != before[removed]["commitment"]
        assert after[removed]["created_block"] == before[moved]["created_block"] + 2
        assert after[served]["status"] == "pending"
        assert after[served]["digest"] is None
        assert await pool.fetchval("SELECT count(*) FROM chain.payment") == 0
        assert indexer.status.reorgs == 1
        assert indexer.status.deepest_reorg == 5

        await world.mine()
        await caught_up(indexer, world)
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_reorg__same_transaction_in_another_block__row_names_the_new_block(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    indexer = world.indexer(pool)
    async with running(indexer):
        request_id = await world.submit()
        await world.mine(2)
        await caught_up(indexer, world)
        row = await pool.fetchrow("SELECT * FROM chain.request")
        assert row is not None
        body = await world.rpc.request(
            "eth_getRawTransactionByHash", ["0x" + row["created_tx_hash"].hex()]
        )
        await world.reorg(3, [(body, 1)])
        await caught_up(indexer, world)
        again = await pool.fetchrow("SELECT * FROM chain.request")
    assert again is not None
    assert again["id"] == request_id
    assert again["created_tx_hash"] == row["created_tx_hash"]
    assert again["created_block"] == row["created_block"] + 1
    assert again["created_block_hash"] != row["created_block_hash"]
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_reorg__while_the_indexer_was_away__found_at_restart(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    await world.register()
    request_id = await world.submit()
    await world.post({request_id: DIGEST})
    await index_once(world, pool)
    await world.reorg(3, [])
    await world.mine(150)
    indexer = await index_once(world, pool)
    assert indexer.status.reorgs == 1
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_reorg__with_no_event_of_ours__headers_follow(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    indexer = world.indexer(pool)
    async with running(indexer):
        await world.submit()
        await world.mine(6)
        await caught_up(indexer, world)
        # Anvil builds the very same empty blocks again unless something tells them apart.
        await world.rpc.request("anvil_setCoinbase", ["0x" + "ab" * 20])
        await world.reorg(4, [])
        await caught_up(indexer, world)
        assert indexer.status.deepest_reorg <= 4
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_reorg__of_the_first_block__everything_is_replaced(world: World, pool: Pool) -> None:
    indexer = world.indexer(pool)
    async with running(indexer):
        await world.submit()
        await caught_up(indexer, world)
        depth = 1 + (await world.head()).number - world.contracts.start_block
        await world.reorg(depth, [])
        await caught_up(indexer, world)
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 0
    assert await pool.fetchval("SELECT count(*) FROM chain.block") == depth


async def test_reorg__deeper_than_the_window__stops_until_rebuilt(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    await world.submit()
    await world.mine(30)
    await index_once(world, pool, window_blocks=4)
    await world.reorg(12, [])
    await world.mine()
    before = await tables(pool)
    with pytest.raises(ReorgTooDeep) as caught:
        await index_once(world, pool, window_blocks=4)
    assert "inferd index rebuild" in caught.value.help_text
    assert await tables(pool) == before
    async with pool.acquire() as connection, connection.transaction():
        await empty_tables(connection)
    await index_once(world, pool)
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_head_goes_backwards__cursor_stays(world: World, pool: Pool) -> None:
    await world.submit()
    await world.mine(5)
    indexer = world.indexer(pool)
    async with running(indexer):
        await caught_up(indexer, world)
        before = await tables(pool)
        await world.rpc.request("anvil_rollback", [3])
        await asyncio.sleep(0.3)
        assert await tables(pool) == before
        assert indexer.status.rpc_ok
        assert indexer.status.lag_blocks == 0
        await world.rpc.request("anvil_setCoinbase", ["0x" + "ab" * 20])
        await world.submit(b"on the other branch")
        await caught_up(indexer, world)
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 2


async def test_reorg__second_one_during_the_first__ends_on_the_newest_branch(
    world: World, pool: Pool, fresh_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = world.rpc.header
    second = False

    async def header(block: int | Hash32 | str) -> Header | None:
        nonlocal second
        if isinstance(block, bytes) and not second:
            second = True
            await world.reorg(4, [])
        return await reads(block)  # type: ignore[arg-type]

    await world.submit(b"a")
    await world.submit(b"b")
    await world.mine(2)
    await index_once(world, pool)
    move = await world.transaction(
        2, world.contracts.requests, calls.submit(await world.some_params(b"c")), FEE_WEI
    )
    # Anvil replaces block by block, and who looks meanwhile has no need to walk back by hashes.
    await world.reorg(3, [(move, 1)])
    monkeypatch.setattr(world.rpc, "header", header)
    await index_once(world, pool)
    assert second
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 0
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


@pytest.mark.parametrize("seed", range(3))
async def test_reorg__many_at_random__equals_fresh_index(
    world: World, pool: Pool, fresh_pool: Pool, seed: int
) -> None:
    rng = random.Random(seed)
    await world.register()
    indexer = world.indexer(pool)
    async with running(indexer):
        for step in range(25):
            request_id = await world.submit(rng.randbytes(rng.randrange(64)))
            if rng.random() < 0.5:
                await world.post({request_id: rng.randbytes(32)})
            if rng.random() < 0.6:
                await caught_up(indexer, world)
            if rng.random() < 0.5:
                head = await world.head()
                depth = rng.randrange(1, 8)
                params = await world.some_params(b"again %d" % step)
                again = await world.transaction(
                    2, world.contracts.requests, calls.submit(params), FEE_WEI
                )
                await world.reorg(
                    min(depth, head.number - world.contracts.start_block - 5),
                    [(again, 0)] if rng.random() < 0.7 else [],
                )
                world.params = {}
        await caught_up(indexer, world)
    assert indexer.status.reorgs > 3
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
