"""Outputs on their way to the contracts that asked for them."""

from __future__ import annotations

from eth_utils.address import to_checksum_address

from inferd.protocol.request import Delivery
from inferd.settlement.delivery_gas import later_gas
from tests.settlement.world import World

REVERT_CODE = "0x60006000fd"


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
    await world.rpc.request("anvil_setCode", [to_checksum_address(bad), REVERT_CODE])
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


async def test_somebody_else_delivered_first(world: World) -> None:
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    await world.compute([request_id])
    settlement = world.settlement()
    while (await world.statuses())[request_id] != "fulfilled":
        await world.tick(settlement)
    await world.hand_over(request_id)
    assert await world.answer_of(diary, request_id) == f"answer {request_id}".encode()
    await world.tick(settlement, 6)
    assert {intent["kind"] for intent in await world.intents()} == {"post"}


def test_later_gas__grows_with_what_is_asked() -> None:
    event = later_gas(Delivery.EVENT, 0, 100, 10)
    stored = later_gas(Delivery.STORED, 0, 100, 10)
    small = later_gas(Delivery.CALLBACK, 1, 100, 10)
    large = later_gas(Delivery.CALLBACK, 630_000, 100, 10)
    assert event == stored == 0 < small
    assert large - small >= 630_000 - 1 + 10_000
