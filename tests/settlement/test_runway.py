"""When a balance is low, when it is spent, and how far it goes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inferd.settlement.runway import (
    FundsState,
    Projection,
    Thresholds,
    gas_per_result,
    judge,
    runway_days,
)
from scheduler.model import GasModel

ENOUGH, LOW, SPENT = FundsState.ENOUGH, FundsState.LOW, FundsState.SPENT
RANK = {SPENT: 0, LOW: 1, ENOUGH: 2}
LIMITS = Thresholds(warn_results=100, stop_results=10)
WEI = st.integers(0, 10**24)
PROJECTIONS = st.builds(Projection, WEI, WEI, WEI, st.integers(0, 10**18))
STATES = st.sampled_from(FundsState)
THRESHOLDS = st.builds(Thresholds, st.integers(0, 1_000), st.integers(0, 1_000))


def seen(balance: int, *, in_flight: int = 0, waiting: int = 0, result: int = 10) -> Projection:
    return Projection(balance, in_flight, waiting, result)


def test_judge__both_thresholds_and_their_margins() -> None:
    assert judge(ENOUGH, seen(1_000), LIMITS) is ENOUGH
    assert judge(ENOUGH, seen(999), LIMITS) is LOW
    assert judge(LOW, seen(1_249), LIMITS) is LOW
    assert judge(LOW, seen(1_250), LIMITS) is ENOUGH
    assert judge(LOW, seen(100), LIMITS) is LOW
    assert judge(LOW, seen(99), LIMITS) is SPENT
    assert judge(SPENT, seen(124), LIMITS) is SPENT
    assert judge(SPENT, seen(125), LIMITS) is LOW
    assert judge(SPENT, seen(1_250), LIMITS) is ENOUGH


def test_judge__what_waits_warns_and_does_not_stop__what_is_under_way_does_both() -> None:
    assert judge(ENOUGH, seen(1_500, waiting=501), LIMITS) is LOW
    assert judge(ENOUGH, seen(110, waiting=10**9), LIMITS) is LOW
    assert judge(ENOUGH, seen(1_500, in_flight=501), LIMITS) is LOW
    assert judge(ENOUGH, seen(1_500, in_flight=1_401), LIMITS) is SPENT


def test_judge__without_thresholds__only_what_cannot_be_paid_at_all() -> None:
    none = Thresholds(0, 0)
    assert judge(ENOUGH, seen(0), none) is ENOUGH
    assert judge(ENOUGH, seen(5, waiting=6), none) is LOW
    assert judge(ENOUGH, seen(5, in_flight=6), none) is SPENT


@given(STATES, PROJECTIONS, THRESHOLDS, WEI)
def test_judge__more_money_is_never_worse(
    before: FundsState, one: Projection, thresholds: Thresholds, more: int
) -> None:
    richer = replace(one, balance_wei=one.balance_wei + more)
    assert RANK[judge(before, richer, thresholds)] >= RANK[judge(before, one, thresholds)]


@given(STATES, PROJECTIONS, THRESHOLDS)
def test_judge__looking_twice_changes_nothing(
    before: FundsState, one: Projection, thresholds: Thresholds
) -> None:
    after = judge(before, one, thresholds)
    assert judge(after, one, thresholds) is after


def test_runway() -> None:
    assert seen(1_005, in_flight=400).runway_results == 60
    assert seen(1, in_flight=400).runway_results == 0
    assert seen(1, result=0).runway_results is None
    assert seen(9, in_flight=4, waiting=3).spend_wei == 7
    assert runway_days(2 * 10**18, 10**18, 86_400) == 2.0
    assert runway_days(10**18, 10**18, 3_600) == 1 / 24
    assert runway_days(-5, 1, 86_400) == 0.0
    assert runway_days(10**18, 0, 86_400) is None
    assert runway_days(10**18, 1, 0) is None


def test_gas_per_result() -> None:
    model = GasModel(fixed_gas=40_000, per_group_gas=10_000, per_result_gas=5_000)
    assert gas_per_result(model, posts=0, groups=0, results=0) == 55_000
    assert gas_per_result(model, posts=1, groups=2, results=3) == 25_000
    assert gas_per_result(model, posts=2, groups=2, results=200) == 5_500
