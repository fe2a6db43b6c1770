"""Arbitrum: gas for a call's bytes is in every gas limit, and nothing is replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from indexer.database import Pool
from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil
from inferd.settlement.delivery_gas import DELIVER_GAS, claim_gas
from inferd.settlement.engine import Settlement
from inferd.settlement.rollups import ARB_SYS, NODE_INTERFACE
from tests.faults.odd_chains import ArbitrumChain
from tests.faults.rpc_plans import Always
from tests.faults.rpc_proxy import rpc_proxy
from tests.settlement.scripted import ScriptedRpc, answer, error
from tests.settlement.stand_ins import put, set_up
from tests.settlement.world import GWEI, World, build_world

GAS_PER_BYTE = 300


@pytest.fixture
async def world(anvil: Anvil, pool: Pool) -> AsyncIterator[World]:
    plan = Always([ArbitrumChain(GAS_PER_BYTE)])
    async with rpc_proxy(anvil.url, plan) as proxy, Rpc([proxy.url]) as rpc:
        world = await build_world(anvil, rpc, pool)
        await put(world, "NodeInterface", NODE_INTERFACE)
        await set_up(world, NODE_INTERFACE, ("uint256",), GAS_PER_BYTE)
        await world.become(ARB_SYS, "fe")  # what Arbitrum has there
        yield world


async def _sent(world: World, settlement: Settlement) -> int:
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    await settlement.step(await world.index())
    return request_id


async def test_the_limit_holds_what_the_bytes_take(world: World) -> None:
    settlement = world.settlement()
    request_id = await _sent(world, settlement)
    (intent,) = await world.intents()
    bytes_gas = GAS_PER_BYTE * len(intent["calldata"])
    assert intent["inputs"]["estimated_gas"] > bytes_gas > 100_000
    assert intent["gas_limit"] >= intent["inputs"]["estimated_gas"] * 6 // 5
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == {request_id: 1}


async def test_the_limit_of_a_delivery_holds_them_too(world: World) -> None:
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    await world.compute([request_id])
    settlement = world.settlement()
    await world.tick(settlement, 6)
    assert await world.answer_of(diary, request_id) == f"answer {request_id}".encode()
    post, delivery = await world.intents()
    assert (post["kind"], delivery["kind"]) == ("post", "deliver")
    asked = await world.pool.fetchrow("SELECT * FROM chain.request")
    content_bytes = len(asked["input"]) + len(f"answer {request_id}")
    bound_gas = DELIVER_GAS + claim_gas(asked["callback_gas_limit"], content_bytes)
    bytes_gas = GAS_PER_BYTE * len(delivery["calldata"])
    assert delivery["gas_limit"] == bound_gas + bytes_gas * 6 // 5


async def test_what_was_taken_is_not_replaced(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    request_id = await _sent(world, settlement)
    # A block is long in coming that has it, and the node knows it all the while.
    rpc.always("transaction_exists", answer(True))
    await world.rpc.request("anvil_dropAllTransactions", [])
    for _ in range(4):
        await settlement.step(await world.mine())
        await world.rpc.request("anvil_dropAllTransactions", [])
    (attempt,) = await world.attempts()
    assert attempt["sends"] > 1
    await world.rpc.send_raw_transaction(attempt["raw"])
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == {request_id: 1}


async def test_what_was_refused_as_too_cheap_is_replaced(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", error("max fee per gas less than block base fee: address 0x1"))
    settlement = world.settlement(rpc)
    request_id = await _sent(world, settlement)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
    await world.tick(settlement, 4)
    first, second = await world.attempts()
    assert second["max_fee_wei"] * 8 >= first["max_fee_wei"] * 9
    assert await world.fulfilled_events() == {request_id: 1}


async def test_a_delivery_whose_bytes_cost_more_than_it_earned_waits(world: World) -> None:
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    await world.compute([request_id])
    settlement = world.settlement()
    await world.tick(settlement, 2)
    assert (await world.statuses())[request_id] == "fulfilled"
    await set_up(world, NODE_INTERFACE, ("uint256",), 10 * GAS_PER_BYTE)
    await world.tick(settlement, 3)
    assert [intent["kind"] for intent in await world.intents()] == ["post"]
    assert "too dear" in settlement.status.delivering
    await set_up(world, NODE_INTERFACE, ("uint256",), GAS_PER_BYTE)
    await world.tick(settlement, 12)
    assert await world.answer_of(diary, request_id) == f"answer {request_id}".encode()
