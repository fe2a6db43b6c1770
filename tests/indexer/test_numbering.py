"""A request's log that an endpoint keeps back is noticed by the number that lacks, and fetched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.database import Pool
from indexer.decode import topic_of
from indexer.numbering import passed_over, requested_ids
from indexer.rpc import RawLog, Rpc
from indexer.types import Address, Hash32
from inferd.chain.anvil import Anvil
from inferd.protocol import calls
from tests.indexer.scripted import result, scripted_node
from tests.indexer.world import FEE_WEI, World, caught_up, differences, index_once, running, tables

REQUESTED = topic_of("InferenceRequested(uint256,address,bytes32,uint256,uint256,bytes)")
OURS, OTHER = Address(b"\1" * 20), Address(b"\2" * 20)

KeepBack = Callable[[int], bool]


@given(st.integers(0, 5), st.sets(st.integers(0, 12)))
def test_passed_over__is_the_lowest_that_lacks_below_the_highest(last: int, ids: set[int]) -> None:
    due = set(range(last + 1, max(ids, default=0))) - ids
    assert passed_over(last, ids) == min(due, default=None)


def test_passed_over__a_number_out_of_this_world__costs_nothing() -> None:
    assert passed_over(1, [2, 2**256 - 1]) == 3


def test_numbers__of_the_contract_only() -> None:
    def a_log(address: Address, *topics: bytes) -> RawLog:
        return RawLog(address, topics, b"", 1, Hash32(b""), Hash32(b""), 0, 0)

    number = (7).to_bytes(32, "big")
    logs = [
        a_log(OURS, REQUESTED, number),
        a_log(OTHER, REQUESTED, number),
        a_log(OURS, bytes(32), number),
        a_log(OURS, REQUESTED),
        a_log(OURS),
    ]
    assert requested_ids(logs, OURS) == [7]


async def fooled(world: World, anvil: Anvil, keeps_back: KeepBack) -> tuple[Any, list[str]]:
    """A node that leaves requests' logs out of its answers, and what it is asked for besides."""
    asked: list[str] = []

    async def script(body: Any) -> Any:
        if not isinstance(body, dict) or body["method"] != "eth_getLogs":
            if isinstance(body, dict):
                asked.append(body["method"])
            return None
        logs = await world.rpc.request(body["method"], body["params"])
        return result(
            body,
            [
                entry
                for entry in logs
                if entry["topics"][0] != "0x" + REQUESTED.hex()
                or not keeps_back(int(entry["topics"][1], 16))
            ],
        )

    return scripted_node(anvil.url, script), asked


@pytest.mark.parametrize("kept_back", [{1}, {2}, {1, 3}])
async def test_one_of_several_in_a_block__fetched_before_anything_is_written(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool, kept_back: set[int]
) -> None:
    await world.submit_many(4)
    await world.mine()
    scripted, _ = await fooled(world, anvil, kept_back.__contains__)
    async with scripted as node, Rpc([node.url]) as rpc:
        indexer = await index_once(world, pool, rpc=rpc)
    assert indexer.status.completed_blocks == 1
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 4


async def test_another_endpoint_says_none__its_receipts_are_read(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool
) -> None:
    await world.submit_many(4)
    await world.mine()

    async def says_none(body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == "eth_getLogs":
            return result(body, [])
        return None

    scripted, _ = await fooled(world, anvil, {2}.__contains__)
    async with (
        scripted as node,
        scripted_node(anvil.url, says_none) as other,
        Rpc([node.url, other.url]) as rpc,
    ):
        await index_once(world, pool, rpc=rpc)
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_last_of_a_block__mended_when_the_next_request_comes(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool
) -> None:
    await world.submit_many(3)
    await world.mine(2)
    scripted, _ = await fooled(world, anvil, {3}.__contains__)
    async with scripted as node, Rpc([node.url]) as rpc:
        indexer = world.indexer(pool, rpc=rpc)
        async with running(indexer):
            await caught_up(indexer, world)
            assert await pool.fetchval("SELECT max(id) FROM chain.request") == 2
            await world.submit()
            await caught_up(indexer, world)
    assert indexer.status.completed_blocks == 1
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_on_the_new_branch_of_a_reorganisation__fetched_too(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool
) -> None:
    await world.submit()
    again = [await world.some_params(b"again")] * 4
    data = calls.submit_many(again, [FEE_WEI] * 4)
    anew = await world.transaction(1, world.contracts.requests, data, 4 * FEE_WEI)
    scripted, _ = await fooled(world, anvil, {2}.__contains__)
    async with scripted as node, Rpc([node.url]) as rpc:
        indexer = world.indexer(pool, rpc=rpc)
        async with running(indexer):
            await world.submit_many(2)
            await world.mine(2)
            await caught_up(indexer, world)
            await world.reorg(3, [(anew, 0)])
            await caught_up(indexer, world)
    assert indexer.status.reorgs == 1
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 5


async def test_an_honest_node__is_asked_for_no_receipts(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    scripted, asked = await fooled(world, anvil, lambda _: False)
    async with scripted as node, Rpc([node.url]) as rpc:
        indexer = world.indexer(pool, rpc=rpc)
        async with running(indexer):
            for _ in range(3):
                await world.submit_many(3)
                await world.submit()
            await caught_up(indexer, world)
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 12
    assert indexer.status.completed_blocks == 0
    assert "eth_getBlockReceipts" not in asked


async def test_a_number_that_the_tables_cannot_have__stops_nothing(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    """As where the log of a request could not be read."""
    await world.submit_many(2)
    await world.mine()
    await index_once(world, pool)
    await pool.execute("DELETE FROM chain.request WHERE id = 2")
    await pool.execute(
        "WITH gone AS (DELETE FROM chain.log WHERE request_id = 2 RETURNING *)"
        " INSERT INTO chain.quarantine SELECT block_hash, log_index, block_number, tx_hash,"
        " tx_index, address, topics, data, 'dirty' FROM gone"
    )
    await world.submit()
    await index_once(world, pool)
    assert await pool.fetchval("SELECT max(id) FROM chain.request") == 3
