"""Endpoints that lie or fall silent, foreign transactions, empty pockets, dear gas."""

from __future__ import annotations

from typing import Any

from inferd.settlement.settings import PausedReason
from inferd.settlement.state import LIVE_SQL
from tests.settlement.scripted import ScriptedRpc, answer, answer_lost, error, no_answer
from tests.settlement.world import ETHER, GWEI, World


async def _one_ready(world: World, *, fee_wei: int = ETHER // 100) -> int:
    (request_id,) = await world.submit(1, fee_wei=fee_wei)
    await world.compute([request_id])
    return request_id


async def _assert_settled_by_one_transaction(world: World, request_id: int) -> None:
    assert (await world.statuses())[request_id] == "fulfilled"
    assert await world.fulfilled_events() == {request_id: 1}
    assert await world.posted() == 1
    states = [intent["state"] for intent in await world.intents()]
    assert states == ["confirmed"]


async def test_answer_lost_after_the_node_took_it(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", answer_lost)
    settlement = world.settlement(rpc)
    head = await world.index()
    await settlement.step(head)
    assert settlement.status.paused_reason is PausedReason.RPC_TROUBLE
    (attempt,) = await world.attempts()
    assert attempt["state"] == "unknown"
    assert [intent["state"] for intent in await world.intents()] == ["unknown"]
    await settlement.step(head)  # the pool has it: nothing is sent
    (attempt,) = await world.attempts()
    assert attempt["state"] == "broadcast"
    await world.tick(settlement, 3)
    await _assert_settled_by_one_transaction(world, request_id)
    assert rpc.count("send_raw_transaction") == 1


async def test_already_known_is_success(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)

    async def takes_it_and_says_known(real: Any, raw: bytes) -> Any:
        await real(raw)
        await error("already known")(real)

    rpc.then("send_raw_transaction", takes_it_and_says_known)
    settlement = world.settlement(rpc)
    await settlement.step(await world.index())
    assert settlement.status.last_error is None
    assert (await world.attempts())[0]["state"] == "broadcast"
    await world.tick(settlement, 3)
    await _assert_settled_by_one_transaction(world, request_id)


async def test_nonce_too_low_for_our_own_mined_transaction(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", answer_lost)
    settlement = world.settlement(rpc)
    head = await world.index()
    await settlement.step(head)
    await world.rpc.request("anvil_mine", [1])
    # The head that is known is the old one, and the node does not show the receipt yet.
    rpc.then("receipt", answer(None))
    rpc.then("transaction_exists", answer(False))
    await settlement.step(head)
    (attempt,) = await world.attempts()
    assert "nonce too low" in attempt["error"]
    assert attempt["state"] == "unknown"
    await world.index()
    await world.tick(settlement, 2)
    await _assert_settled_by_one_transaction(world, request_id)


async def test_what_is_mined_above_the_head_is_not_replaced(world: World) -> None:
    request_id = await _one_ready(world)
    settlement = world.settlement(resend_after_blocks=1)
    await settlement.step(await world.index())
    (attempt,) = await world.attempts()
    tx_hash = "0x" + attempt["hash"].hex()
    await world.rpc.request("anvil_dropTransaction", [tx_hash])
    head = await world.mine()
    await world.rpc.send_raw_transaction(attempt["raw"])
    await world.rpc.request("anvil_mine", [1])
    # Overdue at the head that is known; the block after it has it.
    await settlement.step(head)
    assert len(await world.attempts()) == 1
    assert settlement.status.last_error is None
    await world.index()
    await world.tick(settlement, 2)
    await _assert_settled_by_one_transaction(world, request_id)


async def test_receipt_null_then_present(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    await world.tick(settlement)
    rpc.always("receipt", answer(None))
    await world.tick(settlement, 5)
    # The nonce is spent for good, but the node still knows the hash: it is ours.
    assert [intent["state"] for intent in await world.intents()] == ["broadcast"]
    rpc.always("receipt", None)
    await world.tick(settlement)
    await _assert_settled_by_one_transaction(world, request_id)


async def test_receipt_of_a_block_off_the_branch_is_no_receipt(world: World) -> None:
    await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    await world.tick(settlement)

    async def elsewhere(real: Any, tx_hash: bytes) -> Any:
        found = await real(tx_hash)
        if found is None:
            return None
        return type(found)(
            **{
                **{name: getattr(found, name) for name in found.__struct_fields__},
                "block_hash": b"\x99" * 32,
            }
        )

    rpc.always("receipt", elsewhere)
    await world.tick(settlement, 3)
    assert [intent["state"] for intent in await world.intents()] == ["broadcast"]


async def test_no_funds_before_signing_then_funded(world: World) -> None:
    request_id = await _one_ready(world)
    await world.set_balance(1000)
    settlement = world.settlement()
    await world.tick(settlement, 3)
    assert settlement.status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    assert settlement.status.ready == 1
    assert settlement.status.balance_wei == 1000
    assert await world.intents() == []
    await world.set_balance(ETHER)
    await world.tick(settlement, 4)
    assert settlement.status.paused_reason is None
    await _assert_settled_by_one_transaction(world, request_id)


async def test_no_funds_after_signing_then_funded(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", no_answer)
    settlement = world.settlement(rpc)
    await world.tick(settlement)
    (before,) = await world.attempts()
    await world.set_balance(1000)
    await world.tick(settlement, 3)
    assert settlement.status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    assert settlement.status.in_flight == 1
    await world.set_balance(ETHER)
    await world.tick(settlement, 4)
    (after,) = await world.attempts()
    assert after["raw"] == before["raw"]
    await _assert_settled_by_one_transaction(world, request_id)


async def test_no_funds_for_a_refund(world: World) -> None:
    await world.submit(1, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    await world.set_balance(1000)
    settlement = world.settlement()
    await world.tick(settlement, 2)
    assert settlement.status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    assert await world.intents() == []


async def test_funds_are_counted_for_all_that_is_in_flight(world: World) -> None:
    ids = await world.submit(2, batchable=False)
    await world.compute(ids)
    settlement = world.settlement()
    head = await world.index()
    most_wei = 200_000 * (2 * head.base_fee_wei + GWEI)  # of one post
    await world.set_balance(most_wei)
    await settlement.step(head)
    assert settlement.status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    assert settlement.status.in_flight == 1
    (attempt,) = await world.attempts()
    assert attempt["max_fee_wei"] * attempt["gas_limit"] <= most_wei
    await world.set_balance(ETHER)
    await world.tick(settlement, 5)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_endpoint_down_for_a_while(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    rpc.always("balance", no_answer)
    await world.tick(settlement, 2)
    assert settlement.status.paused_reason is PausedReason.RPC_TROUBLE
    assert settlement.status.last_error == "nobody answers"
    rpc.always("balance", None)
    await world.tick(settlement, 4)
    assert settlement.status.last_error is None
    await _assert_settled_by_one_transaction(world, request_id)


async def test_refused_for_an_unknown_reason_is_sent_again(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", error("the moon is in the wrong phase"))
    settlement = world.settlement(rpc)
    await settlement.step(await world.index())
    assert settlement.status.paused_reason is PausedReason.TRANSACTION_REFUSED
    await world.tick(settlement, 4)
    await _assert_settled_by_one_transaction(world, request_id)


async def test_base_fee_spike_is_answered_by_a_dearer_transaction(world: World) -> None:
    request_id = await _one_ready(world, fee_wei=ETHER)
    settlement = world.settlement()
    await settlement.step(await world.index())
    (first,) = await world.attempts()
    for _ in range(4):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(20 * GWEI)])
        await world.tick(settlement)
    attempts = await world.attempts()
    assert len(attempts) >= 2
    assert {attempt["nonce"] for attempt in attempts} == {first["nonce"]}
    assert attempts[1]["max_fee_wei"] * 8 >= attempts[0]["max_fee_wei"] * 9
    await world.tick(settlement, 3)
    await _assert_settled_by_one_transaction(world, request_id)
    states = sorted(attempt["state"] for attempt in await world.attempts())
    assert states == ["mined", *["replaced"] * (len(states) - 1)]


async def test_old_bytes_are_sent_again_where_the_price_is_over_the_cap(world: World) -> None:
    await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc, max_fee_per_gas_wei=3 * GWEI)
    await settlement.step(await world.index())
    for _ in range(5):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(20 * GWEI)])
        await world.tick(settlement)
    (attempt,) = await world.attempts()
    assert attempt["sends"] >= 2
    assert settlement.status.in_flight == 1
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
    await world.tick(settlement, 3)
    assert [intent["state"] for intent in await world.intents()] == ["confirmed"]


async def test_underpriced_answers_raise_the_price_until_it_is_taken(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", *[error("replacement transaction underpriced")] * 2)
    settlement = world.settlement(rpc)
    await world.tick(settlement, 6)
    attempts = await world.attempts()
    assert len(attempts) == 3
    assert len({attempt["nonce"] for attempt in attempts}) == 1
    await _assert_settled_by_one_transaction(world, request_id)


async def test_foreign_transaction_takes_our_nonce(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", no_answer)
    settlement = world.settlement(rpc)
    await settlement.step(await world.index())
    await world.poster_transfer(0)
    await world.tick(settlement)
    # One block deep it may still be reorganised away: nothing new is signed.
    assert len(await world.intents()) == 1
    await world.tick(settlement, 5)
    first, second = await world.intents()
    assert (first["state"], first["outcome"]) == ("cancelled", "nonce_taken")
    assert second["state"] == "confirmed"
    old, new = await world.attempts()
    assert (old["nonce"], old["state"]) == (0, "dropped")
    assert (new["nonce"], new["state"]) == (1, "mined")
    assert await world.fulfilled_events() == {request_id: 1}


async def test_nonce_that_a_reorg_took_from_a_foreign_transaction_is_filled(world: World) -> None:
    request_id = await _one_ready(world)
    before = await world.index()
    await world.poster_transfer(0)
    await world.mine()
    settlement = world.settlement()
    await settlement.step(head := await world.index())
    (attempt,) = await world.attempts()
    assert attempt["nonce"] == 1
    await world.rpc.request("anvil_reorg", [head.number - before.number, []])
    assert await world.posted() == 0
    await world.tick(settlement, 8)
    post, filler = await world.intents()
    assert (filler["reason"], filler["state"]) == ("fill_nonce_gap", "confirmed")
    assert post["state"] == "confirmed"
    assert await world.posted() == 2
    assert await world.fulfilled_events() == {request_id: 1}


async def test_a_nonce_that_was_spent_above_the_head_is_no_gap(world: World) -> None:
    request_id = await _one_ready(world)
    head = await world.index()
    await world.poster_transfer(0)
    await world.rpc.request("anvil_mine", [1])  # and not indexed yet
    settlement = world.settlement()
    for _ in range(3):
        await settlement.step(head)
    (attempt,) = await world.attempts()
    assert attempt["nonce"] == 1
    await world.tick(settlement, 3)
    assert len(await world.intents()) == 1
    assert await world.posted() == 2
    assert await world.fulfilled_events() == {request_id: 1}


async def test_the_last_nonce_is_filled_though_no_other_follows(world: World) -> None:
    """It was lost to a foreign transaction, its result is settled, and a reorganisation gives the
    nonce back: the next post would wait for it."""
    request_id = await _one_ready(world)
    settlement = world.settlement()
    await settlement.step(await world.index())
    await world.rpc.request("anvil_dropAllTransactions", [])
    await world.post_by_a_stranger(request_id)
    before = await world.index()
    await world.poster_transfer(0)
    await world.tick(settlement, 4)
    assert [intent["outcome"] for intent in await world.intents()] == ["nonce_taken"]
    await world.reorg((await world.index()).number - before.number)
    assert await world.posted() == 0
    await world.tick(settlement, 8)
    assert await world.posted() == 1
    assert not await world.pool.fetchval(f"SELECT count(*) FROM node.tx_intent WHERE {LIVE_SQL}")
