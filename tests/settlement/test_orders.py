"""`retry` and `cancel`: orders that a command writes down and settlement does."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.rpc import RpcError
from indexer.types import Wei
from inferd.chain.signers import LocalSigner
from inferd.settlement.engine import Settlement
from inferd.settlement.orders import Order, answer_of, give
from inferd.settlement.overview import load_overview
from tests.settlement.poison import Poison
from tests.settlement.scripted import ScriptedRpc, answer
from tests.settlement.world import GWEI, World


async def _ready(world: World, count: int = 1) -> list[int]:
    ids = await world.submit(count)
    await world.compute(ids)
    return ids


async def _ordered(world: World, settlement: Settlement, act: Order, intent_id: int) -> str | None:
    async with world.pool.acquire() as connection:
        order = await give(connection, act, intent_id, "a test")
        assert await answer_of(connection, order) is None
        await settlement.step(await world.index())
        return await answer_of(connection, order)


async def test_a_result_that_was_given_up_is_tried_again(world: World) -> None:
    ids = await _ready(world, 2)
    commitment = await world.pool.fetchval(
        "SELECT commitment FROM chain.request WHERE id = $1", ids[0]
    )
    poison = Poison(world, world.contracts.results, [commitment])
    await poison.take_effect()
    settlement = world.settlement(max_item_failures=2)
    await settlement.step(await world.index())
    await poison.tick(settlement, 10)
    assert await world.fulfilled_events() == {ids[1]: 1}
    async with world.pool.acquire() as connection:
        seen = await load_overview(connection, 5)
    (line,) = seen.given_up
    assert (line.given_up, line.diagnosis, line.outcome) == (
        (ids[0],),
        "RequestsPaused()",
        "reverted",
    )
    assert line.cost_wei is not None
    assert seen.live == ()
    said = await _ordered(world, settlement, Order.RETRY, line.id)
    assert said == "1 item tried again, alone."
    await world.tick(settlement, 4)  # what spoilt it is gone
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    again = await _ordered(world, settlement, Order.RETRY, line.id)
    assert again == f"Intent {line.id} has no item that was given up."


async def test_a_retried_item_has_as_many_tries_as_before(world: World) -> None:
    ids = await _ready(world)
    commitment = await world.pool.fetchval("SELECT commitment FROM chain.request")
    poison = Poison(world, world.contracts.results, [commitment])
    await poison.take_effect()
    settlement = world.settlement(max_item_failures=2)
    await settlement.step(await world.index())
    await poison.tick(settlement, 8)
    assert await world.items() == {ids[0]: ["reverted", "abandoned"]}
    await _ordered(world, settlement, Order.RETRY, 2)
    await poison.tick(settlement, 8)
    assert await world.items() == {ids[0]: ["retried", "retried", "reverted", "abandoned"]}


@pytest.mark.parametrize("tip_cap_wei", [10 * GWEI, GWEI])
async def test_a_stuck_intent_is_ended_by_nothing_at_its_nonce(
    world: World, tip_cap_wei: int
) -> None:
    """Also where the market's tip is the cap of tips: pools want an eighth more."""
    (request_id,) = await _ready(world)
    rpc = ScriptedRpc(world.rpc)
    rpc.always("max_priority_fee", answer(Wei(GWEI)))
    settlement = world.settlement(rpc, max_priority_fee_wei=tip_cap_wei)
    await settlement.step(await world.index())
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(50 * GWEI)])
    await world.tick(settlement)  # priced out
    said = await _ordered(world, settlement, Order.CANCEL, 1)
    assert said is not None
    assert said.startswith("A transaction without effect takes its nonce")
    async with world.pool.acquire() as connection:
        (line,) = (await load_overview(connection, 5)).live
    assert line.cancel_asked
    of_work, of_nothing = await world.attempts()
    for field in ("max_fee_wei", "priority_fee_wei"):
        assert 8 * of_nothing[field] >= 9 * of_work[field]
    for _ in range(6):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
        await world.tick(settlement)
    first, second = await world.intents()
    assert (first["state"], first["outcome"]) == ("cancelled", "cancelled_by_operator")
    assert second["outcome"] == "done"
    assert await world.fulfilled_events() == {request_id: 1}
    assert await world.posted() == 2
    assert await _ordered(world, settlement, Order.CANCEL, 2) == "It is over already (done)."
    assert await _ordered(world, settlement, Order.CANCEL, 99) == "There is no intent 99."


async def test_what_is_mined_or_of_another_key_cannot_be_cancelled(world: World) -> None:
    await _ready(world)
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc, confirmations=3)
    await settlement.step(await world.index())
    await world.tick(settlement)
    said = await _ordered(world, settlement, Order.CANCEL, 1)
    assert said == "Its transaction is mined: there is nothing to cancel."
    await _ready(world)
    await settlement.step(await world.index())
    rpc.always("send_raw_transaction", _refused)
    await _ready(world)
    await settlement.step(await world.index())
    world.poster = LocalSigner(world.anvil.config.account(4))
    successor = world.settlement(rpc)
    said = await _ordered(world, successor, Order.CANCEL, 3)
    assert said is not None
    assert said.startswith("It was signed by a key that is not here")


async def test_an_intent_without_a_signature_is_simply_ended(world: World) -> None:
    (request_id,) = await _ready(world)
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    rpc.then("nonce", _refused)  # it dies between plan and signature
    await settlement.step(await world.index())
    assert [intent["state"] for intent in await world.intents()] == ["planned"]
    said = await _ordered(world, settlement, Order.CANCEL, 1)
    assert said == "It was not signed yet, and will not be; its items are free."
    first, *_ = await world.intents()
    assert (first["state"], first["outcome"]) == ("cancelled", "cancelled_by_operator")
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == {request_id: 1}


async def _refused(real: Any, *args: Any) -> Any:
    raise RpcError(-32000, "forbidden")


async def test_an_order_survives_a_daemon_that_is_not_there(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    rpc.always("transaction_exists", answer(True))
    async with world.pool.acquire() as connection:
        order = await give(connection, Order.RETRY, 1, "a test")
    settlement = world.settlement(rpc)
    await settlement.step(await world.index())
    async with world.pool.acquire() as connection:
        assert await answer_of(connection, order) == "Intent 1 has no item that was given up."
