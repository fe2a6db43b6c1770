"""Which worker each policy chooses, and what becomes of policies that answer nonsense."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from scheduler.allowance import Limits, Quota
from scheduler.model import Reason
from scheduler.order import InvalidScores
from scheduler.plan import plan
from scheduler.policies import POLICIES
from scheduler.policies.balanced import Balanced
from scheduler.policies.orders import Fifo
from scheduler.policies.protocol import LoadsView
from scheduler.policies.value import Value
from scheduler.seats import InvalidKeys
from tests.scheduler.make import (
    ETH,
    NOW_S,
    block,
    model,
    request,
    service,
    snapshot,
    snapshots,
    worker,
    worker_id,
)


def _chosen(policy: str, workers, number: int = 1, **changes: Any) -> list[int]:
    """The numbers of the workers that equal requests get, the oldest first."""
    requests = tuple(request(n, submitted_at_s=NOW_S - 100 + n) for n in range(number))
    result = plan(snapshot(requests, tuple(workers), **changes), POLICIES[policy])
    return [int.from_bytes(one.worker, "big") for one in result.assigned]


def test_there_are_eleven():
    others = {"round-robin", "weighted-round-robin", "least-requests", "p2c", "peak-ewma"}
    orders = {"value", "balanced", "weighted-raw", "fifo", "edf", "fee-first"}
    assert set(POLICIES) == orders | others
    assert all(POLICIES[name].name == name for name in POLICIES)


def test_round_robin_goes_round_and_begins_one_further_on_at_each_block():
    workers = [worker(n, slots=3) for n in (1, 2, 3)]
    assert _chosen("round-robin", workers, 5, block=block(number=0)) == [1, 2, 3, 1, 2]
    assert _chosen("round-robin", workers, 5, block=block(number=1)) == [2, 3, 1, 2, 3]


def test_weighted_round_robin_gives_in_proportion_to_what_each_can_serve():
    quick = worker(1, slots=40, service={model(): service(1_000, 2_000)})
    slow = worker(2, slots=20, service={model(): service(2_000, 3_000)})
    given_to = Counter(_chosen("weighted-round-robin", [quick, slow], 25))
    assert given_to == {1: 20, 2: 5}  # 40 / 1 s against 20 / 2 s


def test_least_requests_takes_the_emptiest():
    workers = [worker(1, slots=4, in_flight=2), worker(2, slots=2), worker(3, slots=8, in_flight=1)]
    # (used + 1) / slots: 3/4, 1/2, 2/8; then 3/8, 4/8 on par with the second.
    assert _chosen("least-requests", workers, 4) == [3, 3, 2, 3]


def test_peak_ewma_takes_latency_times_requests():
    def of(number: int, ewma_ms: float, in_flight: int):
        estimate = service(ewma_ms=ewma_ms)
        return worker(number, slots=4, in_flight=in_flight, service={model(): estimate})

    assert _chosen("peak-ewma", [of(1, 900, 0), of(2, 400, 1)]) == [2]
    assert _chosen("peak-ewma", [of(1, 900, 0), of(2, 500, 1)]) == [1]
    # Without a measurement the mean stands for it, 1 s.
    assert _chosen("peak-ewma", [of(1, 1_100, 0), of(2, 0, 0)]) == [2]


def test_two_are_drawn_by_block_and_request_alone():
    workers = [worker(n, slots=30) for n in range(1, 31)]
    first = _chosen("p2c", workers, 20)
    assert first == _chosen("p2c", workers[::-1], 20)
    assert first != _chosen("p2c", workers, 20, block=block(hash=b"\x12" * 32))
    assert len(set(first)) > 8
    # The busier of the two never wins: nobody takes the one that is almost full.
    busy = replace(workers[0], in_flight=29)
    assert 1 not in _chosen("p2c", [busy, *workers[1:]], 40)


def test_a_cold_model_is_loaded_only_where_that_is_worth_it():
    cold = worker(1, loaded=frozenset(), service={model(): service(500, 600, load_ms=3_000)})
    warm = worker(2, slots=2, service={model(): service(2_000, 2_500)})
    assert _chosen("fifo", [cold, warm], 3) == [2, 2, 1]  # 2.0 s, 3.0 s, 3.5 s
    assert _chosen("fifo", [replace(cold, loaded=frozenset([model()])), warm]) == [1]


def test_a_longer_answer_goes_where_tokens_are_quick():
    prompt = worker(1, service={model(): service(100, 100, per_token_ms=20)})
    fluent = worker(2, service={model(): service(1_000, 1_000, per_token_ms=2)})
    for tokens, number in ((1, 1), (400, 2)):
        (one,) = plan(snapshot((request(tokens_mean=float(tokens)),), (prompt, fluent))).assigned
        assert one.worker == worker_id(number)


def test_the_weights_of_balanced_are_relative_and_recorded():
    assert Balanced(6, 3, 1).version == "1:6/3/1"
    old = request(1, submitted_at_s=NOW_S - 50, fee_wei=ETH // 100)
    rich = request(2, fee_wei=ETH)
    round_ = snapshot((old, rich), (worker(),))
    assert plan(round_, Balanced()).assigned[0].key == rich.key
    assert plan(round_, Balanced(fee=1, wait=9, urgency=0)).assigned[0].key == old.key
    assert plan(round_, Balanced()).policy_version == Balanced().version


@pytest.mark.parametrize("weights", [(-1, 1, 1), (0, 0, 0), (float("nan"), 1, 1)])
def test_weights_that_weigh_nothing_are_refused(weights):
    with pytest.raises(ValueError, match="weights of `balanced`"):
        Balanced(*weights)


def test_value_prefers_what_earns_more_in_a_slot_second():
    long = request(1, model=model(1), fee_wei=ETH)
    short = request(2, model=model(2), fee_wei=ETH // 2)
    one = worker(service={model(1): service(4_000, 4_000), model(2): service(1_000, 1_000)})
    assert plan(snapshot((long, short), (one,))).assigned[0].key == short.key
    shaky = {model(2): service(1_000, 1_000, success_lower=0.2)}
    one = replace(one, service={**one.service, **shaky})
    assert plan(snapshot((long, short), (one,))).assigned[0].key == long.key


def test_value_prefers_what_is_now_or_never_of_two_alike():
    patient = request(1, fee_wei=ETH * 12 // 10, deadline_s=NOW_S + 600)
    urgent = request(2, deadline_s=NOW_S + 6, fee_wei=ETH)
    round_ = snapshot((patient, urgent), (worker(),))
    assert plan(round_).assigned[0].key == urgent.key
    assert plan(round_, Value(slack_boost=0.0)).assigned[0].key == patient.key


@dataclass(frozen=True, slots=True)
class _Odd(Fifo):
    score: float = 1.0
    extra: int = 0
    key: float = 1.0

    def scores(self, view: Any) -> Any:
        return np.full(len(view) + self.extra, self.score)

    def work(self, seats: Any) -> Any:
        return np.full(len(seats.slots), self.key)


@pytest.mark.parametrize(
    ("odd", "error"),
    [
        (_Odd(extra=1), InvalidScores),
        (_Odd(score=float("nan")), InvalidScores),
        (_Odd(score=float("inf")), InvalidScores),
        (_Odd(key=float("nan")), InvalidKeys),
        (_Odd(key=-1.0), InvalidKeys),
        (_Odd(key=float("inf")), InvalidKeys),
    ],
)
def test_an_invalid_answer_of_a_policy_is_an_error(odd, error):
    with pytest.raises(error, match="policy fifo gave"):
        plan(snapshot((request(),), (worker(),)), odd)


@dataclass(frozen=True, slots=True)
class _Falling(Fifo):
    """Against the rules: a worker is the more wanted the more it has."""

    def load(self, workers: LoadsView, used: Any) -> Any:
        return 1.0 / (1.0 + used)


@given(snapshots())
@settings(max_examples=60, deadline=None)
def test_no_policy_breaks_a_limit(round_):
    """Whatever a policy answers within the protocol, also keys of 0 and keys that fall."""
    for policy in (_Falling(), _Odd(key=0.0)):
        result = plan(round_, policy)
        given_to = Counter(one.worker for one in result.assigned)
        workers = {one.id: one for one in round_.workers}
        assert all(
            number <= workers[name].slots - workers[name].in_flight
            for name, number in given_to.items()
        )
        assert len(result.assigned) + len(result.kept) + len(result.refused) == len(round_.requests)


def test_limits_apply_in_order_as_the_round_assigns():
    requests = (
        *(request(n, tenant=b"\x01" * 20, submitted_at_s=NOW_S - 50 + n) for n in range(4)),
        request(9, tenant=b"\x02" * 20),
    )
    rules = replace(snapshot((), ()).rules, limits=Limits(Quota(in_flight=2)))
    result = plan(snapshot(requests, (worker(slots=9),), rules=rules), Fifo())
    assert [one.key.id for one in result.assigned] == [0, 1, 9]
    assert [one.key.id for one in result.kept] == [2, 3]
    assert result.kept[0].reason is Reason.TENANT_IN_FLIGHT
    assert result.kept[0].sentence == "Its requester has 2 requests in work; the limit is 2."
    # Where no slot is left, that is the reason.
    full = plan(snapshot(requests, (worker(slots=1),), rules=rules), Fifo())
    assert {one.reason for one in full.kept} == {Reason.NO_FREE_SLOT}
