"""Requests that several owners' workers must answer alike, in a round."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cover import joint_share_wei, poster_share_wei
from scheduler.model import DataFee, PendingRequest, Reason, Rules, WorkerView
from scheduler.packing import Packing, signatures
from scheduler.plan import plan
from tests.scheduler.make import (
    ETH,
    GAS,
    GWEI,
    NOW_S,
    model,
    ready,
    request,
    service,
    snapshot,
    worker,
    worker_id,
)


def of_owner(number: int, owner: int, p90_ms: float = 2_000.0, **changes: object) -> WorkerView:
    served = {model(): service(p90_ms / 2, p90_ms)}
    owner_id = bytes([owner]) * 20 if owner else b""
    values = {"owner": owner_id, "service": served, "owned": False} | changes
    return worker(number, **values)


def decided(asked: PendingRequest, *workers: WorkerView, **changes: object) -> object:
    made = plan(snapshot((asked,), workers, **changes))
    (decision,) = [*made.assigned, *made.kept, *made.refused]
    return decision


def test_it_waits_for_enough_owners_and_says_so() -> None:
    asked = request(quorum=3, fee_wei=ETH)
    two = of_owner(1, 1), of_owner(2, 2), of_owner(3, 2), of_owner(4, 0)
    decision = decided(asked, *two)
    assert decision.reason is Reason.QUORUM_SHORT
    assert "a quorum of 3; 0 have answered" in decision.sentence
    assert decided(asked, *two, of_owner(5, 3)).reason is Reason.ASSIGNED


def test_who_has_answered_counts_and_is_never_asked_again() -> None:
    asked = request(
        quorum=3,
        fee_wei=ETH,
        answers=2,
        agreeing=2,
        excluded=frozenset({worker_id(1), worker_id(2), worker_id(3)}),
    )
    done = of_owner(1, 1), of_owner(2, 2), of_owner(3, 2)
    assert decided(asked, *done).reason is Reason.QUORUM_SHORT
    decision = decided(asked, *done, of_owner(4, 3, 9_000.0))
    assert (decision.reason, decision.worker) == (Reason.ASSIGNED, worker_id(4))
    busy = of_owner(4, 3, 9_000.0, in_flight=1)
    assert decided(asked, *done, busy).reason is Reason.NO_FREE_SLOT
    failed = replace(asked, tried=frozenset({worker_id(4)}))
    assert decided(failed, *done, of_owner(4, 3)).worker == worker_id(4), "there is no other"


def test_others_of_its_model_are_not_left_out_for_what_it_may_not_use() -> None:
    barred = request(1, quorum=2, fee_wei=ETH, answers=1, agreeing=1)
    barred = replace(barred, excluded=frozenset({worker_id(1)}))
    free, busy = of_owner(1, 1, slots=2), of_owner(2, 2, in_flight=1)
    made = plan(snapshot((barred, request(2, fee_wei=ETH // 2)), (free, busy)))
    assert [(one.key.id, one.worker) for one in made.assigned] == [(2, worker_id(1))]


def test_it_must_be_in_time_for_the_slowest_owner_whom_it_needs() -> None:
    workers = [of_owner(number, number, number * 4_000.0) for number in (1, 2, 3)]
    fast_enough = request(quorum=2, fee_wei=ETH, deadline_s=NOW_S + 12)
    assert decided(fast_enough, *workers).reason is Reason.ASSIGNED
    decision = decided(replace(fast_enough, quorum=3), *workers)
    assert decision.reason is Reason.DEADLINE_INFEASIBLE
    assert decision.numbers.p90_ms == pytest.approx(12_000, rel=0.2)


def test_after_so_many_answers_it_is_given_up() -> None:
    workers = [of_owner(number, number) for number in range(1, 9)]
    asked = request(quorum=3, fee_wei=ETH, answers=5, agreeing=2)
    assert decided(asked, *workers).reason is Reason.ASSIGNED
    decision = decided(replace(asked, answers=6), *workers)
    assert decision.reason is Reason.NO_AGREEMENT
    assert "6 have answered, 2 of them alike" in decision.sentence


def test_each_signature_is_paid_for() -> None:
    """By the poster's share, as no worker is the operator's own."""
    workers = [of_owner(number, number) for number in (1, 2, 3)]
    rules = Rules(poster_bps=1_000, expected_batch=8, gas_margin=1.0)

    def assigned(fee_wei: int, quorum: int) -> bool:
        asked = request(quorum=quorum, fee_wei=fee_wei)
        return decided(asked, *workers, rules=rules).reason is Reason.ASSIGNED

    def least_wei(quorum: int) -> int:
        low, high = 0, ETH
        while high - low > 10_000 * GWEI // 10_000:
            middle = (low + high) // 2
            low, high = (low, middle) if assigned(middle, quorum) else (middle, high)
        return high

    more_wei = least_wei(3) - least_wei(1)
    assert more_wei == pytest.approx(10 * 2 * GAS.per_group_gas * GWEI, rel=0.01)


def test_own_workers_that_must_be_among_them_earn_their_share() -> None:
    rules = Rules(poster_bps=1_000, gas_margin=1.0)
    own = [of_owner(number, number, owned=True) for number in (1, 2)]
    strangers = [of_owner(number, number) for number in (3, 4)]
    # 90,000 gas at 1 gwei: the poster's tenth does not pay it, with a third of the rest it does.
    asked = request(quorum=3, fee_wei=3 * 90_000 * GWEI)
    assert decided(asked, *own, *strangers, rules=rules).reason is Reason.ASSIGNED
    sure = decided(asked, own[0], *strangers, rules=rules)
    assert sure.reason is Reason.ASSIGNED
    assert sure.numbers.revenue_wei == joint_share_wei(asked.fee_wei, 3, 1, rules)
    unsure = decided(asked, own[0], *strangers, of_owner(5, 5), rules=rules)
    assert unsure.reason is Reason.GAS_TOO_DEAR_NOW
    assert unsure.numbers.revenue_wei == poster_share_wei(asked.fee_wei, rules)


@given(st.integers(0, 2**70), st.integers(1, 15), st.integers(0, 15), st.integers(0, 10_000))
def test_shares_are_never_more_than_the_fee(fee_wei: int, quorum: int, own: int, bps: int) -> None:
    shares = joint_share_wei(fee_wei, quorum, min(own, quorum), Rules(bps))
    assert poster_share_wei(fee_wei, Rules(bps)) <= shares <= fee_wei


def test_a_group_of_a_quorum_takes_the_gas_of_its_signatures() -> None:
    packing = Packing(GAS, GWEI, 10**7, 100, DataFee(per_group_wei=7))
    two, three = (worker_id(2),), (worker_id(2), worker_id(3))
    results = [ready(1), ready(2), ready(3, others=two), ready(4, others=three)]
    results.append(ready(5, others=three))
    assert signatures(results) == 1 + 2 + 3
    assert packing.gas_of(results) == GAS.of(6, 5)
    poor = replace(results[2], revenue_wei=GAS.per_result_gas * GWEI + GAS.per_group_gas * GWEI)
    # It pays for one signature, and not for two.
    assert packing.sort_out([poor]).together == []
    chosen = packing.fill(results)
    assert chosen == results
    room_for_two = replace(packing, max_gas=GAS.of(2, 3))
    assert room_for_two.fill(results) == results[:2]
