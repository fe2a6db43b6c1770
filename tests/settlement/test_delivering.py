"""Outputs on their way to the contracts that asked for them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from indexer.rpc import RpcError
from indexer.types import Address, Hash32
from inferd.protocol.request import Commitment, Delivery, ModelId, RequestParams
from inferd.settlement.callbacks import Callback, fitting
from inferd.settlement.costs import delivery_gas
from inferd.settlement.settings import PausedReason
from tests.settlement.scripted import ScriptedRpc
from tests.settlement.world import ETHER, GWEI, World

REVERT_CODE = "0x60006000fd"
FICKLE_CODE = "0x3a156009575b6005565b00"
"""Returns where gas is free, as it is for estimates; elsewhere it never ends."""


async def test_the_contract_that_asked_is_called_once_the_post_is_confirmed(world: World) -> None:
    diary = await world.new_diary()
    ids = [await world.ask_by(diary) for _ in range(3)]
    await world.compute(ids)
    settlement = world.settlement()
    await world.tick(settlement, 2)
    assert set((await world.statuses()).values()) == {"fulfilled"}
    assert [await world.answer_of(diary, one) for one in ids] == [b""] * 3
    await world.tick(settlement, 5)
    assert [await world.answer_of(diary, one) for one in ids] == [
        f"answer {one}".encode() for one in ids
    ]
    post, deliver = await world.intents()
    assert (post["kind"], deliver["kind"]) == ("post", "deliver")
    assert deliver["state"] == "confirmed"
    assert settlement.status.items_by_outcome == {"settled": 3, "delivered": 3}
    assert settlement.status.callbacks_owed == 0
    rows = await world.pool.fetch("SELECT callback_delivered_block FROM chain.request")
    assert all(row["callback_delivered_block"] for row in rows)


async def test_a_contract_that_fails_harms_no_other_and_is_not_tried_again(world: World) -> None:
    good, bad = await world.new_diary(), await world.new_diary()
    ids = [await world.ask_by(bad), await world.ask_by(good)]
    await world.compute(ids)
    await world.set_code(bad, REVERT_CODE)
    settlement = world.settlement()
    await world.tick(settlement, 9)
    assert await world.answer_of(good, ids[1]) == f"answer {ids[1]}".encode()
    outcomes = settlement.status.items_by_outcome
    assert outcomes == {"settled": 2, "delivered": 1, "callback_failed": 1}
    assert len(await world.intents()) == 2
    failed = await world.pool.fetchrow("SELECT * FROM chain.request WHERE id = $1", ids[0])
    assert (failed["callback_failures"], failed["callback_failure"]) == (1, b"")
    assert failed["callback_delivered_block"] is None


async def test_a_delivery_undone_by_a_reorganisation_is_made_again(world: World) -> None:
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    await world.compute([request_id])
    settlement = world.settlement()
    while not await world.answer_of(diary, request_id):
        await world.tick(settlement)
    await world.reorg(1)
    assert await world.answer_of(diary, request_id) == b""
    await world.tick(settlement, 6)
    assert await world.answer_of(diary, request_id) == f"answer {request_id}".encode()
    assert settlement.status.items_by_outcome["delivered"] == 1


async def test_settlement_and_delivery_undone_together_come_again_in_order(world: World) -> None:
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    await world.compute([request_id])
    settlement = world.settlement()
    asked_at = (await world.index()).number
    while not await world.answer_of(diary, request_id):
        await world.tick(settlement)
    await world.reorg((await world.index()).number - asked_at)
    assert (await world.statuses())[request_id] == "pending"
    await world.tick(settlement, 12)
    assert (await world.statuses())[request_id] == "fulfilled"
    assert await world.answer_of(diary, request_id) == f"answer {request_id}".encode()
    assert await world.fulfilled_events() == {request_id: 1}


async def test_what_no_transaction_can_hold_blocks_no_other(world: World) -> None:
    diary, emitter = await world.new_diary(), await world.new_emitter()
    greedy = await world.ask_by(diary)
    wordy = await world.ask_by_emitter(emitter)
    modest = await world.ask_by_emitter(emitter)
    await world.compute([greedy, modest])
    await world.compute([wordy], output=bytes(150_000))
    settlement = world.settlement(max_gas=600_000)
    await world.tick(settlement, 9)
    assert await world.delivered() == [modest]
    assert settlement.status.callbacks_owed == settlement.status.callbacks_left == 2
    assert {one: outcomes[1:] for one, outcomes in (await world.items()).items()} == {
        greedy: [],
        wordy: [],
        modest: ["delivered"],
    }


async def test_outputs_that_are_too_much_together_go_apart(world: World) -> None:
    emitter = await world.new_emitter()
    ids = [await world.ask_by_emitter(emitter, fee_wei=ETHER) for _ in range(3)]
    await world.set_code(emitter, "0x00")  # its own event of so many bytes is not the subject
    await world.compute(ids, output=bytes(50_000))
    settlement = world.settlement(max_gas=16_000_000)
    await world.tick(settlement, 9)
    assert await world.delivered() == ids
    sizes = [len(i["calldata"]) for i in await world.intents() if i["kind"] == "deliver"]
    assert len(sizes) == 2
    assert max(sizes) < 128 * 1024


async def test_consumers_that_hide_what_they_burn_take_no_gas_from_others(world: World) -> None:
    fickle, good = await world.new_diary(), await world.new_diary()
    ids = [*[await world.ask_by(fickle) for _ in range(3)], await world.ask_by(good)]
    await world.compute(ids)
    await world.set_code(fickle, FICKLE_CODE)
    settlement = world.settlement()
    await world.tick(settlement, 9)
    assert settlement.status.failed_transactions == 0
    assert await world.delivered() == ids[3:]
    assert settlement.status.items_by_outcome == {
        "settled": 4,
        "callback_failed": 3,
        "delivered": 1,
    }


async def test_a_delivery_that_costs_more_than_its_fee_earns_waits_for_cheaper_gas(
    world: World,
) -> None:
    diary, emitter = await world.new_diary(), await world.new_emitter()
    dear = await world.ask_by(diary, fee_wei=ETHER // 1_000)
    cheap = await world.ask_by_emitter(emitter, fee_wei=ETHER // 1_000)
    await world.compute([dear, cheap])
    settlement = world.settlement()
    await world.tick(settlement, 9)
    assert await world.delivered() == [cheap]
    assert (settlement.status.callbacks_owed, settlement.status.callbacks_left) == (1, 1)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", ["0x1"])
    await world.tick(world.settlement(max_priority_fee_wei=GWEI // 10), 9)
    assert await world.delivered() == [dear, cheap]


async def test_one_that_cannot_be_estimated_is_left_out_for_the_others(world: World) -> None:
    emitter = await world.new_emitter()
    ids = [await world.ask_by_emitter(emitter) for _ in range(3)]
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)

    async def none_of_the_first(real: Any, sender: Any, target: Any, data: bytes) -> Any:
        if f"answer {ids[0]}".encode() in data:
            raise RpcError(3, "execution reverted")
        return await real(sender, target, data)

    rpc.always("estimate_gas", none_of_the_first)
    settlement = world.settlement(rpc)
    await world.tick(settlement, 9)
    assert await world.delivered() == ids[1:]
    rpc.always("estimate_gas", None)
    await world.tick(settlement, 34)
    assert await world.delivered() == ids


async def test_with_little_money_fewer_go_at_once(world: World) -> None:
    diary = await world.new_diary()
    ids = [await world.ask_by(diary) for _ in range(3)]
    await world.compute(ids)
    settlement = world.settlement()
    while set((await world.statuses()).values()) != {"fulfilled"}:
        await world.tick(settlement)
    await world.set_balance(6 * 10**6 * GWEI)
    await world.tick(settlement, 4)
    assert 1 <= len(await world.delivered()) < 3
    await world.set_balance(0)
    await world.tick(settlement, 4)
    assert settlement.status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    await world.set_balance(ETHER)
    await world.tick(settlement, 9)
    assert await world.delivered() == ids


async def test_a_failure_undone_by_a_reorganisation_is_tried_again(world: World) -> None:
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    await world.compute([request_id])
    code = await world.rpc.code(diary)
    await world.set_code(diary, REVERT_CODE)
    settlement = world.settlement()
    failures = "SELECT callback_failures FROM chain.request"
    while not await world.pool.fetchval(failures):
        await world.tick(settlement)
    await world.reorg(1)
    assert await world.pool.fetchval(failures) == 0
    await world.set_code(diary, "0x" + code.hex())
    await world.tick(settlement, 6)
    assert await world.delivered() == [request_id]
    assert await world.pool.fetchval(failures) == 0


async def test_somebody_else_delivered_first(world: World) -> None:
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    await world.compute([request_id])
    settlement = world.settlement()
    while (await world.statuses())[request_id] != "fulfilled":
        await world.tick(settlement)
    await world.deliver_by_a_stranger(diary, request_id)
    await world.tick(settlement, 6)
    assert {intent["kind"] for intent in await world.intents()} == {"post"}


def callback(number: int, gas: int, size: int, *, suspect: bool) -> Callback:
    params = RequestParams(
        ModelId(bytes(32)), 0, 1, 0, b"", callback_gas_limit=gas, delivery=Delivery.CALLBACK
    )
    return Callback(
        number,
        Commitment(bytes(20)),
        Address(bytes(20)),
        params,
        Hash32(bytes(32)),
        b"x" * size,
        0,
        suspect,
    )


@given(
    st.lists(st.tuples(st.integers(1, 8_000_000), st.integers(0, 5_000), st.booleans()), max_size=9)
)
def test_fitting__any__within_the_gas_and_one_suspect_alone(
    drawn: list[tuple[int, int, bool]],
) -> None:
    callbacks = [callback(i, gas, size, suspect=bad) for i, (gas, size, bad) in enumerate(drawn)]
    chosen = fitting(callbacks, 16_777_216)
    assert sum(one.gas for one in chosen) <= 16_777_216
    assert bool(chosen) == bool(callbacks)
    if any(one.suspect for one in chosen):
        assert len(chosen) == 1
        assert all(one.suspect for one in callbacks)


def test_delivery_gas__grows_with_what_is_asked() -> None:
    event = delivery_gas(Delivery.EVENT, 0, 100, 10)
    stored = delivery_gas(Delivery.STORED, 0, 100, 10)
    small = delivery_gas(Delivery.CALLBACK, 1, 100, 10)
    large = delivery_gas(Delivery.CALLBACK, 630_000, 100, 10)
    assert event == 0 < stored < small
    assert large - small >= 630_000 - 1 + 10_000
