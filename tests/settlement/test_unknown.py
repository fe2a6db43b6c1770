"""What no endpoint shows is resolved from the chain, and what is final is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.settlement.scripted import ScriptedRpc, answer
from tests.settlement.world import World


async def _sent(world: World, settlement: Any) -> int:
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    await settlement.step(await world.index())
    return request_id


def _hide(rpc: ScriptedRpc) -> None:
    """The endpoint shows nothing of any transaction that is mined or pooled."""
    rpc.always("receipt", answer(None))
    rpc.always("transaction_exists", answer(False))


def _show(rpc: ScriptedRpc) -> None:
    rpc.always("receipt", None)
    rpc.always("transaction_exists", None)


async def test_a_mined_post_that_no_endpoint_shows_is_known_by_its_events(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    request_id = await _sent(world, settlement)
    _hide(rpc)
    await world.tick(settlement, 8)
    (intent,) = await world.intents()
    assert (intent["state"], intent["outcome"]) == ("broadcast", None)
    # Later work does not wait for it.
    (later,) = await world.submit(1)
    await world.compute([later])
    await settlement.step(await world.index())
    assert len(await world.intents()) == 2
    _show(rpc)
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == {request_id: 1, later: 1}
    assert [i["outcome"] for i in await world.intents()] == ["done", "done"]
    assert await world.posted() == 2


async def test_a_refund_that_no_endpoint_shows_holds_up_no_later_one(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    (first,) = await world.submit(1, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    await settlement.step(await world.mine())
    _hide(rpc)
    await world.tick(settlement, 3)
    (second,) = await world.submit(1, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    await world.tick(settlement, 4)
    assert await world.statuses() == {first: "refunded", second: "refunded"}
    assert [intent["state"] for intent in await world.intents()] == ["broadcast"] * 2
    _show(rpc)
    await world.tick(settlement, 3)
    assert [intent["outcome"] for intent in await world.intents()] == ["done", "done"]


async def test_what_was_given_up_as_lost_and_shows_after_all_is_followed(world: World) -> None:
    """It reverted, so that no event names it, and the endpoint that lagged shows it later."""
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    results = "0x" + world.contracts.results.hex()
    code = await world.rpc.request("eth_getCode", [results, "latest"])
    request_id = await _sent(world, settlement)
    await world.rpc.request("anvil_setCode", [results, "0x5f5ffd"])  # reverts at once
    _hide(rpc)
    await world.mine()
    await world.rpc.request("anvil_setCode", [results, code])
    await settlement.step(await world.index())
    assert [intent["state"] for intent in await world.intents()] == ["unknown"]
    await world.tick(settlement)
    first, second = await world.intents()
    assert (first["state"], first["outcome"]) == ("cancelled", "nonce_taken")
    assert second["state"] != "planned"
    _show(rpc)
    await world.tick(settlement, 5)
    outcomes = [intent["outcome"] for intent in await world.intents()]
    assert outcomes == ["reverted", "done"]
    assert await world.fulfilled_events() == {request_id: 1}
    assert await world.items() == {request_id: ["reverted", "settled"]}


@pytest.mark.parametrize("slots_in_an_epoch", [1])
async def test_what_is_final_is_never_looked_at_again(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    request_id = await _sent(world, settlement)
    await world.tick(settlement, 5)
    (intent,) = await world.intents()
    assert (intent["state"], intent["outcome"]) == ("final", "done")
    asked = rpc.count("receipt")
    await world.tick(settlement, 3)
    assert rpc.count("receipt") == asked
    assert await world.fulfilled_events() == {request_id: 1}


@pytest.mark.parametrize("slots_in_an_epoch", [1])
async def test_a_nonce_that_a_foreign_transaction_took_for_good_is_final(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", answer(b""))  # it is nowhere
    settlement = world.settlement(rpc)
    request_id = await _sent(world, settlement)
    await world.poster_transfer(0)
    await world.tick(settlement, 2)
    first, _ = await world.intents()
    assert (first["state"], first["outcome"]) == ("cancelled", "nonce_taken")
    await world.tick(settlement, 4)
    outcomes = [(intent["state"], intent["outcome"]) for intent in await world.intents()]
    assert outcomes == [("final", "nonce_taken"), ("final", "done")]
    assert await world.fulfilled_events() == {request_id: 1}


@pytest.mark.parametrize("slots_in_an_epoch", [1])
async def test_a_chain_that_breaks_its_promise_of_finality_loses_nothing(world: World) -> None:
    settlement = world.settlement()
    request_id = await _sent(world, settlement)
    head = await world.index()
    await world.tick(settlement, 5)
    assert [intent["state"] for intent in await world.intents()] == ["final"]
    depth = (await world.index()).number - head.number
    await world.reorg(depth)
    assert await world.posted() == 0
    await world.tick(settlement, 8)
    assert await world.fulfilled_events() == {request_id: 1}
    assert await world.posted() == await world.pool.fetchval("SELECT next_nonce FROM node.sender")


@pytest.mark.parametrize("taken_back", [True, False])
async def test_where_the_header_was_forgotten_the_endpoint_tells(
    world: World, taken_back: bool
) -> None:
    """As after a time in which nobody watched."""
    settlement = world.settlement()
    before = await world.index()
    request_id = await _sent(world, settlement)
    await world.tick(settlement, 4)
    assert [intent["state"] for intent in await world.intents()] == ["confirmed"]
    (mined,) = await world.attempts()
    if taken_back:
        await world.reorg((await world.index()).number - before.number - 1)
    await world.mine(3)
    await world.pool.execute("DELETE FROM chain.block WHERE number <= $1", mined["mined_block"])
    await world.pool.execute("UPDATE chain.cursor SET finalized_number = block_number")
    await settlement.step(await world.index())
    (intent,) = await world.intents()
    assert intent["state"] == ("broadcast" if taken_back else "final")
    if taken_back:
        await world.tick(settlement, 4)
        assert await world.fulfilled_events() == {request_id: 1}


async def test_bytes_that_a_pool_lost_are_dropped_and_sent_again(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    request_id = await _sent(world, settlement)
    await world.rpc.request("anvil_dropAllTransactions", [])
    seen = []

    async def look_first(real: Any, raw: bytes) -> Any:
        seen.append([attempt["state"] for attempt in await world.attempts()])
        return await real(raw)

    rpc.then("send_raw_transaction", look_first)
    await settlement.step(await world.index())
    assert seen == [["dropped"]]
    assert [attempt["state"] for attempt in await world.attempts()] == ["broadcast"]
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == {request_id: 1}
