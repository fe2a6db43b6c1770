"""What every plan keeps to, whatever it is asked."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.lease import MIN_LEASE_MS
from scheduler.model import Reason
from scheduler.plan import plan
from scheduler.policies import POLICIES, policy_named
from tests.scheduler.make import (
    ETH,
    NOW_S,
    model,
    p90_of,
    request,
    service,
    snapshot,
    snapshots,
    worker,
    worker_id,
)

policies = st.sampled_from([POLICIES[name] for name in sorted(POLICIES)])


@given(snapshots(), policies)
@settings(max_examples=300)
def test_every_plan_is_total_and_within_the_limits(round_, policy):
    result = plan(round_, policy)
    decisions = (*result.assigned, *result.kept, *result.refused)
    assert sorted(d.key for d in decisions) == sorted(r.key for r in round_.requests)
    assert all(d.sentence.endswith(".") for d in decisions)
    requests = {r.key: r for r in round_.requests}
    workers = {w.id: w for w in round_.workers}

    given_to = Counter(d.worker for d in result.assigned)
    for identity, number in given_to.items():
        worker_ = workers[identity]
        assert worker_.available
        assert number <= worker_.slots - worker_.in_flight
    for decision in result.assigned:
        one, worker_ = requests[decision.key], workers[decision.worker]
        assert decision.reason is Reason.ASSIGNED
        assert one.model in worker_.service
        assert one.memory_mb <= worker_.memory_mb
        left_ms = (one.deadline_s - round_.rules.inclusion_s - round_.moment.clock_s) * 1_000
        assert decision.numbers.p90_ms <= decision.numbers.budget_ms <= left_ms
        if worker_.loaded is None or one.model in worker_.loaded:
            assert p90_of(worker_.service[one.model], one) == pytest.approx(decision.numbers.p90_ms)
        assert 1 <= decision.lease_ms <= left_ms
        assert decision.lease_ms >= min(MIN_LEASE_MS, int(left_ms))
    for decision in (*result.kept, *result.refused):
        assert decision.worker is None
        assert decision.lease_ms is None


@given(snapshots(), policies, st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_its_inputs(round_, policy, rng):
    def shuffled(values):
        return tuple(rng.sample(values, len(values)))

    other = replace(
        round_,
        requests=shuffled(round_.requests),
        workers=tuple(
            replace(w, service=dict(shuffled(tuple(w.service.items()))))
            for w in shuffled(round_.workers)
        ),
        recent_fees_wei=shuffled(round_.recent_fees_wei),
    )
    assert plan(other, policy) == plan(round_, policy)


@given(snapshots())
def test_a_slot_is_left_free_only_if_nobody_kept_could_use_it(round_):
    """Work-conserving, except that a retry waits for a worker that has not failed on it."""
    result = plan(round_)
    taken = Counter(d.worker for d in result.assigned)
    requests = {r.key: r for r in round_.requests}
    for decision in result.kept:
        one = requests[decision.key]
        if decision.reason in (Reason.GAS_TOO_DEAR_NOW, Reason.INPUT_AWAITED) or one.tried:
            continue
        left_ms = decision.numbers.budget_ms
        for w in round_.workers:
            suits = one.model in w.service and w.memory_mb >= one.memory_mb and w.available
            if (
                suits
                and w.loaded is None
                and p90_of(w.service[one.model], one) < left_ms
                and w.owned
            ):
                assert w.in_flight + taken[w.id] >= w.slots


def test_the_choice_is_that_of_a_scan_over_all_pairs():
    """The heaps and trees against the plain rule, on a pool with every constraint in it."""
    rng = random.Random(5)
    workers = tuple(
        worker(
            n,
            slots=rng.randint(1, 4),
            memory_mb=rng.randint(1, 40) * 1_000,
            service={
                model(m): service(mean := rng.uniform(50, 5_000), mean * rng.uniform(1, 2.2))
                for m in (1, 2)
                if rng.random() < 0.7
            },
        )
        for n in range(60)
    )
    requests = tuple(
        request(
            n,
            model=model(rng.choice((1, 2))),
            memory_mb=rng.randint(1, 35) * 1_000,
            deadline_s=NOW_S + rng.randint(4, 20),
            submitted_at_s=NOW_S - n,
        )
        for n in range(400)
    )
    result = plan(snapshot(requests, workers), policy_named("fifo"))
    assigned = {d.key: d.worker for d in result.assigned}
    refused = {d.key for d in result.refused}
    used = Counter()
    for one in sorted(requests, key=lambda r: r.submitted_at_s):
        if one.key in refused:
            continue
        left_ms = (one.deadline_s - 3 - NOW_S) * 1_000
        fitting = [
            (w.service[one.model].base_ms * (w.slots + used[w.id]) / w.slots, w.id)
            for w in workers
            if one.model in w.service
            and w.memory_mb >= one.memory_mb
            and p90_of(w.service[one.model]) <= left_ms
            and used[w.id] < w.slots
        ]
        expected = min(fitting)[1] if fitting else None
        assert assigned.get(one.key) == expected
        used[expected] += 1
    assert len(assigned) > 60


def test_work_spreads_by_predicted_completion():
    fast = worker(1, slots=4, service={model(): service(1_000, 1_500)})
    slow = worker(2, slots=4, service={model(): service(1_400, 2_000)})
    result = plan(snapshot(tuple(request(n) for n in range(4)), (slow, fast)))
    # 1.0 s, then 1.25 s on the fast one; the idle slow one (1.4 s) comes before 1.5 s.
    assert [d.worker for d in result.assigned] == [worker_id(n) for n in (1, 1, 2, 1)]
    assert result.assigned[1].numbers.completion_ms == 1_250


def test_of_equal_workers_the_smaller_id_comes_first_in_any_order():
    for order in ((1, 2, 3), (3, 2, 1), (2, 3, 1)):
        result = plan(snapshot((request(1), request(2)), tuple(worker(n) for n in order)))
        assert [d.worker for d in result.assigned] == [worker_id(1), worker_id(2)]


def test_what_is_kept_comes_in_the_order_of_keys():
    fees = {1: 1, 2: ETH, 3: ETH // 100}  # too dear, richest, in between
    requests = tuple(request(n, fee_wei=fee) for n, fee in fees.items())
    result = plan(snapshot(requests, (worker(in_flight=1),)))
    assert [d.key.id for d in result.kept] == [1, 2, 3]
    requests = (request(1), request(2, fee_wei=ETH), request(3, fee_wei=1))
    result = plan(snapshot(requests, (worker(in_flight=1),)))
    assert [d.key.id for d in result.kept] == [1, 2, 3]


def test_a_tried_worker_is_passed_over_for_a_free_one():
    fast = worker(1, service={model(): service(100, 200)})
    one = request(tried=frozenset([worker_id(1)]), attempts=1)
    (decision,) = plan(snapshot((one,), (fast, worker(2)))).assigned
    assert decision.worker == worker_id(2)


def test_a_busy_untried_worker_is_waited_for_while_the_deadline_allows():
    tried = worker(1)
    busy = worker(2, in_flight=1)
    one = request(tried=frozenset([worker_id(1)]), attempts=1)
    (kept,) = plan(snapshot((one,), (tried, busy))).kept
    assert kept.reason is Reason.NO_FREE_SLOT
    assert "1 worker failed on it" in kept.sentence
    # p90 2 s + a slot free after 1 s + inclusion 3 s do not fit into 5 s: the tried one is reused.
    tight = replace(one, deadline_s=NOW_S + 5)
    (decision,) = plan(snapshot((tight,), (tried, busy))).assigned
    assert decision.worker == worker_id(1)


def test_a_tried_worker_is_reused_when_it_is_the_only_one():
    one = request(tried=frozenset([worker_id(1)]), attempts=1)
    (decision,) = plan(snapshot((one,), (worker(1), worker(2, available=False)))).assigned
    assert decision.worker == worker_id(1)


def test_a_failed_search_for_a_retry_does_not_hide_its_worker():
    erratic = worker(2, service={model(): service(4_500, 9_000)})
    one = request(deadline_s=NOW_S + 6, tried=frozenset([worker_id(1)]), attempts=1)
    (decision,) = plan(snapshot((one,), (worker(1), erratic))).assigned
    assert decision.worker == worker_id(1)


@pytest.mark.parametrize(
    ("p90_ms", "left_s", "lease_ms"), [(2_000, 597, 6_000), (500, 597, 5_000), (2_000, 4, 4_000)]
)
def test_a_lease_is_three_p90_at_least_5_s_and_ends_before_the_deadline(p90_ms, left_s, lease_ms):
    one = request(deadline_s=NOW_S + 3 + left_s)
    pool = (worker(service={model(): service(p90_ms / 2, p90_ms)}),)
    (decision,) = plan(snapshot((one,), pool)).assigned
    assert decision.lease_ms == lease_ms


def test_full_and_absent_workers_are_told_apart():
    (kept,) = plan(snapshot((request(),), (worker(in_flight=1),))).kept
    assert kept.reason is Reason.NO_FREE_SLOT
    assert "1 available worker with 1 slot can serve it." in kept.sentence
    (kept,) = plan(snapshot((request(),), (worker(available=False),))).kept
    assert kept.reason is Reason.NO_AVAILABLE_WORKER
    assert kept.sentence == "No worker that can serve it is available (1 worker registered)."


def test_twice_the_same_request_or_worker_is_an_error():
    with pytest.raises(ValueError, match="request 1 twice"):
        plan(snapshot((request(), request(fee_wei=ETH)), (worker(),)))
    with pytest.raises(ValueError, match=r"worker 0x0{39}1 twice"):
        plan(snapshot((), (worker(), worker(slots=2))))


def test_a_reused_id_on_another_branch_is_another_request():
    one = request()
    other = replace(one, key=replace(one.key, commitment=b"\xff" * 20))
    assert len(plan(snapshot((one, other), (worker(slots=2),))).assigned) == 2
