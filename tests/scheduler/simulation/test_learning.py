"""Beliefs that are learnt: a past for who was there, and newcomers, drift and outages met by it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from inferd.workers.breaker import CircuitBreaker
from scheduler.allowance import Limits, Probation
from scheduler.model import WorkerId
from scheduler.policies.value import Value
from scheduler.predict_round import p90_ms, size_of
from scheduler.simulation.beliefs import Informed
from scheduler.simulation.engine import Simulation
from scheduler.simulation.learning import GUESS, PAST, Learning
from scheduler.simulation.leases import LeaseEnd, Verdict
from scheduler.simulation.outcome import Outcome
from scheduler.simulation.scenario import World
from scheduler.simulation.workers import POOLS, Conduct, SimWorker
from scheduler.simulation.workload import Demand, SimRequest, model_id
from tests.scheduler.simulation.worlds import learning, world

MODEL = model_id(0)


class Recorded(Learning):
    """Remembers every lease that ended."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.leases: list[LeaseEnd] = []

    def ended(self, lease: LeaseEnd) -> None:
        self.leases.append(lease)
        super().ended(lease)


def simulated(one: World) -> tuple[Outcome, Recorded]:
    beliefs = Recorded(one, 0.1, CircuitBreaker)
    return Simulation(one, Value(), beliefs).run(), beliefs


def leased(worker: SimWorker, request: SimRequest, at_ms: int, run_ms: int) -> LeaseEnd:
    return LeaseEnd(request, worker, at_ms - run_ms, at_ms, Verdict.VALID)


def test_who_was_there_is_known_and_who_joins_is_taken_for_one_of_them() -> None:
    one = world(pool=POOLS["newcomers"], requests=300)
    beliefs = learning(one)
    known, new = one.workers[0], one.workers[5]
    assert new.joins_at_ms > 0
    estimate = beliefs.estimate(known, MODEL, 0)
    assert estimate.samples == round((1 - 0.97**PAST) / 0.03)
    for tokens in (20.0, 150.0, 600.0):
        true_ms = known.service[MODEL].work_ms(int(tokens), 1.0)
        mean_ms = estimate.base_ms + estimate.per_token_ms * tokens
        assert mean_ms == pytest.approx(true_ms, rel=0.1)
    assert estimate.success_lower > 0.95
    assert 0.05 < estimate.sigma < 0.25
    prior = beliefs.estimate(new, MODEL, 0)
    assert prior.samples == 0
    assert prior.success_lower == pytest.approx(0.698, abs=1e-3)
    assert prior.base_ms + 200 * prior.per_token_ms == pytest.approx(300 + 200 * 30, rel=0.1)


def test_where_nobody_is_known_the_operators_guess_holds() -> None:
    one = world()
    late = replace(one.workers[0], joins_at_ms=1)
    estimate = learning(replace(one, workers=(late,))).estimate(late, MODEL, 0)
    assert estimate.base_ms == pytest.approx(GUESS.base_ms)
    assert estimate.per_token_ms == pytest.approx(GUESS.per_token_ms)


def test_a_worker_that_becomes_slow_is_believed_to_be_slow() -> None:
    one = world()
    worker, other = one.workers[:2]
    beliefs = learning(one)
    before = beliefs.estimate(worker, MODEL, 0)
    for n, request in enumerate(one.requests[:60]):
        true_ms = worker.service[MODEL].work_ms(request.generated_tokens, request.factor)
        beliefs.ended(leased(worker, request, 10_000 * (n + 1), int(3 * true_ms)))
    after = beliefs.estimate(worker, MODEL, 600_000)
    ratio = (after.base_ms + 200 * after.per_token_ms) / (
        before.base_ms + 200 * before.per_token_ms
    )
    assert ratio == pytest.approx(3.0, rel=0.15)
    unchanged = beliefs.estimate(other, MODEL, 600_000)
    assert unchanged.per_token_ms == pytest.approx(before.per_token_ms, rel=0.15)


def test_leases_that_expire_raise_the_p90_and_open_the_circuit() -> None:
    one = world()
    worker = one.workers[0]
    beliefs = learning(one)
    size = size_of(100.0, 0.0)
    before_ms = p90_ms(beliefs.estimate(worker, MODEL, 0), size)
    for n, request in enumerate(one.requests[:5]):
        assert beliefs.slots(worker, 1_000 * n) == worker.slots
        beliefs.ended(LeaseEnd(request, worker, 0, 1_000 * n + 60_000, Verdict.TIMEOUT))
    assert p90_ms(beliefs.estimate(worker, MODEL, 64_000), size) > 1.3 * before_ms
    assert beliefs.slots(worker, 64_000) == 0
    assert beliefs.slots(worker, 73_999) == 0
    assert beliefs.slots(worker, 74_000) == 1
    request = one.requests[5]
    beliefs.ended(leased(worker, request, 80_000, 5_000))
    assert beliefs.slots(worker, 80_000) == 1, "one that ended well proves little"
    beliefs.ended(leased(worker, one.requests[6], 90_000, 5_000))
    assert beliefs.slots(worker, 90_000) == worker.slots


