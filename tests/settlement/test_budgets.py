"""Prices over time: budgets hold on replacements, and what is in the way makes room."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.types import HOUR_S, Address, Hash32
from inferd.node.spending import load_budgets
from inferd.settlement.engine import Settlement
from inferd.settlement.fees import Fees
from inferd.settlement.purse import Purse, spent_on_work_wei
from inferd.settlement.records import Attempt, Intent
from inferd.settlement.settings import PausedReason, SettlementSettings
from inferd.settlement.state import AttemptState, IntentState
from tests.settlement.scripted import ScriptedRpc, answer
from tests.settlement.world import ETHER, GWEI, World

FEE = ETHER // 100


async def _ready(world: World, fee_wei: int = FEE, lifetime_s: int = 3_600) -> int:
    (request_id,) = await world.submit(1, fee_wei=fee_wei, lifetime_s=lifetime_s)
    await world.compute([request_id])
    return request_id


async def _blocks(world: World, settlement: Settlement, count: int, base_fee_wei: int) -> None:
    for _ in range(count):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(base_fee_wei)])
        await world.tick(settlement)


async def _committed_wei(world: World) -> int:
    async with world.pool.acquire() as connection:
        return await spent_on_work_wei(connection, HOUR_S)


async def _newest_offer_wei(world: World) -> int:
    return max(one["max_fee_wei"] * one["gas_limit"] for one in await world.attempts())


async def test_a_budget_of_an_hour_holds_for_replacements(world: World) -> None:
    request_id = await _ready(world, fee_wei=ETHER)
    budget_wei = 4 * 10**15
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc, cap_wei_per_hour=budget_wei)
    await settlement.step(await world.index())
    for base_fee_wei in (5 * GWEI, 20 * GWEI, 40 * GWEI):  # each prices out what was offered before
        await _blocks(world, settlement, 1, base_fee_wei)
        assert await _newest_offer_wei(world) == await _committed_wei(world) <= budget_wei
    assert len(await world.attempts()) == 2
    sends = rpc.count("send_raw_transaction")
    await _blocks(world, settlement, 3, 40 * GWEI)
    assert rpc.count("send_raw_transaction") > sends  # the old bytes, kept alive
    await _blocks(world, settlement, 4, GWEI)
    assert await world.fulfilled_events() == {request_id: 1}
    assert 0 < await _committed_wei(world) < budget_wei


async def test_replacements_of_one_step_share_the_budget(world: World) -> None:
    ids = await world.submit(2, fee_wei=ETHER, batchable=False)
    await world.compute(ids)
    await world.settlement().step(await world.index())
    most_wei = await _newest_offer_wei(world)
    settlement = world.settlement(cap_wei_per_hour=20 * most_wei)
    for _ in range(4):
        await _blocks(world, settlement, 1, 20 * GWEI)  # raised, each offers a dozen times as much
        assert await _committed_wei(world) <= 20 * most_wei
    assert len(await world.attempts()) > 2
    await _blocks(world, settlement, 5, GWEI)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_nothing_is_sent_beyond_the_budget_of_a_day_until_the_day_is_over(
    world: World,
) -> None:
    first = await _ready(world)
    settlement = world.settlement(cap_wei_per_day=4 * 10**14)
    await settlement.step(await world.index())
    await _blocks(world, settlement, 3, GWEI)
    second = await _ready(world)
    await _blocks(world, settlement, 2, 2 * GWEI)
    assert settlement.status.paused_reason is PausedReason.SPENDING_OVER_CAP
    assert await world.fulfilled_events() == {first: 1}
    await world.pool.execute("UPDATE node.tx_intent SET closed_at = now() - interval '25 hours'")
    await _blocks(world, settlement, 4, GWEI)
    assert settlement.status.paused_reason is None
    assert await world.fulfilled_events() == {first: 1, second: 1}


async def test_no_transaction_costs_more_than_one_may(world: World) -> None:
    request_id = await _ready(world, fee_wei=ETHER)
    most_wei = 10**15
    settlement = world.settlement(max_transaction_wei=most_wei)
    await settlement.step(await world.index())
    await _blocks(world, settlement, 6, 20 * GWEI)
    assert await _newest_offer_wei(world) <= most_wei
    await _blocks(world, settlement, 3, GWEI)
    assert await world.fulfilled_events() == {request_id: 1}


async def test_what_rounds_count_is_what_settlement_counts(world: World) -> None:
    await _ready(world)
    settlement = world.settlement()
    await settlement.step(await world.index())
    async with world.pool.acquire() as connection:
        (budget,) = await load_budgets(connection, [(HOUR_S, ETHER)], cover=None)  # type: ignore[arg-type]
    assert budget.committed_wei == await _committed_wei(world) > 0


async def test_what_is_in_the_way_and_not_worth_its_price_makes_room(world: World) -> None:
    cheap = await _ready(world, fee_wei=3 * 10**15)  # worth a few gwei a gas
    settlement = world.settlement()
    await settlement.step(await world.index())
    await _blocks(world, settlement, 4, 60 * GWEI)
    assert await world.posted() == 0
    (intent,) = await world.intents()
    assert intent["state"] == "broadcast"  # it is in nobody's way
    dear = await _ready(world, fee_wei=ETHER)
    await _blocks(world, settlement, 6, 60 * GWEI)
    first, second, *_ = await world.intents()
    assert (first["state"], first["outcome"]) == ("cancelled", "priced_out")
    assert second["outcome"] == "done"
    assert await world.fulfilled_events() == {dear: 1}
    mined = [one for one in await world.attempts() if one["nonce"] == 0 and one["gas_used"]]
    assert [one["gas_used"] for one in mined] == [21_000]
    await _blocks(world, settlement, 5, GWEI)
    assert await world.fulfilled_events() == {dear: 1, cheap: 1}


async def test_what_has_the_only_slot_makes_room_for_what_pays(world: World) -> None:
    await _ready(world, fee_wei=3 * 10**15)
    settlement = world.settlement(max_in_flight=1)
    await settlement.step(await world.index())
    await _blocks(world, settlement, 4, 60 * GWEI)
    await _ready(world, fee_wei=4 * 10**15)
    await _blocks(world, settlement, 4, 60 * GWEI)
    assert len(await world.intents()) == 1  # nobody who waits would pay for this price
    dear = await _ready(world, fee_wei=ETHER)
    await _blocks(world, settlement, 8, 60 * GWEI)
    assert (await world.intents())[0]["outcome"] == "priced_out"
    assert dear in await world.fulfilled_events()


async def test_a_refund_that_is_raised_stays_within_its_budget(world: World) -> None:
    (request_id,) = await world.submit(1, fee_wei=ETHER, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    await world.mine()
    budget_wei = 10**15
    settlement = world.settlement(
        refund_budget_wei_per_day=budget_wei, refund_max_fee_per_gas_wei=200 * GWEI
    )
    await settlement.step(await world.index())
    await _blocks(world, settlement, 8, 30 * GWEI)
    assert await world.posted() == 0
    assert await _newest_offer_wei(world) <= budget_wei
    await _blocks(world, settlement, 4, GWEI)
    assert await world.statuses() == {request_id: "refunded"}


@pytest.mark.parametrize(("lifetime_s", "offers", "tip_gwei"), [(3_600, 2, 1.125), (16, 4, 2)])
async def test_near_its_deadline_it_offers_more_and_sooner(
    world: World, lifetime_s: int, offers: int, tip_gwei: float
) -> None:
    rpc = ScriptedRpc(world.rpc)
    rpc.always("send_raw_transaction", answer(b""))  # it is taken and never mined
    rpc.always("transaction_exists", answer(True))
    for _ in range(20):
        await _block_after_s(world, 2)  # a rhythm
    await _ready(world, fee_wei=ETHER, lifetime_s=lifetime_s)
    settlement = world.settlement(rpc, resend_after_blocks=3)
    await settlement.step(await world.index())
    for _ in range(3):
        await settlement.step(await _block_after_s(world, 2))
    attempts = await world.attempts()
    assert len(attempts) == offers
    if offers == 2:
        assert attempts[-1]["priority_fee_wei"] == tip_gwei * GWEI
    assert attempts[-1]["priority_fee_wei"] >= tip_gwei * GWEI


async def _block_after_s(world: World, seconds: int) -> Any:
    head = await world.rpc.header("latest")
    assert head is not None
    await world.rpc.request("evm_setNextBlockTimestamp", [head.timestamp_s + seconds])
    return await world.mine()


def test_a_replacement_has_the_room_of_what_it_replaces() -> None:
    signed = Attempt(Hash32(b"h"), 0, Fees(20, 1), 100, b"raw", AttemptState.BROADCAST, None, 7)
    intent = Intent(
        1, "post", IntentState.BROADCAST, Address(b""), b"", 100, items=(), attempts=(signed,)
    )
    purse = Purse(SettlementSettings(poster_bps=1), work_left_wei=500, refunds_left_wei=30)
    assert purse.most_wei("post") == 500
    assert purse.most_wei("post", intent) == 500 + 20 * 100 + 7
    assert purse.most_wei("refund", intent) == 30 + 20 * 100 + 7
    purse.take("post", 600)
    assert purse.most_wei("post") == 0
    assert purse.most_wei("post", intent) == 1907
    purse.settings = SettlementSettings(poster_bps=1, max_transaction_wei=1_000)
    assert purse.most_wei("post", intent) == 1_000
