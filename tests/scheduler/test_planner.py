"""State kept between rounds changes nothing: every plan is that of a fresh start."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model import Reason, Rules
from scheduler.plan import plan
from scheduler.planner import Changes, Planner
from scheduler.policies import POLICIES
from tests.scheduler.make import (
    GWEI,
    NOW_S,
    block,
    model,
    pending,
    request,
    service,
    snapshot,
    worker,
    workers,
)

_POLICIES = [POLICIES[name] for name in sorted(POLICIES)]
_KEYS = st.integers(0, 15)
_NAMES = st.integers(1, 5)


@st.composite
def _moments(draw: st.DrawFn, number: int):
    seconds = 12 * number + draw(st.integers(0, 5))
    return snapshot(
        (),
        (),
        now_s=NOW_S + seconds + draw(st.floats(-5.0, 5.0)),
        block=block(
            number=100 + number,
            hash=bytes([number]) * 32,
            timestamp_s=NOW_S + seconds,
            base_fee_wei=draw(st.sampled_from([0, GWEI, 50 * GWEI])),
        ),
        rules=Rules(
            poster_bps=1_000,
            expected_batch=draw(st.sampled_from([1, 8])),
            max_wait_s=draw(st.sampled_from([1, 60])),
            block_interval_s=draw(st.sampled_from([0.0, 2.0])),
            base_fee_quantiles_ppm=draw(st.sampled_from([(), (1_100_000, 1_900_000, 4_000_000)])),
        ),
        recent_fees_wei=tuple(draw(st.lists(st.integers(0, 10**17), max_size=5))),
    ).moment


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_sequence_of_changes_gives_the_plans_of_a_fresh_start(data):
    planner = Planner()
    requests, pool = {}, {}
    for number in range(data.draw(st.integers(1, 6), label="rounds")):
        removed = [key for key in requests if data.draw(st.booleans(), label="leaves")]
        gone = [name for name in pool if data.draw(st.integers(0, 5), label="goes") == 0]
        added = [
            data.draw(pending(one), label="request")
            for one in data.draw(st.sets(_KEYS, max_size=8), label="new or changed")
        ]
        changed = [
            data.draw(workers(one), label="worker")
            for one in data.draw(st.sets(_NAMES, max_size=3), label="workers")
        ]
        for key in removed:
            del requests[key]
        for name in gone:
            del pool[name]
        requests |= {one.key: one for one in added}
        pool |= {one.id: one for one in changed}
        for one in list(pool.values()):
            if one not in changed and data.draw(st.booleans(), label="loaded"):
                pool[one.id] = replace(
                    one,
                    in_flight=data.draw(st.integers(0, 3)),
                    available=data.draw(st.booleans()),
                    service={
                        name: replace(estimate, base_ms=data.draw(st.floats(0, 5_000)))
                        for name, estimate in one.service.items()
                    },
                )
                changed.append(pool[one.id])
        planner.apply(Changes(added, removed, changed, gone))
        moment = data.draw(_moments(number), label="moment")
        policy = data.draw(st.sampled_from(_POLICIES), label="policy")
        fresh = replace(
            snapshot(tuple(requests.values()), tuple(pool.values())),
            block=moment.block,
            now_s=moment.now_s,
            rules=moment.rules,
            recent_fees_wei=moment.recent_fees_wei,
        )
        assert planner.pending == len(requests)
        assert planner.plan(moment, policy) == plan(fresh, policy)
        # Asked again, it says the same.
        assert planner.plan(moment, policy) == plan(fresh, policy)


def test_only_what_is_kept_for_another_reason_is_news():
    planner = Planner()
    busy = worker(in_flight=1)
    planner.apply(Changes([request(1), request(2, fee_wei=0)], workers=[busy]))
    moment = snapshot((), ()).moment
    assert planner.plan(moment).kept.news.tolist() == [True, True]
    assert planner.plan(moment).kept.news.tolist() == [False, False]
    planner.apply(Changes(workers=[replace(busy, available=False)]))
    kept = planner.plan(moment).kept
    assert [one.reason for one in kept] == [Reason.NO_AVAILABLE_WORKER, Reason.GAS_TOO_DEAR_NOW]
    assert kept.news.tolist() == [True, False]
    planner.apply(Changes(added=[request(1)]))  # changed, not new
    assert planner.plan(moment).kept.news.tolist() == [False, False]
    planner.apply(Changes(removed=[request(1).key]))
    planner.apply(Changes(added=[request(1)]))
    assert planner.plan(moment).kept.news.tolist() == [True, False]


def test_a_plan_stays_what_it_was_when_the_planner_goes_on():
    planner = Planner()
    requests = [request(n, fee_wei=0 if n % 2 else 10**17) for n in range(6)]
    planner.apply(Changes(requests, workers=[worker(slots=2)]))
    moment = snapshot((), ()).moment
    before = planner.plan(moment)
    planner.apply(
        Changes(
            [request(n, model=model(9), fee_wei=1, submitted_at_s=0) for n in range(20)],
            workers=[worker(slots=2, memory_mb=1, service={model(): service(7, 8)})],
        )
    )
    planner.plan(moment)
    assert before == plan(snapshot(tuple(requests), (worker(slots=2),)))


def test_names_that_nobody_uses_any_more_are_forgotten():
    planner = Planner()
    moment = snapshot((), ()).moment
    quick, slow = service(100, 100), service(9_000, 9_000)
    pool = [worker(in_flight=1, service={model(1): quick, model(2): slow})]
    left, stays = request(0, model=model(1)), request(1, model=model(2))
    planner.apply(Changes([left, stays], workers=pool))
    planner.plan(moment)
    planner.apply(Changes(removed=[left.key]))
    for n in range(2, 5_000, 500):
        strangers = [request(one, model=model(one + 7)) for one in range(n, n + 500)]
        planner.apply(Changes(strangers))
        planner.apply(Changes(removed=[one.key for one in strangers]))
    assert len(planner._table.models) < 4_500
    kept = planner.plan(moment).kept
    assert [one.key for one in kept] == [stays.key]
    assert kept.news.tolist() == [False]
    # It has the place now that the other model had; what is known of that is not for it.
    tight = request(1, model=model(2), deadline_s=NOW_S + 8)
    planner.apply(Changes(added=[tight]))
    assert planner.plan(moment) == plan(snapshot((tight,), tuple(pool)))
