"""Filling a transaction: within the caps, no group at a loss, in order, in time."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.batching import decide
from scheduler.model import DataFee, DeliveryKind
from scheduler.packing import Packing
from scheduler.posting_model import PostReason
from tests.scheduler.make import (
    GAS,
    GWEI,
    NOW_S,
    posting,
    posting_rules,
    postings,
    ready,
    worker_id,
)

DEARER = replace(GAS, per_stored_gas=4_000, per_callback_gas=5_000)
FEES = st.sampled_from([DataFee(), DataFee(10**12, 4 * 10**12, 10**12, GWEI // 10)])


def losing_groups(packing, results):
    surplus_wei = {}
    for result in results:
        so_far_wei = surplus_wei.get(result.signers, 0)
        surplus_wei[result.signers] = so_far_wei + packing.surplus_wei(result)
    return {who for who, wei in surplus_wei.items() if wei < packing.group_wei(who)}


@st.composite
def orders(draw):
    """A packing and results in some order, each paying for what it adds."""
    packing = Packing(
        DEARER,
        GWEI,
        max_gas=draw(st.sampled_from([60_000, 90_000, 150_000, 10_000_000])),
        max_results=draw(st.integers(1, 20)),
        data_fee=draw(FEES),
    )
    results = []
    for number in range(draw(st.integers(0, 30))):
        delivery = draw(st.sampled_from(DeliveryKind))
        extra_gas = draw(st.sampled_from([0, 2_000, 4_000, 9_000, 12_000, 60_000]))
        own_gas = DEARER.of_result(delivery)
        fee = packing.data_fee
        revenue_wei = (own_gas + extra_gas) * GWEI + fee.per_result_wei + fee.per_gas_wei * own_gas
        worker = worker_id(draw(st.integers(1, 6)))
        others = tuple(map(worker_id, draw(st.sampled_from([(), (), (7,), (7, 8)]))))
        of = {"worker": worker, "others": others, "delivery": delivery}
        results.append(ready(number, revenue_wei=revenue_wei, **of))
    return packing, results


@given(orders())
@settings(max_examples=500)
def test_a_batch_keeps_the_caps_and_the_order_and_no_group_of_it_loses(case):
    packing, results = case
    chosen = packing.fill(results)
    assert chosen == [r for r in results if r in chosen]
    assert len(chosen) <= packing.max_results
    assert not chosen or packing.gas_of(chosen) <= packing.max_gas
    assert not losing_groups(packing, chosen)
    # Whoever could be added, and would pay, has been: nobody is left out while there is room.
    groups = {r.signers for r in chosen}
    for result in results:
        if result not in chosen and result.signers in groups:
            full = len(chosen) >= packing.max_results
            assert full or packing.gas_of([*chosen, result]) > packing.max_gas


@given(orders())
@settings(max_examples=300)
def test_with_room_for_all_everything_that_pays_is_in(case):
    packing, results = case
    roomy = replace(packing, max_gas=10**9, max_results=10**6)
    losing = losing_groups(roomy, results)
    assert roomy.fill(results) == [r for r in results if r.signers not in losing]


def test_each_result_is_looked_at_a_few_times_however_many_groups_the_cap_cuts(monkeypatch):
    """99 that pay fill all places but one, which no group of the many others can pay with."""
    looked_at = []
    surplus_wei = Packing.surplus_wei
    monkeypatch.setattr(
        Packing, "surplus_wei", lambda *args: looked_at.append(1) or surplus_wei(*args)
    )
    rich = [ready(number, revenue_wei=10**15) for number in range(99)]
    poor = [
        ready(99 + number, revenue_wei=9_000 * GWEI, worker=worker_id(2 + number % 1_000))
        for number in range(3_000)
    ]
    packing = Packing(GAS, GWEI, max_gas=10_000_000, max_results=100)
    assert packing.fill([*rich, *poor]) == rich
    assert len(looked_at) <= 2 * (len(rich) + len(poor))


def test_what_a_group_costs_is_the_same_whether_all_fits_or_the_cap_cuts_it():
    """Beside its gas a group takes 20,000 gwei for its bytes: two results of it do not pay that,
    where three would."""
    fee = DataFee(per_group_wei=20_000 * GWEI)
    packing = Packing(GAS, GWEI, max_gas=10_000_000, max_results=3, data_fee=fee)
    own = [ready(n, revenue_wei=16_000 * GWEI, worker=worker_id(2)) for n in (1, 2, 3)]
    rich, last = ready(4, revenue_wei=10**15), ready(5, revenue_wei=6_000 * GWEI)
    assert packing.sort_out([*own, rich, last]).unprofitable == 0
    assert packing.fill([rich, *own, last]) == [rich, last]


def test_of_two_results_for_one_request_the_one_that_a_group_can_carry_is_taken():
    """Worker 2 was first, and has nothing else to share its group's gas with."""
    first = ready(1, revenue_wei=9_000 * GWEI, worker=worker_id(2), computed_at_s=NOW_S - 60.0)
    second = ready(1, revenue_wei=9_000 * GWEI)
    rich = ready(2, revenue_wei=10**15)
    packing = Packing(GAS, GWEI, max_gas=10_000_000, max_results=100)
    found = packing.sort_out([first, second, rich])
    assert set(found.together) == {second, rich}
    assert (found.duplicates, found.unprofitable) == (1, 0)
    assert packing.sort_out([first, second]).unprofitable == 1


