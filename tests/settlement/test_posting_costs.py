"""What a post costs by what is in it, what it may offer, and what the decision is told."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.node.posting_settings import PostingSettings
from inferd.protocol import calls
from inferd.protocol.request import Commitment, Delivery
from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.typed_data import CompactSignature
from inferd.settlement.batch import load_base_fees, load_ready
from inferd.settlement.delivery_gas import DELIVER_GAS, claim_gas
from inferd.settlement.engine import Settlement
from inferd.settlement.fees import Fees, within
from inferd.settlement.settings import SettlementSettings
from scheduler.gas import FORECAST_BLOCKS, next_base_fee
from scheduler.model import DeliveryKind
from tests.settlement.world import GWEI, POSTER_BPS, World

WEI = st.integers(0, 10**15)


async def test_the_gas_of_a_mixed_post_is_learnt_with_its_deliveries(world: World) -> None:
    first = await world.submit(2)  # finds fresh slots, which later posts do not
    await world.compute(first)
    settlement = world.settlement()
    await world.tick(settlement, 4)
    diary = await world.new_diary()
    ids = [
        *await world.submit(2),
        *await world.submit(3, delivery=Delivery.STORED),
        await world.ask_by(diary),
    ]
    await world.compute(ids[:4])
    await world.compute(ids[4:], 1)
    await world.tick(settlement, 4)
    rows = await world.pool.fetch("SELECT * FROM node.gas_observation ORDER BY seen_at")
    seen = [(row["groups"], row["items"], row["stored"], row["callbacks"]) for row in rows]
    assert seen == [(1, 2, 0, 0), (2, 6, 3, 1)]
    model = await settlement.gas_model()
    assert model.of(2, 6, stored=3, callbacks=1) == pytest.approx(rows[1]["gas_used"], rel=0.02)


async def test_a_post_with_a_request_that_was_forgotten_teaches_nothing(world: World) -> None:
    ids = await world.submit(2)
    await world.compute(ids)
    settlement = world.settlement(confirmations=2)
    await world.tick(settlement, 2)
    await world.pool.execute("DELETE FROM chain.request WHERE id = $1", ids[0])
    await world.tick(settlement, 3)
    assert [intent["state"] for intent in await world.intents()] == ["confirmed"]
    assert await world.pool.fetchval("SELECT count(*) FROM node.gas_observation") == 0


async def test_what_is_ready_says_how_it_is_delivered_and_what_follows(world: World) -> None:
    diary = await world.new_diary()
    event, stored = await world.submit(1), await world.submit(1, delivery=Delivery.STORED)
    callback = await world.ask_by(diary)
    await world.compute([*event, *stored, callback], output=b"four")
    found = await load_ready(
        world.pool, await world.index(), SettlementSettings(POSTER_BPS), max_gas=10**7
    )
    asked = await world.pool.fetchrow("SELECT * FROM chain.request WHERE id = $1", callback)
    call_gas = claim_gas(asked["callback_gas_limit"], len(asked["input"]) + len(b"four"))
    assert {one.ready.key.id: (one.ready.delivery, one.ready.later_gas) for one in found} == {
        event[0]: (DeliveryKind.EVENT, 0),
        stored[0]: (DeliveryKind.STORED, 0),
        callback: (DeliveryKind.CALLBACK, DELIVER_GAS + call_gas),
    }


async def test_an_output_in_a_file_is_posted_and_not_called_with(world: World) -> None:
    """Files are for outputs that are too large for any call."""
    diary = await world.new_diary()
    (event,), callback = await world.submit(1), await world.ask_by(diary)
    await world.compute([event, callback])
    await world.pool.execute("UPDATE node.result SET output = NULL, file_bytes = 300_000")
    found = await load_ready(
        world.pool, await world.index(), SettlementSettings(POSTER_BPS), max_gas=10**8
    )
    assert {one.ready.key.id: one.deliverable for one in found} == {event: True, callback: False}
    settlement = world.settlement()
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == {event: 1}


async def test_a_post_offers_no_more_for_gas_than_it_earns(world: World) -> None:
    """Its fee pays for its gas at today's price, and not at twice that, which others offer."""
    head = await world.rpc.header("latest")
    assert head is not None
    base_fee_wei = next_base_fee(head.base_fee_wei, head.gas_used, head.gas_limit)
    fee_wei = 120_000 * base_fee_wei * 10_000 // POSTER_BPS // GWEI * GWEI
    ids = await world.submit(1, fee_wei=fee_wei)
    await world.compute(ids)
    settlement = world.settlement(max_priority_fee_wei=0)
    await settlement.step(await world.index())
    (attempt,) = await world.attempts()
    (intent,) = await world.intents()
    inputs = intent["inputs"]
    revenue_wei = fee_wei * POSTER_BPS // 10_000
    assert int(inputs["revenue_wei"]) == revenue_wei
    assert attempt["max_fee_wei"] * int(inputs["estimated_gas"]) <= revenue_wei
    assert int(inputs["next_base_fee_wei"]) <= attempt["max_fee_wei"]
    assert attempt["max_fee_wei"] < 2 * int(inputs["next_base_fee_wei"])
    assert int(inputs["fee_cap_wei"]) >= attempt["max_fee_wei"]
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == {ids[0]: 1}


