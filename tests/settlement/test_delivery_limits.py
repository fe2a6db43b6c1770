"""Deliveries against consumers that do their worst, and what no transaction or fee pays for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address
from inferd.protocol.request import Commitment, Delivery
from inferd.settlement.callbacks import Choice, Limits, Owed, choose
from inferd.settlement.delivery_gas import (
    DELIVER_GAS,
    MAX_DELIVER_BYTES,
    claim_bytes,
    claim_gas,
    delivery_gas,
    expected_bytes,
    undeliverable,
)
from inferd.settlement.launch import Launcher
from inferd.settlement.settings import PausedReason
from tests.settlement.world import ETHER, GWEI, World

TAKES_ALL = "00"
BURNS_ALL = "5b600056"
RETURN_BOMB = "6161a86000fd"
"""Reverts with 25,000 bytes."""
BURNS_IF_PAID_FOR = "3a600557005b600556"
"""A call without a gas price, as clients make to estimate gas, costs next to nothing."""

A, B, C = (Address(bytes([number]) * 20) for number in (0xA1, 0xB2, 0xC3))


async def delivered(world: World) -> dict[int, str | None]:
    rows = await world.pool.fetch(
        "SELECT t.request_id, t.outcome FROM node.tx_item t JOIN node.tx_intent i"
        " ON i.id = t.intent_id WHERE i.kind = 'deliver' ORDER BY i.id, t.request_id"
    )
    return {row["request_id"]: row["outcome"] for row in rows}


async def gas_used(world: World) -> list[tuple[int, int]]:
    """Of each delivery: its gas limit and what it took."""
    rows = await world.pool.fetch(
        "SELECT a.gas_limit, a.gas_used FROM node.tx_attempt a JOIN node.tx_intent i"
        " ON i.id = a.intent_id WHERE i.kind = 'deliver' ORDER BY i.id"
    )
    return [(row["gas_limit"], row["gas_used"]) for row in rows]


async def test_a_consumer_that_fools_the_estimate_spoils_nobodys_delivery(world: World) -> None:
    consumers = (A, B, C)
    ids = [await world.ask_as(one, callback_gas=1_000_000) for one in consumers]
    await world.compute(ids)
    for one in consumers:
        await world.become(one, BURNS_IF_PAID_FOR)
    settlement = world.settlement()
    await world.tick(settlement, 9)
    assert await delivered(world) == dict.fromkeys(ids, "callback_failed")
    ((limit, used),) = await gas_used(world)
    assert 3_000_000 < used < limit
    assert settlement.status.failed_transactions == 0


@pytest.mark.parametrize("code", [TAKES_ALL, BURNS_ALL, RETURN_BOMB])
@pytest.mark.parametrize(
    ("callback_gas", "prompt_bytes", "output_bytes", "claims"),
    [(1, 0, 0, 1), (1, 0, 0, 8), (50_000, 100, 100, 8), (1, 40_000, 60_000, 1), (9, 0, 9_000, 8)],
)
async def test_the_gas_limit_is_enough_whatever_the_consumer_does(
    world: World, code: str, callback_gas: int, prompt_bytes: int, output_bytes: int, claims: int
) -> None:
    prompt, output = b"\xff" * prompt_bytes, b"\xee" * output_bytes
    consumers = [Address(bytes([0xD0 + number]) * 20) for number in range(claims)]
    ids = [
        await world.ask_as(one, callback_gas=callback_gas, prompt=prompt, fee_wei=ETHER)
        for one in consumers
    ]
    await world.compute(ids, output=output)
    for one in consumers:
        await world.become(one, code)
    await world.tick(world.settlement(), 9)
    outcome = "delivered" if code == TAKES_ALL else "callback_failed"
    assert await delivered(world) == dict.fromkeys(ids, outcome)
    ((limit, used),) = await gas_used(world)
    assert used < limit


async def test_what_fits_in_no_transaction_is_passed_over_and_said(world: World) -> None:
    large = await world.ask_as(A, callback_gas=3_000_000)
    long = await world.ask_as(B, callback_gas=1)
    small = await world.ask_as(C, callback_gas=20_000)
    await world.compute([large, small])
    await world.compute([long], output=bytes(130_000))
    for one in (A, B, C):
        await world.become(one, TAKES_ALL)
    settlement = world.settlement(max_gas=3_000_000)
    await world.tick(settlement, 9)
    assert await delivered(world) == {small: "delivered"}
    assert settlement.status.callbacks_owed == 2
    assert settlement.status.delivering == (
        "2 callbacks not made: they fit in no transaction of this node."
    )
    assert settlement.status.paused_reason is None


async def test_at_a_loss_nothing_is_delivered_until_gas_is_cheaper(world: World) -> None:
    fee_wei = ETHER // 1000
    request_id = await world.ask_as(A, callback_gas=20_000, fee_wei=fee_wei)
    await world.compute([request_id])
    await world.become(A, TAKES_ALL)
    settlement = world.settlement()
    while (await world.statuses())[request_id] != "fulfilled":
        await world.tick(settlement)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(50 * GWEI)])
    await world.tick(settlement, 3)
    assert await delivered(world) == {}
    assert settlement.status.delivering == (
        "1 callback not made: gas costs more than their fees earned."
    )
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI // 10)])
    await world.tick(settlement, 5)
    assert await delivered(world) == {request_id: "delivered"}
    assert settlement.status.delivering == ""


async def test_a_post_that_somebody_else_sent_earned_nothing_to_deliver_for(world: World) -> None:
    request_id = await world.ask_as(A, callback_gas=20_000)
    await world.compute([request_id])
    await world.become(A, TAKES_ALL)
    await world.post_by_a_stranger(request_id)
    settlement = world.settlement()
    await world.tick(settlement, 3)
    assert await delivered(world) == {}
    assert "1 callback not made: gas costs more" in settlement.status.delivering
    owner = await world.pool.fetchval("SELECT owner FROM chain.worker LIMIT 1")
    await world.tick(world.settlement(own_accounts=frozenset({owner})), 4)
    assert await delivered(world) == {request_id: "delivered"}


async def test_a_small_balance_delivers_what_it_pays_for(world: World) -> None:
    large = await world.ask_as(A, callback_gas=2_000_000, fee_wei=ETHER)
    small = await world.ask_as(B, callback_gas=20_000)
    await world.compute([large, small])
    for one in (A, B):
        await world.become(one, TAKES_ALL)
    settlement = world.settlement()
    while set((await world.statuses()).values()) != {"fulfilled"}:
        await world.tick(settlement)
    await world.set_balance(500_000 * 3 * GWEI)
    await world.tick(settlement, 6)
    assert await delivered(world) == {small: "delivered"}
    assert settlement.status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    assert settlement.status.delivering == (
        "1 callback not made: the poster's balance does not pay for them."
    )
    await world.set_balance(ETHER)
    await world.tick(settlement, 5)
    assert await delivered(world) == {small: "delivered", large: "delivered"}


async def test_a_batch_that_a_node_refuses_is_halved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumers = (A, B, C)
    ids = [await world.ask_as(one, callback_gas=20_000) for one in consumers]
    await world.compute(ids)
    for one in consumers:
        await world.become(one, TAKES_ALL)
    real = Launcher.estimate

    async def estimate(launcher: Launcher, call: Any) -> int | None:
        # No real node refuses a batch whose parts it takes: forced.
        two = call.function == "deliver" and len(call.calldata) > 1_500
        return None if two else await real(launcher, call)

    monkeypatch.setattr(Launcher, "estimate", estimate)
    await world.tick(world.settlement(), 15)
    assert await delivered(world) == dict.fromkeys(ids, "delivered")
    assert len(await gas_used(world)) > 1


@pytest.mark.parametrize("delivery", [Delivery.STORED, Delivery.CALLBACK])
async def test_what_settling_takes_more_than_an_event_is_charged(
    world: World, delivery: Delivery
) -> None:
    async def post_gas(ids: list[int]) -> int:
        await world.compute(ids)
        settlement = world.settlement()
        while not {"fulfilled"} >= set((await world.statuses()).values()):
            await world.tick(settlement)
        await world.tick(settlement, 3)
        used: int = await world.pool.fetchval(
            "SELECT a.gas_used FROM node.tx_attempt a JOIN node.tx_intent i ON i.id = a.intent_id"
            " WHERE i.kind = 'post' ORDER BY i.id DESC LIMIT 1"
        )
        return used

    count = 40
    await post_gas(await world.submit(2))  # fills the slots that every later post finds filled
    events = await post_gas(await world.submit(count))
    if delivery is Delivery.STORED:
        others = await post_gas(await world.submit(count, delivery=delivery))
        charged = delivery_gas(delivery, 0, 2, 16)
    else:
        diary = await world.new_diary()
        others = await post_gas([await world.ask_by(diary) for _ in range(count)])
        charged = delivery_gas(delivery, 0, 2, 16) - delivery_gas_of_the_call()
    assert others - events <= count * charged


def delivery_gas_of_the_call() -> int:
    return DELIVER_GAS + claim_gas(0, expected_bytes(2, 16))


owed_values = st.builds(
    Owed,
    request_id=st.integers(1, 2**63 - 1),
    commitment=st.just(Commitment(bytes(20))),
    callback_gas_limit=st.integers(1, 8_000_000),
    content_bytes=st.one_of(st.integers(0, 5_000), st.integers(0, 140_000)),
    earned_wei=st.integers(0, 10**18),
    suspect=st.booleans(),
)
limits_values = st.builds(
    Limits,
    max_gas=st.integers(21_000, 16_777_216),
    free_gas=st.integers(0, 30_000_000),
    price_wei=st.integers(0, 200 * GWEI),
    max_callbacks=st.integers(1, 5),
)


@given(st.lists(owed_values, max_size=12), limits_values)
def test_choose__any__within_every_limit_and_all_accounted_for(
    owed: list[Owed], limits: Limits
) -> None:
    choice = choose(owed, limits)
    gas = DELIVER_GAS + sum(one.gas for one in choice.batch)
    if choice.batch:
        assert gas <= min(limits.max_gas, limits.free_gas)
        assert sum(claim_bytes(one.content_bytes) for one in choice.batch) <= MAX_DELIVER_BYTES
        assert gas * limits.price_wei <= sum(one.earned_wei for one in choice.batch)
        assert choice.unfunded == 0
    assert len(choice.batch) <= limits.max_callbacks
    if any(one.suspect for one in choice.batch):
        assert len(choice.batch) == 1
    elsewhere = choice.too_large + choice.too_dear + choice.unfunded
    assert len(choice.batch) + elsewhere <= len(owed)
    if not choice.batch:
        assert elsewhere == len(owed)


@given(st.lists(owed_values, max_size=12), limits_values)
def test_choose__funds_for_all__the_oldest_that_can_be_delivered_is(
    owed: list[Owed], limits: Limits
) -> None:
    rich = Limits(limits.max_gas, limits.max_gas, limits.price_wei, limits.max_callbacks)
    alone = [one for one in owed if choose([one], rich).batch]
    trusted = [one for one in alone if not one.suspect]
    choice = choose(owed, rich)
    assert choice.batch[:1] == tuple((trusted or alone)[:1])


def test_choose__nothing_owed() -> None:
    assert choose([], Limits(1, 1, 1, 1)) == Choice()


@given(st.integers(1, 8_000_000), st.integers(0, 65_536), st.integers(0, 20_000))
def test_undeliverable__exactly_what_choose_finds_too_large(
    callback_gas: int, input_bytes: int, max_tokens: int
) -> None:
    max_gas = 5_000_000
    one = Owed(1, Commitment(bytes(20)), callback_gas, input_bytes + 8 * max_tokens, 0, False)
    why = undeliverable(Delivery.CALLBACK, callback_gas, input_bytes, max_tokens, max_gas)
    assert (why is None) == (choose([one], Limits(max_gas, max_gas, 0, 1)).batch == (one,))
    for delivery in (Delivery.EVENT, Delivery.STORED):
        assert undeliverable(delivery, callback_gas, input_bytes, max_tokens, max_gas) is None
