"""SIGKILL between any two steps; started again, the daemon ends every request exactly once."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from eth_utils.crypto import keccak

from indexer.database import connect
from tests.consumers import CALLBACK_FEE_WEI, delivered_events, diary_of, until_callback
from tests.faults.crashing_node import DELIVERY_POINTS, POINTS
from tests.harness import FEE_WEI, OWNER, POSTER, System, address

_FULFILLED = "0x" + keccak(text="InferenceFulfilled(uint256,address,bytes32)").hex()
_LAUNCHER = str(Path(__file__).with_name("crashing_node.py"))


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at(point: str, world: System, empty_database: str) -> None:
    doomed = world.start_node("node", empty_database, program=(_LAUNCHER, point))
    await doomed.until_ready()
    asked = [await world.ask(f"prompt {number}") for number in range(3)]
    assert await asyncio.to_thread(doomed.process.wait, 60) == -signal.SIGKILL

    node = world.start_node("node", empty_database)
    for request in asked:
        await node.until_state(request.request_id, "settled")
    await _until_no_live_intent(empty_database)
    assert node.stop() == 0

    await assert_each_settled_once(world, [request.request_id for request in asked])
    await assert_no_nonce_gap(world, empty_database)


@pytest.mark.parametrize("point", DELIVERY_POINTS)
async def test_killed_between_settlement_and_delivery(
    point: str, world: System, empty_database: str
) -> None:
    doomed = world.start_node("node", empty_database, program=(_LAUNCHER, point))
    await doomed.until_ready()
    diary = await diary_of(world)
    request_id = await diary.ask()
    assert await asyncio.to_thread(doomed.process.wait, 60) == -signal.SIGKILL

    node = world.start_node("node", empty_database)
    await node.until_ready()
    await until_callback(node, request_id, "delivered")
    await _until_no_live_intent(empty_database)
    assert node.stop() == 0

    assert await diary.answer(request_id)
    assert await delivered_events(world, request_id) == 1
    await assert_each_settled_once(world, [request_id], CALLBACK_FEE_WEI)
    await assert_no_nonce_gap(world, empty_database)


async def _until_no_live_intent(database: str) -> None:
    connection = await connect(database)
    try:
        async with asyncio.timeout(30):
            while await connection.fetchval("SELECT count(*) FROM node.tx_item WHERE live"):
                await asyncio.sleep(0.1)
    finally:
        await connection.close()


async def assert_each_settled_once(world: System, ids: list[int], fee_wei: int = FEE_WEI) -> None:
    """One event each, and credits to the wei."""
    assert await fulfilled_ids(world) == ids
    credits_wei = await world.credit_wei(POSTER) + await world.credit_wei(OWNER)
    assert credits_wei == len(ids) * fee_wei


async def fulfilled_ids(world: System) -> list[int]:
    """The request of each event that says one is fulfilled, in ascending order."""
    logs = await world.rpc.request(
        "eth_getLogs",
        [
            {
                "fromBlock": "0x0",
                "toBlock": "latest",
                "address": "0x" + world.deployment.contracts.requests.hex(),
                "topics": [_FULFILLED],
            }
        ],
    )
    return sorted(int(log["topics"][1], 16) for log in logs)


async def assert_no_nonce_gap(world: System, database: str) -> None:
    """Every nonce the database gave out was used on chain."""
    connection = await connect(database)
    next_nonce = await connection.fetchval("SELECT next_nonce FROM node.sender")
    await connection.close()
    assert await world.rpc.nonce(address(POSTER), "latest") == next_nonce