async def test_a_post_offers_no_more_than_it_and_its_calls_earn(world: World) -> None:
    diary = await world.new_diary()
    head = await world.rpc.header("latest")
    assert head is not None
    fee_wei = 900_000 * (head.base_fee_wei + GWEI) * 10_000 // POSTER_BPS // GWEI * GWEI
    callback = await world.ask_by(diary, fee_wei=fee_wei)
    await world.compute([callback], output=b"four")
    (ready,) = await load_ready(
        world.pool, await world.index(), SettlementSettings(POSTER_BPS), max_gas=10**7
    )
    settlement = world.settlement()
    await settlement.step(await world.index())
    await dear_blocks(world, settlement, 20 * head.base_fee_wei)
    (intent,) = await world.intents()
    gas = int(intent["inputs"]["estimated_gas"]) + ready.ready.later_gas
    revenue_wei = fee_wei * POSTER_BPS // 10_000
    offered = [one["max_fee_wei"] for one in await world.attempts()]
    assert offered
    assert all(fee * gas <= revenue_wei for fee in offered)


async def a_post_that_is_priced_out(world: World) -> tuple[Settlement, list[int], int]:
    """Its settlement, the request, and what it earns in wei; each block is 20 times as dear."""
    head = await world.rpc.header("latest")
    assert head is not None
    fee_wei = 120_000 * (head.base_fee_wei + GWEI) * 10_000 // POSTER_BPS // GWEI * GWEI
    ids = await world.submit(1, fee_wei=fee_wei)
    await world.compute(ids)
    settlement = world.settlement()
    await settlement.step(await world.index())
    await dear_blocks(world, settlement, 20 * head.base_fee_wei)
    return settlement, ids, fee_wei * POSTER_BPS // 10_000


async def dear_blocks(world: World, settlement: Settlement, base_fee_wei: int) -> None:
    for _ in range(5):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(base_fee_wei)])
        await world.tick(settlement)


async def test_a_replacement_offers_no_more_than_the_post_earns(world: World) -> None:
    settlement, ids, revenue_wei = await a_post_that_is_priced_out(world)
    (intent,) = await world.intents()
    gas = int(intent["inputs"]["estimated_gas"])
    assert all(one["max_fee_wei"] * gas <= revenue_wei for one in await world.attempts())
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI // 10)])
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == {ids[0]: 1}


async def test_a_post_that_holds_up_another_makes_room_or_is_raised_a_little(world: World) -> None:
    settlement, ids, revenue_wei = await a_post_that_is_priced_out(world)
    (intent,) = await world.intents()
    gas = int(intent["inputs"]["estimated_gas"])
    more = await world.submit(1)
    await world.compute(more)
    await world.tick(settlement)
    head = await world.rpc.header("latest")
    assert head is not None
    await dear_blocks(world, settlement, head.base_fee_wei)
    assert dict.fromkeys(more, 1).items() <= (await world.fulfilled_events()).items()
    first = [one for one in await world.attempts() if one["nonce"] == 0]
    (mined,) = [one for one in first if one["gas_used"]]
    lost_wei = int(mined["gas_used"] * mined["effective_gas_price_wei"])
    if mined["gas_used"] > 21_000:
        lost_wei -= revenue_wei
    # No more than the cheapest way out costs, a transaction without effect.
    assert lost_wei <= 21_000 * mined["effective_gas_price_wei"] < gas * mined["max_fee_wei"]
    for _ in range(6):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI // 10)])
        await world.tick(settlement)
    assert await world.fulfilled_events() == dict.fromkeys([*ids, *more], 1)


async def test_the_forecast_is_made_of_the_blocks_up_to_the_head(world: World) -> None:
    for _ in range(FORECAST_BLOCKS + 3):
        await world.mine()
    head = await world.index()
    fees_wei = await load_base_fees(world.pool, head)
    assert len(fees_wei) == FORECAST_BLOCKS
    assert fees_wei[-1] == head.base_fee_wei
    rows = await world.pool.fetch("SELECT base_fee_wei FROM chain.block ORDER BY number")
    assert list(fees_wei) == [int(row["base_fee_wei"]) for row in rows][-FORECAST_BLOCKS:]
    replaced = dataclasses.replace(head, hash=type(head.hash)(bytes(32)))
    assert await load_base_fees(world.pool, replaced) == ()


async def test_the_decision_hears_of_a_fee_above_its_recent_mean(world: World) -> None:
    ids = await world.submit(1)
    await world.compute(ids, age_s=3_600)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(4 * GWEI)])
    settlement = world.settlement()
    await world.tick(settlement)
    (intent,) = await world.intents()
    assert int(intent["inputs"]["expected_fall_wei"]) > 0


@given(WEI, WEI, WEI)
def test_fees_within_a_cap(max_fee_wei: int, tip_wei: int, cap_wei: int) -> None:
    fees = Fees(max(max_fee_wei, tip_wei), tip_wei)
    capped = within(fees, cap_wei)
    assert capped.priority_fee_wei <= capped.max_fee_wei <= max(cap_wei, 0)
    assert capped == fees or fees.max_fee_wei > cap_wei


def test_the_largest_post_that_may_be_configured_fits_into_a_transaction() -> None:
    """Clients take at most 131,072 bytes. Each result in a group of its own is the worst."""
    field = PostingSettings.model_fields["max_results"]
    (most,) = [rule.le for rule in field.metadata if hasattr(rule, "le")]
    signature = CompactSignature(b"\x01" * 64)
    groups = [
        (pack_items([ResultItem(n, Commitment(b"\x03" * 20), b"\x04" * 32)]), (signature,))
        for n in range(most)
    ]
    assert len(calls.post(groups, bytes(32))) < 131_072 - 500
