"""The exact assignment of a round, against all assignments of small ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import flow
from scheduler.model import Snapshot
from scheduler.plan import plan
from scheduler.policies import POLICIES
from tests.scheduler.make import (
    NOW_S,
    model,
    request,
    service,
    snapshot,
    snapshots,
    worker,
    worker_id,
)

Works = tuple[dict[int, float], ...]
Loads = dict[int, list[float]]
Chosen = tuple[int | None, ...]


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Works, Loads]:
    workers = range(draw(st.integers(1, 3)))
    step = st.integers(0, 3).map(float)
    loads = {
        worker: list(accumulate(draw(st.lists(step, max_size=2)), initial=1.0))[
            draw(st.integers(0, 1)) :
        ]
        for worker in workers
    }
    work = st.integers(1, 6).map(float)
    works = tuple(
        {worker: draw(work) for worker in workers if draw(st.booleans())}
        for _ in range(draw(st.integers(0, 5)))
    )
    return works, loads


def possible(works: Works, loads: Loads) -> Iterator[Chosen]:
    for chosen in product(*((None, *work) for work in works)):
        if all(chosen.count(worker) <= len(load) for worker, load in loads.items()):
            yield chosen


def keys(chosen: Chosen, works: Works, loads: Loads) -> float:
    """The least sum over the orders in which a worker's requests can take its slots."""
    total = 0.0
    for rank, load in loads.items():
        sizes = sorted(
            (work[rank] for work, one in zip(works, chosen, strict=True) if one == rank),
            reverse=True,
        )
        total += sum(size * level for size, level in zip(sizes, load, strict=False))
    return total


def served(chosen: Sequence[int | None]) -> tuple[bool, ...]:
    return tuple(worker is not None for worker in chosen)


@given(rounds())
def test_serves_whom_the_order_prefers_and_finishes_soonest(drawn: tuple[Works, Loads]) -> None:
    works, loads = drawn
    chosen = flow.assign(works, loads)
    assert chosen is not None
    everything = list(possible(works, loads))
    assert chosen in everything
    # True sorts above False: the first in the order counts most.
    best = max(served(one) for one in everything)
    assert served(chosen) == best
    least = min(keys(one, works, loads) for one in everything if served(one) == best)
    assert keys(chosen, works, loads) == pytest.approx(least, rel=1e-4)


def test_a_slot_is_left_to_the_only_request_that_can_use_it() -> None:
    assert flow.assign(({1: 100.0, 2: 200.0}, {1: 100.0}), {1: [1.0], 2: [1.0]}) == (2, 1)


def test_the_same_round_gives_the_same_assignment() -> None:
    works = tuple(dict.fromkeys(range(4), 100.0) for _ in range(6))
    loads = {worker: [1.0] for worker in range(4)}
    first = flow.assign(works, loads)
    assert first is not None
    assert served(first) == (True, True, True, True, False, False)
    turned = dict(reversed(loads.items()))
    assert flow.assign(tuple(dict(reversed(one.items())) for one in works), turned) == first


def test_too_many_arcs_are_left_to_the_greedy_way() -> None:
    works = ({1: 100.0, 2: 200.0}, {1: 100.0})
    loads = {1: [1.0, 1.5], 2: [1.0]}
    assert flow.assign(works, loads, max_arcs=9) is not None
    assert flow.assign(works, loads, max_arcs=8) is None


def test_costs_beyond_64_bits_are_left_to_the_greedy_way() -> None:
    works = tuple({1: 1.0} for _ in range(20_000))
    assert flow.assign(works, {1: [1.0]}, max_arcs=10**6) is None


def test_keys_of_nothing_are_no_trouble() -> None:
    assert flow.assign(({1: 0.0}, {1: 0.0}), {1: [0.0]}) == (1, None)


def test_a_full_round_needs_no_solver() -> None:
    assert flow.assign(({1: 100.0}, {}), {1: []}) == (None, None)


