"""How much a fee has to cover: exact, and the more the longer the way to the post."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.cover import Cover, margins_ppm
from scheduler.model import DeliveryKind, GasModel, Reason, Rules
from scheduler.pending import PendingTable
from scheduler.plan import plan
from tests.scheduler.make import GAS, GWEI, block, model, request, service, snapshot, worker


def _rules(**changes) -> Rules:
    return Rules(poster_bps=1_000, expected_batch=8, **changes)


def test_without_a_measurement_the_floor_stands_alone():
    assert margins_ppm(_rules(gas_margin=1.25)) == (1_250_000,)


def test_the_margin_is_the_quantile_but_no_more_than_the_rule_allows_and_no_less_than_the_floor():
    # 1.125, 1.265625, 1.423828125 are the most that one, two, three blocks can do.
    quantiles = (1_200_000, 1_200_000, 9_000_000, 1_600_000)
    assert margins_ppm(_rules(gas_margin=1.0, base_fee_quantiles_ppm=quantiles)) == (
        1_125_000,
        1_200_000,
        1_423_829,  # rounded up
        1_600_000,
    )
    assert margins_ppm(_rules(gas_margin=1.5, base_fee_quantiles_ppm=quantiles)) == (
        1_500_000,
        1_500_000,
        1_500_000,
        1_600_000,
    )


@pytest.mark.parametrize(
    ("p90_ms", "index"), [(0, 1), (1_000, 1), (1_001, 2), (5_000, 3), (1e9, 3), (np.inf, 3)]
)
def test_the_horizon_is_service_and_inclusion_in_blocks(p90_ms, index):
    rules = _rules(block_interval_s=2.0, inclusion_s=3.0, base_fee_quantiles_ppm=(10**6,) * 4)
    cover = Cover(snapshot((), (), rules=rules).moment, 1)
    assert cover.horizon(np.array([p90_ms], np.float64)).tolist() == [index]


def test_a_slower_service_has_to_pay_more():
    rules = _rules(
        block_interval_s=2.0,
        base_fee_quantiles_ppm=tuple(1_500_000 + 100_000 * n for n in range(10)),
    )
    pool = (worker(service={model(): service(1_000, 1_000), model(2): service(9_000, 9_000)}),)
    one = request(fee_wei=12_500 * GWEI * 16 // 10)  # 100,000 gas / 8 at 1.6 times: 2 blocks
    assert plan(snapshot((one,), pool, rules=rules)).assigned
    (kept,) = plan(
        snapshot((request(fee_wei=one.fee_wei, model=model(2)),), pool, rules=rules)
    ).kept
    assert kept.reason is Reason.GAS_TOO_DEAR_NOW
    assert kept.numbers.margin_ppm == 2_000_000
    assert "(2 times its share" in kept.sentence


def test_the_margin_of_the_own_workers_is_that_of_their_own_time():
    rules = _rules(
        block_interval_s=2.0,
        base_fee_quantiles_ppm=tuple(1_500_000 + 100_000 * n for n in range(10)),
    )
    pool = (
        worker(1, owned=False, service={model(): service(1_000, 1_000)}),
        worker(2, owned=True, service={model(): service(9_000, 9_000)}),
    )
    # The other one has to bring 1.5 times, and the own one, six blocks ahead, 2 times.
    fee_wei = 13_750 * GWEI * 2
    (taken,) = plan(snapshot((request(fee_wei=fee_wei),), pool, rules=rules)).assigned
    assert taken.numbers.margin_ppm == 2_000_000
    assert taken.numbers.gas_need_wei == taken.numbers.revenue_wei == fee_wei
    (kept,) = plan(snapshot((request(fee_wei=fee_wei - 1),), pool, rules=rules)).kept
    assert kept.reason is Reason.GAS_TOO_DEAR_NOW
    assert (kept.numbers.margin_ppm, kept.numbers.gas_need_wei) == (2_000_000, fee_wei)


amounts = st.integers(0, 10**12) | st.integers(0, 2**90)


@given(
    amounts,
    st.integers(0, 2_000_000),
    st.just(0) | st.integers(0, 130_000),
    st.booleans(),
    st.integers(0, 3),
    st.integers(1, 20),
    st.integers(1, 30),
    st.sampled_from([-2, -1, 0, 1, 2]),
    st.booleans(),
    st.sampled_from(DeliveryKind),
)
def test_floats_never_decide_on_money(
    base_fee_wei,
    later_gas,
    later_bytes,
    batchable,
    blocks,
    batch,
    workers,
    off_wei,
    owned,
    delivery,
):
    """At a distance of a few wei from the edge, whatever the size of the amounts."""
    rules = Rules(
        poster_bps=1_000,
        expected_batch=batch,
        base_fee_quantiles_ppm=(1_600_001, 1_700_003, 1_800_007, 1_900_011)[: blocks + 1],
        block_interval_s=1e-9,
    )
    pool = tuple(worker(n, owned=owned) for n in range(1, workers + 1))
    world = {
        "rules": rules,
        "block": block(base_fee_wei=base_fee_wei),
        "gas": replace(
            GAS,
            per_stored_gas=4_321,
            per_callback_gas=5_432,
            per_later_call_gas=77_777,
            per_later_byte_gas=321,
            per_later_gas_ppm=12_345,
        ),
    }
    cover = Cover(snapshot((), pool, **world).moment, workers)
    asked = {"delivery": delivery, "later_gas": later_gas, "later_bytes": later_bytes}
    delivery_gas = cover.delivery_gas_of(request(**asked))
    need_wei = cover.need_wei(blocks, delivery_gas, batchable=batchable)
    as_float = cover.needs(
        np.array([blocks]), np.array([float(delivery_gas)]), np.array([batchable])
    )
    assert as_float[0] == pytest.approx(need_wei, rel=1e-12, abs=1)
    edge_wei = need_wei if owned else need_wei * 10
    one = request(fee_wei=max(0, edge_wei + off_wei), batchable=batchable, **asked)
    result = plan(snapshot((one,), pool, **world))
    earned_wei = one.fee_wei if owned else one.fee_wei // 10
    assert bool(result.assigned) == (earned_wei >= need_wei)
    (decision,) = (*result.assigned, *result.kept)
    assert decision.numbers.gas_need_wei == need_wei


@example(2 * 10**12, 1, 10**9, 0)
@given(
    st.integers(0, 2 * 10**12),  # of as many tokens as a request may name
    st.integers(0, 2**36),
    st.integers(0, 10**9),
    st.sampled_from([0, 77_777, 10**12]),
)
def test_what_follows_is_the_same_in_columns(later_gas, later_bytes, ppm, byte_gas):
    gas = replace(GAS, per_later_call_gas=5, per_later_byte_gas=byte_gas, per_later_gas_ppm=ppm)
    cover = Cover(snapshot((), (worker(1),), gas=gas).moment, 1)
    one, table = request(later_gas=later_gas, later_bytes=later_bytes), PendingTable()
    table.add([one])
    (column,) = cover.delivery_gas(table, table.order())
    assert column == pytest.approx(cover.delivery_gas_of(one), rel=1e-12, abs=1e-9)


def test_a_share_of_nothing_is_nothing():
    free = snapshot((), (), gas=GasModel(1, 1, 1), block=block(base_fee_wei=0)).moment
    assert Cover(free, 0).need_wei(0, 10, batchable=True) == 0


@pytest.mark.parametrize(
    ("delivery", "extra_gas"),
    [(DeliveryKind.EVENT, 0), (DeliveryKind.STORED, 7_000), (DeliveryKind.CALLBACK, 2_000)],
)
def test_a_delivery_costs_what_receipts_say_and_the_call_that_follows(delivery, extra_gas):
    gas = GasModel(50_000, 10_000, 5_000, per_stored_gas=7_000, per_callback_gas=2_000)
    rules = _rules(gas_margin=1.0)
    need_wei = (65_000 + extra_gas + 100) * GWEI
    for off_wei, taken in ((0, True), (-1, False)):
        one = request(fee_wei=need_wei + off_wei, batchable=False, delivery=delivery, later_gas=100)
        result = plan(snapshot((one,), (worker(owned=True),), rules=rules, gas=gas))
        (decision,) = (*result.assigned, *result.kept)
        assert bool(result.assigned) is taken
        assert decision.numbers.delivery_gas == extra_gas + 100
        assert decision.numbers.gas_need_wei == need_wei
    assert Cover(snapshot((), (), gas=gas).moment, 1).delivery_gas_of(one) == extra_gas + 100


def test_what_follows_costs_its_bytes_too_where_a_chain_takes_that():
    gas = GasModel(50_000, 10_000, 5_000, 0, 0, 3_000, 20, 100_000)
    cover = Cover(snapshot((), (), gas=gas).moment, 1)
    assert (
        cover.delivery_gas_of(request(later_gas=100_001, later_bytes=700))
        == 100_001 + 10_001 + 3_000 + 14_000
    )
    assert cover.delivery_gas_of(request()) == 0, "nothing follows"
