"""Quotas, probation and budgets by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.admission import CODES
from scheduler.allowance import Bucket, Budget, Limits, Probation, Quota, Taken, Use
from scheduler.budgets import BudgetGate
from scheduler.gate import Gate
from scheduler.model import Reason, WorkerView
from scheduler.probation import Caps, caps_of
from scheduler.quota import IN_FLIGHT, OPEN, RATE, TenantGate, cost_tokens, is_full, level, taken
from scheduler.workers import WorkerTable
from tests.scheduler.make import model, service, worker

ONE = b"\x01" * 20
OTHER = b"\x02" * 20


@pytest.mark.parametrize(
    ("input_bytes", "output_tokens", "cost"),
    [(0, 0.0, 1), (1, 0.0, 1), (4, 0.0, 1), (5, 0.0, 2), (400, 10.2, 122), (0, 64.0, 128)],
)
def test_a_request_costs_its_input_and_twice_its_output(
    input_bytes: int, output_tokens: float, cost: int
) -> None:
    assert cost_tokens(input_bytes, output_tokens) == cost


@given(
    rate=st.floats(0.1, 1_000.0),
    burst=st.floats(1.0, 10_000.0),
    asks=st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(1, 20_000)), max_size=60),
)
def test_no_tenant_takes_more_than_burst_and_rate_allow(
    rate: float, burst: float, asks: list[tuple[float, int]]
) -> None:
    """In any window, whatever is asked when; a request above the burst counts beyond it once."""
    quota = Quota(rate, burst)
    bucket, now_s = None, 0.0
    grants: list[tuple[float, int]] = []
    for pause_s, cost in asks:
        now_s += pause_s
        gate = TenantGate([quota], [Use(bucket=bucket)], now_s)
        if gate.may_go(0, cost):
            bucket = taken(bucket, quota, cost, now_s)
            grants.append((now_s, cost))
    largest = max((cost for _, cost in grants), default=0)
    for first, (began_s, _) in enumerate(grants):
        total = 0
        for at_s, cost in grants[first:]:
            total += cost
            allowed = burst + rate * (at_s - began_s) + max(0.0, largest - burst)
            assert total <= allowed * (1 + 1e-9) + 1e-6


@given(st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_whoever_waits_long_enough_is_served(costs: list[int]) -> None:
    quota = Quota(10.0, 100.0)
    bucket, now_s = None, 0.0
    for cost in costs:
        now_s += 100.0
        assert TenantGate([quota], [Use(bucket=bucket)], now_s).may_go(0, cost)
        bucket = taken(bucket, quota, cost, now_s)
        assert bucket is not None
        now_s += max(0.0, cost - 100.0) / 10.0


def test_a_clock_that_runs_back_fills_nothing() -> None:
    quota = Quota(10.0, 100.0)
    bucket = taken(None, quota, 60, 1_000.0)
    assert bucket == Bucket(40.0, 1_000.0)
    assert level(bucket, quota, 900.0) == 40.0
    assert taken(bucket, quota, 10, 900.0) == Bucket(30.0, 1_000.0)
    assert level(bucket, quota, 1_003.0) == 70.0
    assert not is_full(bucket, quota, 1_005.0)
    assert is_full(bucket, quota, 1_006.0)


def test_a_tenant_is_closed_for_the_round_by_its_first_that_waits() -> None:
    gate = TenantGate([Quota(1.0, 100.0, 3)] * 2, [Use(), Use(in_flight=2)], 0.0)
    assert gate.may_go(0, 80)
    gate.take(0, 80)
    assert not gate.may_go(0, 30)
    assert not gate.may_go(0, 1), "nobody overtakes within a tenant"
    assert gate.may_go(1, 1)
    gate.take(1, 1)
    assert not gate.may_go(1, 1)
    assert list(gate.closed) == [RATE, IN_FLIGHT]


def test_without_quotas_nothing_is_closed() -> None:
    gate = TenantGate([Quota()], [Use(in_flight=10**6)], 0.0)
    assert gate.may_go(0, 10**9)
    assert list(gate.closed) == [OPEN]


@given(
    left=st.lists(st.integers(-5, 10**30), min_size=1, max_size=3),
    needs=st.lists(st.integers(0, 10**29), max_size=30),
)
def test_no_budget_is_overdrawn_by_a_single_wei(left: list[int], needs: list[int]) -> None:
    budgets = [Budget(3_600, 10**30, 10**30 - one) for one in left]
    gate = BudgetGate(budgets)
    begun = 0
    for need in needs:
        allowed = gate.allows(need)
        assert allowed == (begun + need <= min(left))
        if allowed:
            gate.take(need)
            begun += need
    assert gate.committed_wei == 10**30 - min(left) + begun


def test_without_budgets_everything_is_allowed() -> None:
    assert BudgetGate(()).allows(10**30)


TERMS = Probation(success=0.8, in_flight=2, stake_bps=5_000)


def caps(*views: WorkerView, terms: Probation = TERMS) -> Caps | None:
    table = WorkerTable()
    table.put(views)
    table.settle()
    return caps_of(table, terms)


def proved(number: int, *success: float, **changes: object) -> WorkerView:
    service_ = {
        model(at): service(success_lower=bound) for at, bound in enumerate(success, start=1)
    }
    given = {"owned": False, "stake_wei": 10**18} | changes
    return worker(number, service=service_, slots=5, **given)


def test_probation_ends_by_proof_with_any_model() -> None:
    found = caps(proved(1, 0.79), proved(2, 0.1, 0.8), proved(3, 0.0, owned=True), proved(4))
    assert found is not None
    assert found.capped.tolist() == [0, 3]
    assert found.most.tolist() == [2, 5, 5, 2]


def test_whoever_has_no_room_left_is_closed() -> None:
    found = caps(proved(1, 0.5, stake_wei=0), proved(2, 0.5, fees_in_hand_wei=10**18))
    assert found is not None
    assert found.most.tolist() == [0, 0]


@given(st.lists(st.integers(1, 2**256), min_size=1, max_size=5))
def test_what_is_beyond_all_fits_nobody(rooms_wei: list[int]) -> None:
    found = caps(*(proved(at, 0.5, stake_wei=2 * room) for at, room in enumerate(rooms_wei)))
    assert found is not None
    fee_wei = found.beyond_all(np.arange(len(rooms_wei)))
    assert not any(found.fits(rank, fee_wei) for rank in range(len(rooms_wei)))
    assert fee_wei <= max(rooms_wei) * (1 + 2e-9) + 3


@pytest.mark.parametrize(
    ("stake_wei", "in_hand_wei", "room_wei"), [(1_001, 0, 500), (1_001, 499, 1), (1_001, 501, 0)]
)
def test_fees_in_hand_are_at_most_a_part_of_the_stake(
    stake_wei: int, in_hand_wei: int, room_wei: int
) -> None:
    found = caps(proved(1, 0.5, stake_wei=stake_wei, fees_in_hand_wei=in_hand_wei))
    assert found is not None
    assert found.fits(0, room_wei)
    assert not found.fits(0, room_wei + 1)
    found.take(0, room_wei)
    assert found.fits(0, 0)
    assert not found.fits(0, 1)


@given(st.integers(0, 2**256), st.integers(-3, 3))
def test_room_is_exact_to_the_wei(room_wei: int, more: int) -> None:
    fee_wei = max(0, room_wei + more)
    found = caps(proved(1, 0.5, stake_wei=2 * room_wei))
    assert found is not None
    assert found.fits(0, fee_wei) == (fee_wei <= room_wei)
    assert found.lack_room(np.array([0]), fee_wei).tolist() == [fee_wei > room_wei]


def test_without_terms_nobody_is_on_probation() -> None:
    assert caps(proved(1, 0.0), terms=Probation()) is None


def a_gate(
    limits: Limits,
    taken: Taken,
    tenant: list[int],
    cost: list[int],
    need_wei: list[int] | None = None,
) -> Gate:
    return Gate(
        limits,
        taken,
        tenants=[ONE, OTHER],
        tenant=np.array(tenant, np.int64),
        cost=np.array(cost, np.int64),
        need_wei=(need_wei or [0] * len(tenant)).__getitem__,
        most_wei=float(sum(need_wei or [])),
        now_s=100.0,
    )


def test_a_gate_tells_what_keeps_each_request_and_by_which_numbers() -> None:
    limits = Limits(quota=Quota(in_flight=1), quotas={OTHER: Quota(2.0, 50.0)})
    taken_ = Taken({OTHER: Use(bucket=Bucket(20.0, 90.0))}, (Budget(3_600, 100, 60),))
    gate = a_gate(limits, taken_, [0, 0, 0, 1, 1, 1], [5, 5, 5, 30, 41, 1], [30, 0, 0, 20, 0, 0])
    went = []
    for row in gate.passing(np.arange(6)).tolist():
        if gate.may_go(row):
            gate.take(row)
            went.append(row)
    assert gate.passing(np.array([2, 4, 5])).tolist() == []
    gate.finish()
    names = {CODES[reason]: reason for reason in Reason}
    told = [
        (names[code], used, limit)
        for code, used, limit in zip(
            gate.reason.tolist(), gate.used.tolist(), gate.limit.tolist(), strict=True
        )
    ]
    assert went == [0]
    assert told[1:3] == [(Reason.TENANT_IN_FLIGHT, 1.0, 1.0)] * 2
    assert told[3] == (Reason.BUDGET_SPENT, 90.0, 100.0)
    assert told[4] == (Reason.TENANT_RATE, 41.0, 40.0)


@given(
    tenant=st.lists(st.integers(0, 1), max_size=40),
    data=st.data(),
    chunk=st.integers(1, 7),
)
def test_chunks_make_no_difference(tenant: list[int], data: st.DataObject, chunk: int) -> None:
    cost = data.draw(st.lists(st.integers(0, 9), min_size=len(tenant), max_size=len(tenant)))
    limits = Limits(quota=Quota(1.0, 20.0, 4))

    def run(size: int) -> tuple[list[int], list[int], list[float]]:
        gate = a_gate(limits, Taken(), tenant, cost)
        went = []
        for first in range(0, len(tenant), size):
            rows = np.arange(first, min(first + size, len(tenant)))
            for row in gate.passing(rows).tolist():
                if gate.may_go(row):
                    gate.take(row)
                    went.append(row)
        gate.finish()
        return went, gate.reason.tolist(), gate.used.tolist()

    assert run(chunk) == run(1)