def test_without_or_tools_the_greedy_way_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flow.available()
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    monkeypatch.setitem(sys.modules, "ortools.graph.python.min_cost_flow", None)
    assert not flow.available()
    assert flow.assign(({1: 100.0},), {1: [1.0]}) is None


def exactly(one: Snapshot, arcs: int = 20_000) -> Snapshot:
    return replace(one, rules=replace(one.rules, flow_arcs=arcs))


def crossed() -> Snapshot:
    """The first request finishes sooner on the only worker that the second one can use."""
    quick = worker(1, service={model(1): service(100.0), model(2): service(100.0)})
    slow = worker(2, service={model(1): service(200.0)})
    return snapshot(
        (request(1, model=model(1), fee_wei=2 * 10**16), request(2, model=model(2))), (quick, slow)
    )


def test_a_round_is_decided_at_once_where_the_rules_say_so() -> None:
    greedy, exact = plan(crossed()), plan(exactly(crossed()))
    assert [one.key.id for one in greedy.assigned] == [1]
    assert {one.key.id: one.worker for one in exact.assigned} == {
        1: worker_id(2),
        2: worker_id(1),
    }
    assert exact.policy_version == greedy.policy_version + "+flow"
    assert plan(exactly(crossed(), arcs=5)) == greedy


def test_a_busy_worker_that_did_not_fail_is_waited_for() -> None:
    """As the greedy way does; and not where the deadline leaves no time to wait."""
    free = worker(1)
    busy = worker(2, in_flight=1, service={model(): service(3_000.0, 4_000.0)})
    again = request(1, attempts=1, tried=frozenset({worker_id(1)}))
    for deadline_s, kept in ((600, 1), (7, 0)):
        one = snapshot((replace(again, deadline_s=NOW_S + deadline_s),), (free, busy))
        exact = plan(exactly(one))
        assert len(exact.kept) == kept
        assert (exact.assigned, exact.kept) == (plan(one).assigned, plan(one).kept)


def test_without_or_tools_a_round_is_decided_by_the_greedy_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    monkeypatch.setitem(sys.modules, "ortools.graph.python.min_cost_flow", None)
    assert plan(exactly(crossed())) == plan(crossed())


@settings(max_examples=40)
@given(snapshots(), st.sampled_from(sorted(POLICIES)))
def test_an_exact_round_keeps_all_limits_and_serves_no_fewer(one: Snapshot, name: str) -> None:
    policy = POLICIES[name]
    greedy, exact = plan(one, policy), plan(exactly(one), policy)
    assert len(exact.assigned) >= len(greedy.assigned)
    assert exact.refused == greedy.refused
    keys_of = [{d.key for d in part} for part in (exact.assigned, exact.kept, exact.refused)]
    assert sum(map(len, keys_of)) == len(one.requests)
    assert set().union(*keys_of) == {pending.key for pending in one.requests}
    taken = Counter(decision.worker for decision in exact.assigned)
    by_id = {view.id: view for view in one.workers}
    pending = {each.key: each for each in one.requests}
    for worker_taken, number in taken.items():
        assert worker_taken is not None
        view = by_id[worker_taken]
        assert view.available
        assert view.in_flight + number <= view.slots
    for decision in exact.assigned:
        assert decision.worker is not None
        assert by_id[decision.worker].memory_mb >= pending[decision.key].memory_mb
        numbers = decision.numbers
        assert numbers.p90_ms is not None
        assert numbers.budget_ms is not None
        assert numbers.p90_ms <= numbers.budget_ms
    # The first in the policy's order that can be served at all is.
    if greedy.assigned:
        assert greedy.assigned[0].key in keys_of[0]


@settings(max_examples=30)
@given(snapshots(), st.sampled_from(sorted(POLICIES)))
def test_an_exact_round_is_the_same_in_whatever_order_its_tuples_come(
    one: Snapshot, name: str
) -> None:
    turned = replace(one, requests=one.requests[::-1], workers=one.workers[::-1])
    assert plan(exactly(one), POLICIES[name]) == plan(exactly(turned), POLICIES[name])
