"""Refunds are a service with a bound: never more gas than fee, and never more than a budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.settlement.engine import Settlement
from inferd.settlement.refunds import REFUND_GAS, Claim, RefundTerms, worth_refunding
from tests.settlement.world import ETHER, GWEI, World

PRICE = 9 * GWEI
CLAIM = REFUND_GAS.per_result_gas * PRICE


def claim(number: int, fee_wei: int) -> Claim:
    return Claim(number, b"\x01" * 20, b"\x02" * 20, b"\x03" * 32, fee_wei)  # type: ignore[arg-type]


def terms(**changes: int) -> RefundTerms:
    return RefundTerms(
        **{
            "price_wei": PRICE,
            "max_fee_wei": 2 * PRICE,
            "min_fee_ppm": 10**6,
            "budget_left_wei": ETHER,
            **changes,
        }
    )


async def expire(world: World, *fees_wei: int) -> list[int]:
    """A request for each fee, its deadline past."""
    ids = [(await world.submit(1, fee_wei=fee, lifetime_s=50))[0] for fee in fees_wei]
    await world.rpc.request("evm_increaseTime", [100])
    return ids


async def tick(world: World, settlement: Settlement, blocks: int) -> None:
    """At a base fee of 1 gwei, which empty blocks would lower."""
    for _ in range(blocks):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
        await world.tick(settlement)


async def spent(world: World) -> int:
    return int(
        await world.pool.fetchval(
            "SELECT coalesce(sum(gas_used * effective_gas_price_wei), 0) FROM node.tx_attempt"
        )
    )


@given(st.lists(st.integers(0, 20 * CLAIM), max_size=30), st.integers(0, 3 * 10**6))
def test_every_fee_is_worth_its_share_and_no_larger_batch_exists(
    fees_wei: list[int], min_fee_ppm: int
) -> None:
    claims = [claim(number, fee_wei) for number, fee_wei in enumerate(fees_wei)]
    offered = terms(min_fee_ppm=min_fee_ppm)
    chosen = worth_refunding(claims, offered, 20)
    assert len(chosen) <= 20
    for one in chosen:
        cost_wei = REFUND_GAS.of(1, len(chosen)) * PRICE
        assert one.fee_wei * len(chosen) * 10**6 >= cost_wei * min_fee_ppm
        assert one.fee_wei >= offered.least_fee_wei
    richest = sorted(fees_wei, reverse=True)[:20]
    for larger in range(len(chosen) + 1, len(richest) + 1):
        cost_wei = REFUND_GAS.of(1, larger) * PRICE
        assert richest[larger - 1] * larger * 10**6 < cost_wei * min_fee_ppm


@given(st.integers(0, 60 * REFUND_GAS.of(1, 1) * PRICE))
def test_what_it_can_cost_is_within_what_is_left(budget_left_wei: int) -> None:
    claims = [claim(number, ETHER) for number in range(50)]
    offered = terms(budget_left_wei=budget_left_wei)
    chosen = worth_refunding(claims, offered, 50)
    assert (
        not chosen
        or offered.most_wei(REFUND_GAS.of(1, len(chosen)), len(chosen)) <= budget_left_wei
    )
    if len(chosen) < 50:
        assert (
            offered.most_wei(REFUND_GAS.of(1, len(chosen) + 1), len(chosen) + 1) > budget_left_wei
        )


async def test_dust_is_left_to_its_owner_and_counted(world: World) -> None:
    ids = await expire(world, *[GWEI] * 5)
    before_wei = await world.rpc.balance(world.poster.address)
    settlement = world.settlement()
    await world.tick(settlement, 4)
    assert await world.rpc.balance(world.poster.address) == before_wei
    assert set((await world.statuses()).values()) == {"pending"}
    assert settlement.status.refunds_left == 5
    assert "5 expired requests not refunded" in settlement.status.refunding
    assert "`refund`" in settlement.status.refunding
    # It stands in nobody's way, however much of it there is.
    rich = await expire(world, ETHER // 100)
    await world.tick(settlement, 4)
    assert await world.statuses() == dict.fromkeys(ids, "pending") | {rich[0]: "refunded"}
    assert settlement.status.refunds_left == 5


async def test_no_refund_costs_more_than_it_gives_back(world: World) -> None:
    """Fees between what the cost model and what the node's estimate call worth it."""
    fees = [n * 10_000 * GWEI for n in range(1, 13)]
    await expire(world, *fees)
    settlement = world.settlement()
    await tick(world, settlement, 40)
    rows = await world.pool.fetch(
        "SELECT gas_used * effective_gas_price_wei AS cost_wei, sum(fee_wei) AS fees_wei,"
        " min(fee_wei) * count(*) AS least_wei FROM node.tx_attempt"
        " JOIN chain.request ON settled_tx_hash = hash GROUP BY hash"
    )
    assert rows
    for row in rows:
        assert row["least_wei"] >= row["cost_wei"]
    assert 0 < settlement.status.refunds_left < len(fees)


async def test_fees_that_are_not_worth_their_gas_hide_none_that_is(world: World) -> None:
    """More of them than are looked at, each worth the least that a refund can take: what it takes
    is told by the node alone, and is more."""
    least_wei = REFUND_GAS.per_result_gas * 4 * GWEI
    ids = await expire(world, *[least_wei] * 4, ETHER // 100)
    settlement = world.settlement(refund_max_claims=1)
    await tick(world, settlement, 4)
    assert (await world.statuses())[ids[-1]] == "refunded"


async def test_a_ratio_of_nothing_gives_even_dust_back(world: World) -> None:
    ids = await expire(world, *[GWEI] * 3)
    await world.tick(world.settlement(refund_min_fee_ratio=0.0), 4)
    assert await world.statuses() == dict.fromkeys(ids, "refunded")


@pytest.mark.parametrize("budget_wei", [0, 50_000 * GWEI])
async def test_without_budget_nothing_is_refunded(world: World, budget_wei: int) -> None:
    await expire(world, ETHER // 100)
    settlement = world.settlement(refund_budget_wei_per_day=budget_wei)
    await world.tick(settlement, 3)
    assert await world.intents() == []
    assert settlement.status.refunding.startswith("Refunds of 1 expired request wait: ")
    assert settlement.status.refunds_left == 0


async def test_the_budget_is_of_one_day(world: World) -> None:
    """Three refunds of 40,000 to 75,000 gas, offered at up to 3 gwei and mined at 2."""
    ids = await expire(world, *[ETHER // 100] * 3)
    budget_wei = 250_000 * GWEI
    settlement = world.settlement(refund_max_claims=1, refund_budget_wei_per_day=budget_wei)
    await tick(world, settlement, 20)
    done = [status for status in (await world.statuses()).values() if status == "refunded"]
    assert 0 < len(done) < 3
    assert 0 < await spent(world) <= budget_wei
    assert settlement.status.refund_gas_wei_per_day == await spent(world)
    assert "of the day's budget" in settlement.status.refunding
    await world.pool.execute("UPDATE node.tx_intent SET closed_at = now() - interval '25 hours'")
    await tick(world, settlement, 20)
    assert await world.statuses() == dict.fromkeys(ids, "refunded")