def test_malicious_newcomers_soon_get_next_to_nothing() -> None:
    one = world(pool=POOLS["newcomers"], requests=600, demand=Demand(load=1.5))
    outcome, beliefs = simulated(one)
    leases = Counter(lease.worker.id for lease in beliefs.leases)
    failed = Counter(
        lease.worker.id for lease in beliefs.leases if lease.verdict is not Verdict.VALID
    )
    honest, bogus, silent, half = (worker.id for worker in one.workers[4:])
    assert failed[honest] <= 2
    assert leases[honest] > max(leases[bogus], leases[silent])
    # The first five open its circuit, and then one in ten seconds may try.
    length_s = (one.requests[-1].seen_at_ms - one.workers[4].joins_at_ms) / 1000
    for cheat in (bogus, silent):
        assert leases[cheat] == failed[cheat] <= 6 + length_s / 10
    assert beliefs.estimate(one.workers[5], MODEL, 10**6).success_lower < 0.5
    assert leases[half] < leases[honest]
    # Told that three of four cheat, but without a pause, it gives them far more.
    told = Simulation(one, Value(), Informed(0.1)).run()
    failures = [sum(end.attempts_failed for end in each.ends) for each in (told, outcome)]
    assert failures[0] > 3 * failures[1]


def most_at_once(leases: list[LeaseEnd], worker: WorkerId) -> list[tuple[int, int]]:
    """After each change, the time and how many of its leases run."""
    changes = sorted(
        change
        for lease in leases
        if lease.worker.id == worker
        for change in ((lease.began_ms, 1), (lease.at_ms, -1))
    )
    running, found = 0, []
    for at_ms, change in changes:
        running += change
        found.append((at_ms, running))
    return found


def test_a_newcomer_is_on_probation_until_it_has_proved_itself() -> None:
    one = world(requests=600, demand=Demand(load=2.0))
    new = replace(one.workers[0], slots=4, owned=False, joins_at_ms=12_000, stake_wei=10**18)
    terms = Probation(success=0.9, in_flight=2, stake_bps=10_000)
    rules = replace(one.rules, limits=Limits(probation=terms))
    _, beliefs = simulated(replace(one, workers=(new, *one.workers[1:]), rules=rules))
    running = most_at_once(beliefs.leases, new.id)
    first = next(at_ms for at_ms, number in running if number > 2)
    ended = [lease for lease in beliefs.leases if lease.worker.id == new.id]
    assert sum(lease.at_ms <= first for lease in ended) > 5
    assert max(number for _, number in running) == 4
    poor = replace(new, stake_wei=1)
    _, beliefs = simulated(replace(one, workers=(poor, *one.workers[1:]), rules=rules))
    assert not most_at_once(beliefs.leases, poor.id)


def test_an_outage_is_not_known_but_found_out() -> None:
    one = world(requests=200, demand=Demand(load=1.0))
    dead = replace(one.workers[0], speeds=(1.0, 0.0))
    here = replace(one, workers=(dead, *one.workers[1:]))
    assert Informed(0.1).slots(dead, 24_000) == 0
    assert learning(here).slots(dead, 24_000) == dead.slots
    outcome, beliefs = simulated(here)
    lost = [
        lease
        for lease in beliefs.leases
        if lease.verdict is Verdict.TIMEOUT and lease.worker.id == dead.id
    ]
    assert 5 <= len(lost) <= 5 + one.requests[-1].seen_at_ms / 10_000
    assert len(outcome.delivered) > 0.7 * len(one.requests)


def test_lengths_are_learnt_where_they_are_not_given() -> None:
    one = world(demand=Demand(load=0.1, tokens_sigma=0.0))
    request = replace(one.requests[0], generated_tokens=40, max_tokens=2_048)
    given, found = learning(one), learning(one, lengths=True)
    assert given.tokens(request) == (request.tokens_mean, request.tokens_sigma)
    before = found.tokens(request)
    for n in range(200):
        found.ended(leased(one.workers[0], request, 1_000 * (n + 1), 500))
    after = found.tokens(request)
    assert abs(after.mean - 40) < 8 < abs(before.mean - 40)
    assert after.sigma < before.sigma
    other = replace(request, model=model_id(1))
    assert found.tokens(other) == before


@pytest.mark.parametrize("pool", ["drifting", "failing", "newcomers"])
def test_the_same_world_teaches_the_same(pool: str) -> None:
    one = world(3, pool=POOLS[pool], requests=150)
    assert simulated(one)[0] == simulated(one)[0]


def test_failures_without_an_answer_say_nothing_about_speed() -> None:
    one = world()
    worker = replace(one.workers[0], conduct=Conduct.BOGUS)
    beliefs = learning(one)
    before = beliefs.estimate(worker, MODEL, 0)
    for request in one.requests[:4]:
        beliefs.ended(LeaseEnd(request, worker, 0, 10, Verdict.FAILED))
    after = beliefs.estimate(worker, MODEL, 0)
    assert (after.base_ms, after.per_token_ms) == (before.base_ms, before.per_token_ms)
    assert after.success_lower < before.success_lower
