"""Filling a transaction: within the caps, no group at a loss, in order, in time."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model import DeliveryKind
from scheduler.packing import Packing
from tests.scheduler.make import GAS, GWEI, ready, worker_id

DEARER = replace(GAS, per_stored_gas=4_000, per_callback_gas=5_000)


@st.composite
def orders(draw):
    """A packing and results in some order, each paying for what it adds."""
    packing = Packing(
        DEARER,
        GWEI,
        max_gas=draw(st.sampled_from([60_000, 90_000, 150_000, 10_000_000])),
        max_results=draw(st.integers(1, 20)),
    )
    results = []
    for number in range(draw(st.integers(0, 30))):
        delivery = draw(st.sampled_from(DeliveryKind))
        extra_gas = draw(st.sampled_from([0, 2_000, 4_000, 9_000, 12_000, 60_000]))
        revenue_wei = (DEARER.of_result(delivery) + extra_gas) * GWEI
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
    assert not packing.losing_groups(chosen)
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
    losing = roomy.losing_groups(results)
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