def test_nor_do_two_workers_that_were_first_once_each_take_it_from_each_other():
    """Each has both results, and pays for its group only with both of them."""
    results = [
        ready(n, revenue_wei=12_000 * GWEI, worker=worker_id(w), computed_at_s=NOW_S - (n == w))
        for n in (1, 2)
        for w in (1, 2)
    ]
    packing = Packing(GAS, GWEI, max_gas=10_000_000, max_results=100)
    assert [r.worker for r in packing.sort_out(results).together] == [worker_id(2)] * 2


@given(postings(), FEES)
@settings(max_examples=100)
def test_one_result_a_request_is_left_each_of_a_group_that_pays(snapshot, data_fee):
    packing = Packing(snapshot.gas, 2 * GWEI, 10_000_000, 100, data_fee)
    found = packing.sort_out(snapshot.ready)
    assert not losing_groups(packing, found.together)
    keys = [r.key for r in (*found.together, *found.alone)]
    assert len(set(keys)) == len(keys)
    assert len(keys) + found.unprofitable + found.duplicates == len(snapshot.ready)
    # Nothing could be added, in place of nothing: what is left out does not pay in any group here.
    here = {r.signers for r in found.together}
    for one in snapshot.ready:
        if one.key not in keys and one.batchable and one.signers in here:
            assert packing.surplus_wei(one) < 0


@given(postings(), FEES)
@settings(max_examples=150)
def test_nothing_is_unprofitable_where_one_group_pays_for_a_post_by_itself(snapshot, data_fee):
    decision = decide(replace(snapshot, data_fee=data_fee))
    if decision.reason is not PostReason.UNPROFITABLE:
        return
    rules, price_wei = snapshot.rules, decision.inputs["gas_price_wei"]
    packing = Packing(snapshot.gas, price_wei, rules.max_gas, rules.max_results, data_fee)
    next_block_s = max(snapshot.now_s, NOW_S + snapshot.block_interval_s)
    groups = {}
    for one in sorted(snapshot.ready, key=packing.surplus_wei, reverse=True):
        if one.batchable and one.deadline_s >= next_block_s and packing.surplus_wei(one) >= 0:
            groups.setdefault(one.signers, []).append(one)
    assert not any(packing.pays(packing.fill(own)) for own in groups.values())


def test_results_that_leave_most_do_not_crowd_out_a_group_that_pays():
    """Three of three workers leave most each, and have three groups to pay for."""
    apart = [ready(n, revenue_wei=31_000 * GWEI, worker=worker_id(n)) for n in (1, 2, 3)]
    group = [ready(n, revenue_wei=30_000 * GWEI, worker=worker_id(4)) for n in (4, 5, 6)]
    urgent = [replace(one, deadline_s=NOW_S + 5) for one in (*apart, *group)]
    decision = decide(posting(tuple(urgent), rules=posting_rules(max_results=3)))
    assert decision.reason is PostReason.DEADLINE_NEAR
    assert set(decision.results) == set(urgent[3:])
