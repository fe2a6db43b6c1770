"""Deliveries against consumers that do their worst, and what no transaction or fee pays for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.database import Pool
from indexer.types import Address
from inferd.protocol.request import Commitment, Delivery
from inferd.settlement.apart import Cohort
from inferd.settlement.callbacks import Limits, Owed, choose
from inferd.settlement.delivery_gas import (
    CLAIM_BYTES_SQL,
    CLAIM_GAS_SQL,
    DELIVER_GAS,
    MAX_DELIVER_BYTES,
    OWED_GAS,
    STORED_GAS,
    claim_bytes,
    claim_gas,
    fits,
    undeliverable,
)
from inferd.settlement.engine import Settlement
from inferd.settlement.launch import Launcher
from tests.settlement.world import ETHER, GWEI, World

TAKES_ALL = "00"
BURNS_ALL = "5b600056"
RETURN_BOMB = "6161a86000fd"
"""Reverts with 25,000 bytes."""
BURNS_IF_PAID_FOR = "3a600557005b600556"
"""A call without a gas price, as clients make to estimate gas, costs next to nothing."""

A, B, C = (Address(bytes([number]) * 20) for number in (0xA1, 0xB2, 0xC3))


async def until_fulfilled(world: World, settlement: Settlement) -> None:
    for _ in range(20):
        if set((await world.statuses()).values()) == {"fulfilled"}:
            return
        await world.tick(settlement)
    raise AssertionError(settlement.status.posting)


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


async def test_what_fits_in_no_transaction_is_not_posted_and_said(world: World) -> None:
    large = await world.ask_as(A, callback_gas=3_000_000, fee_wei=ETHER)
    long = await world.ask_as(B, callback_gas=1, fee_wei=ETHER)
    small = await world.ask_as(C, callback_gas=20_000)
    await world.compute([large, small])
    await world.compute([long], output=bytes(130_000))
    await world.become(C, TAKES_ALL)
    settlement = world.settlement(max_gas=3_000_000)
    await world.tick(settlement, 9)
    assert await world.statuses() == {large: "pending", long: "pending", small: "fulfilled"}
    assert await delivered(world) == {small: "delivered"}
    assert settlement.status.posting.endswith(
        "2 results not posted: the callback fits in no transaction."
    )


async def test_what_a_smaller_limit_leaves_over_hides_no_other(world: World) -> None:
    large = await world.ask_as(A, callback_gas=3_000_000, fee_wei=ETHER)
    small = await world.ask_as(B, callback_gas=20_000)
    await world.compute([large, small])
    for one in (A, B):
        await world.become(one, TAKES_ALL)
    await world.post_by_a_stranger(large)
    owner = await world.pool.fetchval("SELECT owner FROM chain.worker LIMIT 1")
    settlement = world.settlement(max_gas=3_000_000, own_accounts=frozenset({owner}))
    await world.tick(settlement, 9)
    assert await delivered(world) == {small: "delivered"}
    assert settlement.status.callbacks_owed == 1
    assert settlement.status.delivering == (
        "Of 1 callback owed: 1 fit in no transaction of this node."
    )


async def test_a_fee_that_does_not_pay_for_the_callback_is_not_earned(world: World) -> None:
    """Though it would pay for the post many times over."""
    poor = await world.ask_as(A, callback_gas=2_000_000, fee_wei=ETHER // 1000)
    rich = await world.ask_as(B, callback_gas=2_000_000, fee_wei=ETHER)
    await world.compute([poor, rich])
    for one in (A, B):
        await world.become(one, TAKES_ALL)
    settlement = world.settlement()
    await world.tick(settlement, 9)
    assert await world.statuses() == {poor: "pending", rich: "fulfilled"}
    assert await delivered(world) == {rich: "delivered"}
    assert "1 earn less than the gas they add" in settlement.status.posting


async def test_at_a_loss_nothing_is_delivered_until_gas_is_cheaper(world: World) -> None:
    request_id = await world.ask_as(A, callback_gas=20_000, fee_wei=ETHER // 400)
    await world.compute([request_id])
    await world.become(A, TAKES_ALL)
    settlement = world.settlement()
    await until_fulfilled(world, settlement)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(50 * GWEI)])
    await world.tick(settlement, 3)
    assert await delivered(world) == {}
    assert settlement.status.delivering == (
        "Of 1 callback owed: 1 cost more gas than their fees earned."
    )
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI // 10)])
    await world.tick(settlement, 5)
    assert await delivered(world) == {request_id: "delivered"}
    assert settlement.status.delivering == ""


async def test_above_the_cap_callbacks_wait(world: World) -> None:
    request_id = await world.ask_as(A, callback_gas=20_000, fee_wei=ETHER)
    await world.compute([request_id])
    await world.become(A, TAKES_ALL)
    settlement = world.settlement()
    await until_fulfilled(world, settlement)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(300 * GWEI)])
    await world.tick(settlement)
    assert await delivered(world) == {}
    assert settlement.status.delivering == "Of 1 callback owed: 1 wait for gas below the cap."
    assert settlement.status.paused_reason is None


async def test_where_gas_is_free_callbacks_are_made(world: World) -> None:
    request_id = await world.ask_as(A, callback_gas=20_000, fee_wei=GWEI)
    await world.compute([request_id])
    await world.become(A, TAKES_ALL)
    settlement = world.settlement(max_priority_fee_wei=0)
    for _ in range(9):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", ["0x0"])
        await world.tick(settlement)
    assert await delivered(world) == {request_id: "delivered"}


async def test_a_post_that_somebody_else_sent_earned_nothing_to_deliver_for(world: World) -> None:
    request_id = await world.ask_as(A, callback_gas=20_000)
    await world.compute([request_id])
    await world.become(A, TAKES_ALL)
    await world.post_by_a_stranger(request_id)
    settlement = world.settlement()
    await world.tick(settlement, 3)
    assert await delivered(world) == {}
    assert "1 cost more gas than their fees earned" in settlement.status.delivering
    owner = await world.pool.fetchval("SELECT owner FROM chain.worker LIMIT 1")
    await world.tick(world.settlement(own_accounts=frozenset({owner})), 4)
    assert await delivered(world) == {request_id: "delivered"}


async def test_a_failure_that_somebody_else_brought_about_is_no_try_of_ours(world: World) -> None:
    request_id = await world.ask_as(A, callback_gas=20_000)
    await world.compute([request_id])
    settlement = world.settlement()
    await until_fulfilled(world, settlement)
    await world.become(A, RETURN_BOMB)
    await world.hand_over(request_id)
    assert await world.pool.fetchval("SELECT callback_failures FROM chain.request") == 1
    await world.become(A, TAKES_ALL)
    await world.tick(settlement, 5)
    assert await delivered(world) == {request_id: "delivered"}


async def test_a_small_balance_delivers_what_it_pays_for(world: World) -> None:
    large = await world.ask_as(A, callback_gas=2_000_000, fee_wei=ETHER)
    small = await world.ask_as(B, callback_gas=20_000)
    await world.compute([large, small])
    for one in (A, B):
        await world.become(one, TAKES_ALL)
    settlement = world.settlement()
    await until_fulfilled(world, settlement)
    await world.set_balance(500_000 * 3 * GWEI)
    await world.tick(settlement, 6)
    assert await delivered(world) == {small: "delivered"}
    assert settlement.status.delivering == ("Of 1 callback owed: 1 wait for the poster's balance.")
    await world.set_balance(ETHER)
    await world.tick(settlement, 5)
    assert await delivered(world) == {small: "delivered", large: "delivered"}


async def test_an_estimate_that_overshoots_stops_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As go-ethereum's does, by up to 1.5 %: more than the bound has to spare."""
    request_id = await world.ask_as(A, callback_gas=7_000_000, fee_wei=ETHER)
    await world.compute([request_id])
    await world.become(A, TAKES_ALL)
    real = Launcher.estimate

    async def estimate(launcher: Launcher, call: Any) -> int | None:
        found = await real(launcher, call)
        return None if found is None else found * 1015 // 1000

    monkeypatch.setattr(Launcher, "estimate", estimate)
    await world.tick(world.settlement(), 9)
    assert await delivered(world) == {request_id: "delivered"}


