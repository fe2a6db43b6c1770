"""Plans under limits: quotas, fair shares, probation, budgets, and several policies at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.allowance import Bucket, Budget, Limits, Probation, Quota, Taken, Use
from scheduler.cover import Cover
from scheduler.experiment import Split, arm_of
from scheduler.model import Reason, Rules, Snapshot, TenantId
from scheduler.order import InvalidScores
from scheduler.plan import plan
from scheduler.planner import Changes, Planner
from scheduler.policies import DEFAULT, POLICIES
from scheduler.policies.orders import Fifo
from scheduler.quota import cost_tokens, level
from tests.scheduler.make import NOW_S, model, request, service, snapshot, snapshots, worker

TENANTS = tuple(TenantId(bytes([number]) * 20) for number in range(1, 4))
RULES = Rules(poster_bps=1_000, expected_batch=8)
SPLITS = st.builds(
    Split,
    st.permutations(sorted(POLICIES)).map(lambda names: tuple(POLICIES[n] for n in names[:2])),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.integers(1, 5),
)
ORDERINGS = st.one_of(st.sampled_from([POLICIES[name] for name in sorted(POLICIES)]), SPLITS)


def under(limits: Limits, **changes: Any) -> Rules:
    return replace(RULES, limits=limits, **changes)


@st.composite
def quotas(draw: st.DrawFn) -> Quota:
    return Quota(
        draw(st.sampled_from([0.0, 5.0])),
        draw(st.sampled_from([50.0, 500.0])),
        draw(st.sampled_from([0, 1, 3])),
        draw(st.sampled_from([0.5, 1.0, 3.0])),
    )


@st.composite
def limited_snapshots(draw: st.DrawFn) -> Snapshot:
    round_ = draw(snapshots())
    limits = Limits(
        quota=draw(quotas()),
        quotas={TENANTS[0]: draw(quotas())},
        fair_quantum_tokens=draw(st.sampled_from([0.0, 40.0, 1_000.0])),
        probation=Probation(
            draw(st.sampled_from([0.0, 0.8])), draw(st.integers(1, 2)), draw(st.integers(0, 10_000))
        ),
    )
    uses = {
        tenant: Use(
            draw(st.integers(0, 3)),
            draw(st.none() | st.builds(Bucket, st.floats(-100, 400), st.just(NOW_S - 10.0))),
            draw(st.sampled_from([0.0, 30.0])),
        )
        for tenant in draw(st.sets(st.sampled_from(TENANTS)))
    }
    budgets = draw(
        st.sampled_from(
            [(), (Budget(3_600, 10**14, 0),), (Budget(3_600, 10**15, 9 * 10**14), Budget(9, 1, 0))]
        )
    )
    return replace(
        round_,
        requests=tuple(
            replace(
                one,
                tenant=draw(st.sampled_from(TENANTS)),
                tokens_mean=float(draw(st.integers(0, 64))),
                charged=draw(st.booleans()),
            )
            for one in round_.requests
        ),
        workers=tuple(
            replace(
                one,
                service={
                    model: replace(estimate, success_lower=draw(st.sampled_from([0.5, 0.9])))
                    for model, estimate in one.service.items()
                },
                stake_wei=draw(st.sampled_from([0, 10**16, 10**18])),
                fees_in_hand_wei=draw(st.sampled_from([0, 10**15])),
            )
            for one in round_.workers
        ),
        rules=replace(round_.rules, limits=limits),
        taken=Taken(uses, budgets),
    )


@given(limited_snapshots(), ORDERINGS)
@settings(max_examples=100)
def test_no_limit_is_exceeded_and_nothing_is_lost(round_: Snapshot, ordering: Any) -> None:
    result = plan(round_, ordering)
    decisions = (*result.assigned, *result.kept, *result.refused)
    assert sorted(d.key for d in decisions) == sorted(r.key for r in round_.requests)
    assert all(d.sentence.endswith(".") and "?" not in d.sentence for d in decisions)
    limits, requests = round_.rules.limits, {r.key: r for r in round_.requests}

    given_to: Counter[bytes] = Counter()
    for decision in result.assigned:
        given_to[requests[decision.key].tenant] += 1
    for tenant, number in given_to.items():
        quota, use = limits.quota_of(tenant), round_.taken.uses.get(tenant, Use())
        if quota.in_flight:
            assert use.in_flight + number <= quota.in_flight
        if quota.tokens_per_s:
            costs = [
                cost_tokens(one.input_bytes, one.tokens_mean)
                for one in (requests[d.key] for d in result.assigned)
                if one.tenant == tenant and not one.charged
            ]
            tokens = level(use.bucket, quota, round_.now_s)
            allowed = max(tokens, sum(costs[:-1]) + costs[-1] if costs else 0.0)
            assert sum(costs) <= allowed

    workers = {w.id: w for w in round_.workers}
    for identity, number in Counter(d.worker for d in result.assigned).items():
        one = workers[identity]
        assert number <= one.slots - one.in_flight
        proved = max(estimate.success_lower for estimate in one.service.values())
        if not one.owned and proved < limits.probation.success:
            assert one.in_flight + number <= limits.probation.in_flight
            fees = sum(requests[d.key].fee_wei for d in result.assigned if d.worker == identity)
            room = one.stake_wei * limits.probation.stake_bps // 10_000 - one.fees_in_hand_wei
            assert fees <= max(0, room)

    cover = Cover(round_.moment, len(round_.workers))
    spent = sum(
        cover.cost_wei(cover.delivery_gas_of(one), batchable=one.batchable)
        for one in (requests[d.key] for d in result.assigned)
    )
    for budget in round_.taken.budgets:
        assert spent <= max(0, budget.left_wei)


@given(limited_snapshots(), ORDERINGS, st.data())
@settings(max_examples=60)
def test_a_planner_that_is_kept_plans_as_one_that_is_new(
    round_: Snapshot, ordering: Any, data: st.DataObject
) -> None:
    planner = Planner()
    other = data.draw(limited_snapshots())
    planner.apply(Changes(added=other.requests, workers=other.workers))
    planner.plan(other.moment, ordering)
    planner.apply(
        Changes(
            removed=[one.key for one in other.requests],
            added=round_.requests,
            workers_gone=[one.id for one in other.workers],
            workers=round_.workers,
        )
    )
    assert planner.plan(round_.moment, ordering) == plan(round_, ordering)


def many(count: int, **changes: Any) -> tuple[Any, ...]:
    return tuple(request(number, **changes) for number in range(1, count + 1))


def test_arms_share_the_slots_and_keep_their_policies_order() -> None:
    requests = tuple(
        request(number, fee_wei=10**16 + number * 10**12, submitted_at_s=NOW_S - number)
        for number in range(1, 201)
    )
    split = Split((POLICIES["fee-first"], POLICIES["fifo"]), (3, 1), 4)
    result = plan(snapshot(requests, (worker(slots=40),)), split)
    arms = [arm_of(d.key.commitment, 4, (3, 1)) for d in result.assigned]
    assert np.bincount(arms).tolist() == [30, 10]
    for arm, best in ((0, "fee-first"), (1, "fifo")):
        mine = [d.key.id for d, one in zip(result.assigned, arms, strict=True) if one == arm]
        members = [one for one in requests if arm_of(one.key.commitment, 4, (3, 1)) == arm]
        alone = plan(snapshot(tuple(members), (worker(slots=len(mine)),)), POLICIES[best])
        assert mine == [d.key.id for d in alone.assigned]
    assert result.policy == "fee-first=3,fifo=1"
    assert result.policy_version == "1,1#4/2"


def test_each_arm_chooses_workers_in_its_own_way() -> None:
    workers = tuple(
        worker(number, slots=50, service={next(iter(worker().service)): service(mean)})
        for number, mean in ((1, 100.0), (2, 1_900.0))
    )
    requests = many(40)
    split = Split((POLICIES["fifo"], POLICIES["least-requests"]), (1, 3), 1)
    result = plan(snapshot(requests, workers), split)
    arms = [arm_of(d.key.commitment, 1, (1, 3)) for d in result.assigned]
    by_arm = [
        Counter(d.worker for d, one in zip(result.assigned, arms, strict=True) if one == arm)
        for arm in (0, 1)
    ]
    assert len(by_arm[0]) == 1, "fifo takes the fast one"
    assert len(by_arm[1]) == 2


def test_fair_turns_let_a_small_tenant_in_and_carry_what_it_is_owed() -> None:
    flood = tuple(
        request(number, tenant=TENANTS[0], fee_wei=10**18, tokens_mean=8.0)
        for number in range(1, 51)
    )
    small = tuple(request(number, tenant=TENANTS[1], tokens_mean=8.0) for number in range(51, 54))
    cost = cost_tokens(32, 8.0)
    round_ = snapshot(
        (*flood, *small), (worker(slots=6),), rules=under(Limits(fair_quantum_tokens=cost))
    )
    result = plan(round_)
    assert sorted(d.key.id for d in result.assigned)[3:] == [51, 52, 53]
    assert result.deficits == {TENANTS[0]: 0.0, TENANTS[1]: 0.0}
    unfair = plan(replace(round_, rules=RULES))
    assert all(d.key.id <= 50 for d in unfair.assigned)
    assert unfair.deficits == {}

    tight = replace(round_, workers=(worker(slots=3),))
    first = plan(tight)
    assert first.deficits[TENANTS[1]] == cost, "its second turn came and no slot was left"
    owed = Taken({TENANTS[1]: Use(deficit_tokens=first.deficits[TENANTS[1]])})
    left = tuple(r for r in tight.requests if r.key not in {d.key for d in first.assigned})
    second = plan(replace(tight, requests=left, taken=owed))
    assert [d.key.id > 50 for d in second.assigned].count(True) == 2


@pytest.mark.parametrize(
    ("limits", "taken", "reason", "words"),
    [
        (
            Limits(quota=Quota(in_flight=2)),
            Taken({request().tenant: Use(2)}),
            Reason.TENANT_IN_FLIGHT,
            "Its requester has 2 requests in work; the limit is 2.",
        ),
        (
            Limits(quota=Quota(1.0, 100.0)),
            Taken({request().tenant: Use(bucket=Bucket(1.0, NOW_S - 2.0))}),
            Reason.TENANT_RATE,
            "It costs 24 tokens, and its requester may take 3 now; more come with time.",
        ),
        (
            Limits(),
            Taken(budgets=(Budget(3_600, 10**14, 10**14 - 1),)),
            Reason.BUDGET_SPENT,
            "Its gas does not fit into the spending budget, of which 9.99",
        ),
        (
            Limits(probation=Probation(0.9, 1)),
            Taken(),
            Reason.PROBATION_CAP,
            "All that are free for it are on probation (1 in number) and have as much in hand as"
            " they may: 1 at a time, and fees by their stake.",
        ),
        (
            Limits(unposted=10),
            Taken(unposted=10),
            Reason.POSTING_BEHIND,
            "10 results wait for room in a post; from 10 on, no request is begun.",
        ),
    ],
)
def test_each_limit_has_its_reason_and_sentence(
    limits: Limits, taken: Taken, reason: Reason, words: str
) -> None:
    one = request(tokens_mean=8.0)
    beginner = worker(
        owned=False, slots=4, service={one.model: service(success_lower=0.5)}, stake_wei=one.fee_wei
    )
    round_ = snapshot((one,), (beginner,), rules=under(limits), taken=taken)
    if reason is Reason.PROBATION_CAP:
        round_ = replace(round_, workers=(replace(beginner, fees_in_hand_wei=1),))
    (kept,) = plan(round_).kept
    assert kept.reason is reason
    assert kept.sentence.startswith(words.replace("9.99", "")), kept.sentence
    assert not plan(replace(round_, rules=RULES, taken=Taken())).kept


@pytest.mark.parametrize("flow_arcs", [0, 100])
def test_while_posting_is_behind_nothing_is_begun_and_all_else_is_decided(flow_arcs: int) -> None:
    hopeless = request(4, deadline_s=NOW_S + 1)
    rules = under(Limits(fair_quantum_tokens=10.0, unposted=10), flow_arcs=flow_arcs)
    round_ = snapshot((*many(3), hopeless), (worker(slots=2),), rules=rules)
    behind = plan(replace(round_, taken=Taken(unposted=11)))
    assert len(behind.assigned) == 0
    assert [d.reason for d in behind.kept] == [Reason.POSTING_BEHIND] * 3
    assert [d.reason for d in behind.refused] == [Reason.DEADLINE_INFEASIBLE]
    assert behind.deficits == {}
    assert len(plan(replace(round_, taken=Taken(unposted=9))).assigned) == 2


def test_a_charged_request_needs_no_tokens() -> None:
    limits = Limits(quota=Quota(1.0, 100.0))
    empty = Taken({request().tenant: Use(bucket=Bucket(0.0, float(NOW_S)))})
    round_ = snapshot((request(charged=True),), (worker(),), rules=under(limits), taken=empty)
    assert len(plan(round_).assigned) == 1
    assert not plan(replace(round_, requests=(request(),))).assigned


def test_a_rich_request_waits_for_a_trusted_worker_and_a_cheap_one_goes_by() -> None:
    rich, cheap = request(1, fee_wei=10**18), request(2, fee_wei=10**16)
    beginner = worker(
        1, owned=False, slots=9, service={rich.model: service(10.0, success_lower=0.1)}
    )
    beginner = replace(beginner, stake_wei=10**17)
    rules = under(Limits(probation=Probation(0.9, 3)))
    result = plan(snapshot((rich, cheap), (beginner,), rules=rules))
    assert [d.key.id for d in result.assigned] == [2]
    assert [d.reason for d in result.kept] == [Reason.PROBATION_CAP]
    proven = worker(2, slots=1, service={rich.model: service(900.0)})
    result = plan(snapshot((rich, cheap), (beginner, proven), rules=rules))
    assert {d.key.id: d.worker for d in result.assigned} == {1: proven.id, 2: beginner.id}


def test_whoever_is_on_probation_may_serve_a_model_that_nobody_asks_for() -> None:
    beginner = worker(
        1, owned=False, slots=2, service={model(2): service(success_lower=0.1)}, stake_wei=10**18
    )
    busy = worker(2, in_flight=1)
    rules = under(Limits(probation=Probation(0.9, 3)))
    result = plan(snapshot((request(),), (beginner, busy), rules=rules))
    assert [d.reason for d in result.kept] == [Reason.NO_FREE_SLOT]


class Fails(Fifo):
    def scores(self, view: Any) -> Any:
        return np.full(len(view), np.nan)


def test_a_planner_goes_on_after_a_policy_that_failed() -> None:
    round_ = snapshot(many(5), (worker(slots=2),))
    planner = Planner()
    planner.apply(Changes(added=round_.requests, workers=round_.workers))
    with pytest.raises(InvalidScores):
        planner.plan(round_.moment, Fails())
    assert planner.plan(round_.moment, DEFAULT) == plan(round_)


def test_a_worker_on_probation_has_few_at_a_time() -> None:
    beginner = worker(
        slots=9, in_flight=1, owned=False, service={request().model: service(success_lower=0.1)}
    )
    beginner = replace(beginner, stake_wei=10**20)
    rules = under(Limits(probation=Probation(0.9, 3)))
    result = plan(snapshot(many(5), (beginner,), rules=rules))
    assert len(result.assigned) == 2
    assert {d.reason for d in result.kept} == {Reason.PROBATION_CAP}
