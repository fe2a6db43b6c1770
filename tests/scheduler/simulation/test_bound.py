"""The clairvoyant bound: above every schedule of small worlds, and above every policy."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model import TenantId
from scheduler.policies import POLICIES
from scheduler.simulation.bound import BoundError, clairvoyant_bound, least_gas_wei
from scheduler.simulation.leases import fails_on
from scheduler.simulation.scenario import GAS, GWEI, World, inclusive
from scheduler.simulation.workers import SEGMENT_MS, SimWorker, TrueService
from scheduler.simulation.workload import START_S, Demand, SimRequest, model_id
from tests.scheduler.make import key, worker_id
from tests.scheduler.simulation.worlds import run, world, worlds

BLOCK_MS = 1_000
INCLUSION_S = 3
"""What rounds of these worlds keep free for the post."""
SERVICE = {model_id(0): TrueService(0.0, 100.0)}


def request(number: int, fee_wei: int, tokens: int, seen: int, blocks: int) -> SimRequest:
    """Seen in block `seen`, to be ready within so many blocks after it."""
    return SimRequest(
        key=key(number),
        tenant=TenantId(b"\x22" * 20),
        model=model_id(0),
        fee_wei=fee_wei,
        seen_at_ms=seen * BLOCK_MS,
        deadline_s=START_S + seen + blocks + INCLUSION_S,
        max_tokens=tokens,
        context_tokens=0,
        tokens_mean=float(tokens),
        tokens_sigma=0.0,
        generated_tokens=tokens,
        factor=1.0,
        die=0.5,
    )


def small_world(requests: tuple[SimRequest, ...], slots: tuple[int, ...]) -> World:
    base = world(requests=1)
    return replace(
        base,
        requests=requests,
        workers=tuple(
            SimWorker(worker_id(number + 1), number_of, 1_000, SERVICE)
            for number, number_of in enumerate(slots)
        ),
        block_ms=BLOCK_MS,
        base_fees_wei=(0,) * 40,
        rules=inclusive(replace(base.rules, inclusion_s=INCLUSION_S), BLOCK_MS),
    )


def best_schedule_wei(one: World) -> int:
    """The best of all schedules without interruption, gas for nothing, all workers alike.

    Requests in each order, each on the slot that is free first: every schedule that leaves no
    slot idle on purpose has such an order, and one that idles is no better than one that does not,
    as requests are tried in orders that need not be the one in which they come.
    """
    best = 0
    slots = sum(worker.slots for worker in one.workers)
    for order in permutations(one.requests):
        free_ms = [0] * slots
        earned = 0
        for each in order:
            slot = min(range(slots), key=free_ms.__getitem__)
            start_ms = max(free_ms[slot], each.seen_at_ms)
            end_ms = start_ms + each.generated_tokens * 100
            if end_ms <= (each.deadline_s - START_S - INCLUSION_S) * 1000:
                free_ms[slot] = end_ms
                earned += each.fee_wei
        best = max(best, earned)
    return best


@st.composite
def small_worlds(draw: st.DrawFn) -> World:
    requests = tuple(
        request(
            number,
            draw(st.integers(1, 50)) * GWEI,
            draw(st.integers(1, 40)),
            draw(st.integers(0, 3)),
            draw(st.integers(1, 6)),
        )
        for number in range(1, draw(st.integers(1, 5)) + 1)
    )
    return small_world(requests, draw(st.sampled_from([(1,), (2,), (1, 1)])))


@settings(max_examples=60)
@given(small_worlds())
def test_no_schedule_of_a_small_world_is_above_the_bound(one: World) -> None:
    assert best_schedule_wei(one) <= clairvoyant_bound(one).value_wei


def test_the_bound_is_met_where_nothing_can_be_split_to_advantage() -> None:
    requests = (
        request(1, 10 * GWEI, 10, 0, 1),
        request(2, 7 * GWEI, 10, 0, 1),
        request(3, 5 * GWEI, 10, 0, 2),
    )
    # One slot, a second each: the dearest of the first two, then the third.
    bound = clairvoyant_bound(small_world(requests, (1,)))
    assert bound.value_wei == pytest.approx(15 * GWEI, rel=1e-5)
    assert bound.value_wei >= 15 * GWEI
    both = clairvoyant_bound(small_world(requests, (2,)))
    assert both.value_wei == pytest.approx(22 * GWEI, rel=1e-5)


def test_outages_joining_and_failures_lower_the_bound() -> None:
    requests = (request(1, 10 * GWEI, 10, 0, 1),)
    one = small_world(requests, (1,))
    (worker,) = one.workers
    assert clairvoyant_bound(one).value_wei >= 10 * GWEI
    for changed in (
        replace(worker, speeds=(0.0, 1.0)),
        replace(worker, joins_at_ms=SEGMENT_MS),
        replace(worker, failure=1.0),
        replace(worker, service={}),
    ):
        assert clairvoyant_bound(replace(one, workers=(changed,))).value_wei <= 1
    half = replace(worker, speeds=(0.5,))
    assert clairvoyant_bound(replace(one, workers=(half,))).value_wei == pytest.approx(
        5 * GWEI, rel=1e-5
    )


def test_the_least_gas_is_the_share_of_the_fullest_post_at_the_lowest_price() -> None:
    one = request(1, 10**15, 10, 2, 3)
    rules = replace(world(requests=1).posting, max_results=10, max_gas=10**7, priority_fee_wei=7)
    fees = (1, 1, 1, 50, 60, 60, 70, 60, 40, 1)
    here = replace(small_world((one,), (1,)), base_fees_wei=fees, posting=rules)
    # Seen in block 2: mined in 3 to 8.
    assert least_gas_wei(one, here) == GAS.of(1, 10) * 47 // 10
    by_gas = replace(rules, max_gas=GAS.of(1, 2))
    assert least_gas_wei(one, replace(here, posting=by_gas)) == GAS.of(1, 2) * 47 // 2


def test_the_window_ends_where_leases_do() -> None:
    """Two seconds of work, to be ready within two: with less time the rest is worth nothing."""
    one = request(1, 10 * GWEI, 20, 0, 2)
    assert clairvoyant_bound(small_world((one,), (1,))).value_wei >= 10 * GWEI
    later = replace(one, deadline_s=one.deadline_s - 1)
    half = clairvoyant_bound(small_world((later,), (1,)))
    assert half.value_wei == pytest.approx(5 * GWEI, rel=1e-5)
    # Where little is kept free, it is the last block that a result has to be there for.
    here = small_world((replace(one, deadline_s=START_S + 2),), (1,))
    loose = replace(here, rules=replace(here.rules, inclusion_s=0.0), block_ms=1_500)
    assert clairvoyant_bound(loose).value_wei == pytest.approx(7.5 * GWEI, rel=1e-5)


@settings(max_examples=25)
@given(worlds(), st.sampled_from(sorted(POLICIES)), st.booleans())
def test_no_valid_lease_ends_outside_of_the_window(one: World, policy: str, learns: bool) -> None:
    outcome = run(one, policy, learns=learns)
    for end in outcome.ends:
        if end.computed_at_ms is not None:
            left_ms = (end.request.deadline_s - START_S) * 1000 - end.computed_at_ms
            assert left_ms >= int(one.rules.inclusion_s * 1000)


def test_what_cannot_pay_for_its_gas_is_not_in_the_bound() -> None:
    one = request(1, 10**9, 10, 0, 1)
    dear = replace(small_world((one,), (1,)), base_fees_wei=(10**9,) * 40)
    assert clairvoyant_bound(dear).value_wei <= 1


@settings(max_examples=25)
@given(worlds(), st.sampled_from(sorted(POLICIES)), st.booleans())
def test_no_policy_exceeds_the_bound(one: World, policy: str, learns: bool) -> None:
    outcome = run(one, policy, learns=learns)
    assert outcome.value_wei <= clairvoyant_bound(one).value_wei


def test_coarser_intervals_only_raise_the_bound() -> None:
    one = world(requests=200, demand=Demand(load=3.0))
    fine, coarse = clairvoyant_bound(one, 200), clairvoyant_bound(one, 10)
    assert fine.value_wei <= coarse.value_wei * (1 + 1e-6)
    assert fine.variables > coarse.variables


def test_workers_that_do_the_same_are_one_class() -> None:
    one = world(requests=100)
    apart = replace(
        one,
        workers=tuple(
            replace(worker, failure=1e-12 if number else 0.0)
            for number, worker in enumerate(one.workers)
        ),
    )
    assert not any(fails_on(each, worker) for each in one.requests for worker in apart.workers)
    together, split = clairvoyant_bound(one), clairvoyant_bound(apart)
    assert split.variables > 2 * together.variables
    assert split.value_wei == pytest.approx(together.value_wei, rel=0.01)


def test_without_highs_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(BoundError, match=r"inferd\[bench\]"):
        clairvoyant_bound(world(requests=5))