async def test_a_batch_that_a_node_refuses_is_halved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumers = (A, B, C)
    ids = [await world.ask_as(one, callback_gas=20_000) for one in consumers]
    await world.compute(ids)
    for one in consumers:
        await world.become(one, TAKES_ALL)
    real = Launcher.passes

    async def passes(launcher: Launcher, call: Any, gas: int, sight: Any) -> bool:
        # No real node refuses a batch whose parts it takes: forced.
        return len(call.calldata) < 1_500 and await real(launcher, call, gas, sight)

    monkeypatch.setattr(Launcher, "passes", passes)
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
        await until_fulfilled(world, settlement)
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
        charged = STORED_GAS
    else:
        diary = await world.new_diary()
        others = await post_gas([await world.ask_by(diary) for _ in range(count)])
        charged = OWED_GAS
    assert others - events <= count * charged


async def test_what_a_node_refuses_is_held_back_and_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = await world.ask_as(A, callback_gas=20_000)
    await world.compute([request_id])

    async def refuses(*_: Any) -> bool:
        return False

    monkeypatch.setattr(Launcher, "passes", refuses)
    settlement = world.settlement()
    await world.tick(settlement, 8)
    assert await delivered(world) == {}
    assert settlement.status.delivering == (
        "Of 1 callback owed: 1 were refused or too dear and are tried again."
    )


