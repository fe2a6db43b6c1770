"""Real contracts on Anvil into PostgreSQL."""

from __future__ import annotations

from indexer.database import Pool
from inferd.protocol import calls
from inferd.protocol.request import params_hash
from tests.indexer.world import FEE_WEI, World, caught_up, differences, index_once, running, tables

DIGEST = b"\x0d" * 32


async def test_follow__whole_life__tables_say_what_the_chain_says(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    indexer = world.indexer(pool)
    async with running(indexer):
        await world.register()
        served, cancelled, expired = [await world.submit(), await world.submit(b"\0\xff"), 0]
        expired = await world.submit(b"late", deadline_in_s=20)
        await world.send(4, world.contracts.requests, calls.raise_fee(served), FEE_WEI)
        cancel = calls.request_cancel(cancelled, params_hash(world.params[cancelled]))
        await world.send(1, world.contracts.requests, cancel)
        receipt = await world.post({served: DIGEST})
        again = await world.post({served: DIGEST})
        assert again.succeeded
        await world.rpc.request("evm_increaseTime", [60])
        claim = (expired, world.accounts[1], params_hash(world.params[expired]))
        foreign = (2**200, world.accounts[1], params_hash(world.params[expired]))
        await world.send(4, world.contracts.requests, calls.refund([claim, foreign]))
        await world.send(2, world.contracts.stakes, calls.unstake(world.signer, 10**17))
        await world.send(2, world.contracts.requests, calls.withdraw_to(world.accounts[2]))
        await caught_up(indexer, world)

    rows = {row["id"]: row for row in await pool.fetch("SELECT * FROM chain.request")}
    assert rows[served]["status"] == "fulfilled"
    assert rows[served]["digest"] == DIGEST
    assert rows[served]["worker"] == world.signer
    assert rows[served]["settled_tx_hash"] == receipt.tx_hash
    assert rows[served]["fee_wei"] == 2 * FEE_WEI
    assert rows[served]["commitment"] == world.commitment_of(served, world.params[served])
    assert rows[served]["deadline_s"] == world.params[served].deadline_s
    assert rows[cancelled]["status"] == "pending"
    assert rows[cancelled]["cancel_requested"]
    assert rows[cancelled]["input"] == b"\0\xff"
    assert rows[cancelled]["deadline_s"] < rows[cancelled]["submitted_deadline_s"]
    assert rows[expired]["status"] == "refunded"

    worker = await pool.fetchrow("SELECT * FROM chain.worker")
    assert worker is not None
    assert (worker["signer"], worker["owner"]) == (world.signer, world.accounts[2])
    assert (worker["stake_wei"], worker["unbonding_wei"]) == (10**17, 10**17)
    assert worker["enabled"]
    assert worker["staked"]

    paid = await pool.fetch("SELECT * FROM chain.payment ORDER BY log_index")
    assert [(row["role"], row["account"], row["worker"], row["results"]) for row in paid] == [
        ("worker", world.accounts[2], world.signer, 1),
        ("poster", world.accounts[3], None, None),
    ]
    assert sum(row["amount_wei"] for row in paid) == 2 * FEE_WEI
    kinds = {row["kind"] for row in await pool.fetch("SELECT DISTINCT kind FROM chain.log")}
    assert {"ResultSkipped", "RefundSkipped", "DecisionsAnchored", "Withdrawn"} <= kinds
    assert await pool.fetchval("SELECT count(*) FROM chain.quarantine") == 0
    assert indexer.status.lag_blocks == 0
    assert indexer.status.rpc_ok

    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_backfill__long_history__equals_following(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    indexer = world.indexer(pool, window_blocks=32)
    async with running(indexer):
        await world.register()
        first = await world.submit()
        for _ in range(3):
            await world.mine(60)
            await world.submit()
            await caught_up(indexer, world)
        await world.post({first: DIGEST})
        await world.mine(40)
        await caught_up(indexer, world)
        await world.mine(3)
        await caught_up(indexer, world)

    fresh = world.indexer(fresh_pool, window_blocks=32)
    fresh._ranges._blocks = 7
    async with running(fresh):
        await caught_up(fresh, world)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
    kept = await pool.fetch("SELECT number FROM chain.block ORDER BY number")
    head = (await world.head()).number
    final = head - 2
    assert [row["number"] for row in kept] == list(range(final - 32, head + 1))


async def test_follow__two_requests_in_one_block__both(world: World, pool: Pool) -> None:
    await world.rpc.request("evm_setAutomine", [False])
    requests = world.contracts.requests
    five = calls.submit_many([await world.some_params()] * 5, [FEE_WEI] * 5)
    await world.post_transaction(1, requests, five, FEE_WEI * 5)
    one = calls.submit(await world.some_params(b"other"))
    await world.post_transaction(2, requests, one, FEE_WEI)
    await world.mine()
    await index_once(world, pool)
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 6
    assert await pool.fetchval("SELECT count(DISTINCT created_block) FROM chain.request") == 1
