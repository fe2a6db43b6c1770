"""The simulator: deterministic, and nothing and no money is lost in it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model import Reason
from scheduler.policies import POLICIES, Floats, OrderView, Policy
from scheduler.policies.value import Value
from scheduler.simulation.beliefs import Informed
from scheduler.simulation.engine import ROUND_GAP_MS, Simulation
from scheduler.simulation.leases import fails_on
from scheduler.simulation.outcome import End
from scheduler.simulation.scenario import GWEI, World
from scheduler.simulation.workers import NEVER_MS, POOLS, SEGMENT_MS, Conduct, TrueService
from scheduler.simulation.workload import START_S, Demand
from tests.scheduler.simulation.worlds import run, world, worlds


@settings(max_examples=25)
@given(worlds(), st.sampled_from(sorted(POLICIES)), st.booleans())
def test_every_request_ends_once_and_money_balances(one: World, policy: str, learns: bool) -> None:
    outcome = run(one, policy, learns=learns)
    assert [end.request for end in outcome.ends] == list(one.requests)
    assert sum(outcome.counts().values()) == len(one.requests)
    paid_wei = sum(request.fee_wei for request in one.requests)
    assert outcome.fees_wei + outcome.refunds_wei == paid_wei
    assert sum(post.fees_wei for post in outcome.posts) == outcome.fees_wei
    assert outcome.value_wei == outcome.fees_wei - sum(
        post.gas * (one.base_fees_wei[post.block] + one.posting.priority_fee_wei)
        for post in outcome.posts
    )
    workers_wei = outcome.fees_wei - sum(post.revenue_wei for post in outcome.posts)
    assert outcome.operator_wei + workers_wei == outcome.value_wei
    assert workers_wei >= 0
    posted = sum(post.results for post in outcome.posts)
    counts = outcome.counts()
    assert posted == counts.get(End.DELIVERED, 0) + counts.get(End.LATE, 0)


@settings(max_examples=25)
@given(worlds(), st.sampled_from(sorted(POLICIES)), st.booleans())
def test_times_are_in_order_and_nothing_is_delivered_late(
    one: World, policy: str, learns: bool
) -> None:
    outcome = run(one, policy, learns=learns)
    assert outcome.negative_slack == 0
    assert End.LATE not in outcome.counts()
    workers = {worker.id: worker for worker in one.workers}
    for end in outcome.delivered:
        assert min(end.queue_ms, end.run_ms, end.post_ms) >= 0
        assert end.mined_at_ms is not None
        assert START_S + end.mined_at_ms // 1000 <= end.request.deadline_s
        assert end.worker is not None
        worker = workers[end.worker]
        assert not fails_on(end.request, worker)
        fastest = max(worker.speeds)
        work_ms = worker.service[end.request.model].work_ms(
            end.request.generated_tokens, end.request.factor
        )
        assert end.run_ms >= int(work_ms / fastest)


@settings(max_examples=25)
@given(worlds(), st.sampled_from(sorted(POLICIES)), st.booleans())
def test_no_worker_runs_more_than_its_slots(one: World, policy: str, learns: bool) -> None:
    outcome = run(one, policy, learns=learns)
    changes: dict[bytes, list[tuple[int, int]]] = {worker.id: [] for worker in one.workers}
    for end in outcome.delivered:
        assert end.worker is not None
        assert end.leased_at_ms is not None
        assert end.computed_at_ms is not None
        changes[end.worker] += [(end.leased_at_ms, 1), (end.computed_at_ms, -1)]
    for worker in one.workers:
        running = 0
        for _, change in sorted(changes[worker.id]):
            running += change
            assert running <= worker.slots


@pytest.mark.parametrize("pool", sorted(POOLS))
def test_the_same_seed_gives_the_same_outcome(pool: str) -> None:
    one, other = (world(7, pool=POOLS[pool]) for _ in range(2))
    assert one == other
    assert run(one) == run(other)
    assert run(world(8, pool=POOLS[pool])) != run(one)


def test_a_seed_asks_every_policy_the_same() -> None:
    one = world()
    outcomes = [run(one, policy) for policy in POLICIES]
    assert len({tuple(end.request for end in outcome.ends) for outcome in outcomes}) == 1


def test_load_is_work_over_capacity() -> None:
    for load in (0.5, 2.0):
        one = world(demand=Demand(load=load), requests=800)
        work_ms = sum(
            worker.service[request.model].work_ms(request.generated_tokens, 1.0)
            for request in one.requests
            for worker in one.workers[:1]
        )
        slots = sum(worker.slots for worker in one.workers)
        length_ms = one.requests[-1].seen_at_ms - one.requests[0].seen_at_ms
        assert work_ms / (slots * length_ms) == pytest.approx(load, rel=0.1)


def test_a_prediction_has_the_stated_spread_and_no_bias() -> None:
    one = world(demand=Demand(load=1.0, tokens_sigma=0.4), requests=4_000)
    logs = [
        np.log(request.generated_tokens / request.tokens_mean)
        for request in one.requests
        if request.tokens_mean < request.max_tokens and request.tokens_mean > 5.0
    ]
    assert all(1.0 <= request.tokens_mean <= request.max_tokens for request in one.requests)
    # What is cut off at max_tokens takes away predictions that are too long.
    assert 0.2 < float(np.std(logs)) < 0.4
    exact = world(demand=Demand(load=1.0), requests=100)
    assert all(request.tokens_mean == request.generated_tokens for request in exact.requests)


def test_richer_tenants_and_fees_follow_their_laws() -> None:
    one = world(demand=Demand(load=1.0, fee_sigma=0.5), requests=6_000)
    logs = np.log([request.fee_wei for request in one.requests])
    assert float(np.mean(logs)) == pytest.approx(np.log(10**15), abs=0.05)
    assert float(np.std(logs)) == pytest.approx(0.5, abs=0.03)
    counts = sorted(
        np.unique([request.tenant for request in one.requests], return_counts=True)[1].tolist(),
        reverse=True,
    )
    assert counts[0] / counts[3] == pytest.approx(4**1.1, rel=0.25)


def test_work_crosses_segments_at_their_speeds() -> None:
    worker = replace(world().workers[0], speeds=(1.0, 0.5, 0.0, 2.0))
    assert worker.end_ms(0, 1_000.0) == 1_000
    assert worker.end_ms(SEGMENT_MS - 500, 1_000.0) == SEGMENT_MS + 1_000
    # All of the second segment gives half of it; the outage nothing; the rest at double speed.
    assert worker.end_ms(SEGMENT_MS, SEGMENT_MS * 1.0) == 3 * SEGMENT_MS + SEGMENT_MS // 4
    assert replace(worker, speeds=(0.0,)).end_ms(0, 1.0) == NEVER_MS


def test_a_silent_worker_costs_a_lease_and_its_request_goes_to_another() -> None:
    one = world(requests=40, demand=Demand(load=0.4, slack=(8.0, 20.0)))
    silent = replace(one.workers[0], failure=1.0, conduct=Conduct.SILENT)
    outcome = run(replace(one, workers=(silent, *one.workers[1:])), "edf")
    assert all(end.worker != silent.id for end in outcome.delivered)
    retried = [end for end in outcome.delivered if end.attempts_failed]
    assert retried
    # The other workers are asked before it is asked again.
    assert max(end.attempts_failed for end in outcome.ends) == 1
    for end in retried:
        assert end.leased_at_ms is not None
        assert end.first_leased_at_ms is not None
        assert end.leased_at_ms > end.first_leased_at_ms + 1_000


def test_a_request_is_given_up_after_its_attempts() -> None:
    one = world(requests=20)
    failing = tuple(replace(worker, failure=1.0) for worker in one.workers)
    outcome = run(replace(one, workers=failing))
    assert not outcome.delivered
    assert not outcome.posts
    reasons = {end.reason for end in outcome.ends}
    assert reasons <= {
        Reason.ATTEMPTS_EXHAUSTED,
        Reason.EXPIRED,
        Reason.DEADLINE_INFEASIBLE,
    }
    assert Reason.ATTEMPTS_EXHAUSTED in reasons
    assert max(end.attempts_failed for end in outcome.ends) == one.rules.max_attempts


def test_newcomers_are_not_used_before_they_join() -> None:
    one = world(pool=POOLS["newcomers"], requests=300)
    joining = {worker.id: worker.joins_at_ms for worker in one.workers}
    outcome = run(one)
    used = {end.worker for end in outcome.delivered}
    assert any(joining[worker] > 0 for worker in used if worker)
    for end in outcome.delivered:
        assert end.worker is not None
        assert end.leased_at_ms is not None
        assert end.leased_at_ms >= joining[end.worker]


def test_a_cold_model_takes_its_load_time() -> None:
    one = world(demand=Demand(load=0.3, models=3, noise_sigma=0.0), requests=60)
    cold = replace(one, workers=tuple(replace(worker, load_ms=500.0) for worker in one.workers))
    quick, slow = run(one), run(cold)
    service = TrueService(300.0, 30.0)
    extra_ms = {
        end.run_ms - int(service.work_ms(end.request.generated_tokens, 1.0))
        for end in slow.delivered
    }
    assert extra_ms <= {0, 1, 500, 501}
    assert max(extra_ms) >= 500
    assert all(
        end.run_ms - int(service.work_ms(end.request.generated_tokens, 1.0)) <= 1
        for end in quick.delivered
    )


def test_gas_that_eats_the_fees_delivers_nothing_at_a_loss() -> None:
    one = world(requests=80)
    dear = replace(one, base_fees_wei=tuple(400 * GWEI for _ in one.base_fees_wei))
    outcome = run(dear)
    assert not any(post.at_a_loss for post in outcome.posts)
    assert outcome.operator_wei >= 0


@pytest.mark.parametrize("policy", list(POLICIES.values()), ids=list(POLICIES))
def test_idle_workers_serve_everything_under_any_policy(policy: Policy) -> None:
    one = world(demand=Demand(load=0.1, slack=(10.0, 20.0)), requests=40)
    calm = replace(one, base_fees_wei=tuple(GWEI // 100 for _ in one.base_fees_wei))
    outcome = Simulation(calm, policy, Informed(0.1)).run()
    assert outcome.counts() == {End.DELIVERED: 40}


class Broken(Value):
    """Fails in every round but the first."""

    __slots__ = ("rounds",)

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "rounds", 0)

    def scores(self, view: OrderView) -> Floats:
        object.__setattr__(self, "rounds", self.rounds + 1)
        if self.rounds > 1:
            raise RuntimeError("no idea")
        return super().scores(view)


def test_a_policy_that_fails_is_replaced_and_counted() -> None:
    one = world(requests=60)
    outcome = Simulation(one, Broken(), Informed(0.1)).run()
    assert outcome.fallbacks == outcome.rounds - 1 > 0
    assert outcome.delivered
    assert run(one).fallbacks == 0


class Watching(Value):
    """Remembers when its rounds were."""

    __slots__ = ("rounds_s",)

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "rounds_s", [])

    def scores(self, view: OrderView) -> Floats:
        self.rounds_s.append(view.now_s)
        return super().scores(view)


def test_rounds_are_at_blocks_and_otherwise_apart() -> None:
    one = world(requests=200, demand=Demand(load=3.0, noise_sigma=0.0, fee_sigma=0.0))
    policy = Watching()
    outcome = Simulation(one, policy, Informed(0.1)).run()
    assert 50 < len(policy.rounds_s) <= len(one.base_fees_wei) + outcome.dispatches
    for before_s, after_s in pairwise(policy.rounds_s):
        at_block = (after_s - START_S) % (one.block_ms / 1000) == 0
        assert at_block or after_s - before_s >= ROUND_GAP_MS / 1000 - 1e-6