owed_values = st.builds(
    Owed,
    request_id=st.integers(1, 2**63 - 1),
    commitment=st.just(Commitment(bytes(20))),
    claim_bytes=st.one_of(st.integers(640, 6_000), st.integers(640, MAX_DELIVER_BYTES)),
    gas=st.integers(30_000, 8_300_000),
    earned_wei=st.integers(0, 10**18),
    cohort=st.one_of(st.none(), st.builds(Cohort, st.integers(1, 2), st.integers(1, 5))),
)
limits_values = st.builds(
    Limits,
    max_gas=st.integers(8_400_000, 16_777_216),
    free_gas=st.integers(0, 30_000_000),
    price_wei=st.integers(0, 200 * GWEI),
    max_callbacks=st.integers(1, 5),
)


@given(st.lists(owed_values, max_size=12), limits_values)
def test_choose__any__within_every_limit_and_suspects_by_themselves(
    owed: list[Owed], limits: Limits
) -> None:
    batch = choose(owed, limits)
    if batch:
        gas = DELIVER_GAS + sum(one.gas for one in batch)
        assert gas <= min(limits.max_gas, limits.free_gas)
    assert sum(one.claim_bytes for one in batch) <= MAX_DELIVER_BYTES
    assert len(batch) <= limits.max_callbacks
    assert len({one.cohort for one in batch}) <= 1
    for one in batch:
        assert one.cohort is None or len(batch) <= max(1, (one.cohort.size + 1) // 2)


@given(st.lists(owed_values, max_size=12), limits_values)
def test_choose__any__the_oldest_that_the_balance_pays_for_is_first(
    owed: list[Owed], limits: Limits
) -> None:
    paid = [one for one in owed if DELIVER_GAS + one.gas <= limits.free_gas]
    assert choose(owed, limits)[:1] == tuple(paid[:1])


SPOILT = Cohort(1, 4)


def test_choose__nothing_else_that_fits_is_left() -> None:
    owed = [
        Owed(i, Commitment(bytes(20)), 640, 100_000, 0, SPOILT if i == 2 else None)
        for i in range(5)
    ]
    chosen = choose(owed, Limits(DELIVER_GAS + 300_000, 10**7, 1, 50))
    assert [one.request_id for one in chosen] == [0, 1, 3]


@given(st.integers(1, 8_000_000), st.integers(0, 65_536), st.integers(0, 20_000))
def test_undeliverable__exactly_what_does_not_fit(
    callback_gas: int, input_bytes: int, max_tokens: int
) -> None:
    max_gas = 5_000_000
    why = undeliverable(Delivery.CALLBACK, callback_gas, input_bytes, max_tokens, max_gas)
    assert (why is None) == fits(callback_gas, input_bytes + 8 * max_tokens, max_gas)
    for delivery in (Delivery.EVENT, Delivery.STORED):
        assert undeliverable(delivery, callback_gas, input_bytes, max_tokens, max_gas) is None


async def test_the_database_reckons_as_the_code_does(pool: Pool) -> None:
    for callback_gas in (1, 62, 63, 64, 126, 8_000_000):
        for content_bytes in (0, 1, 119_359, 10**6):
            row = await pool.fetchrow(
                f"SELECT {CLAIM_GAS_SQL} AS gas, {CLAIM_BYTES_SQL} AS bytes FROM (SELECT"
                " $1::bigint AS callback_gas_limit, $2::bigint AS content_bytes) asked",
                callback_gas,
                content_bytes,
            )
            assert tuple(row) == (
                claim_gas(callback_gas, content_bytes),
                claim_bytes(content_bytes),
            )
