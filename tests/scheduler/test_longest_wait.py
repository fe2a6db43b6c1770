"""How long a request waits at most where several policies are in force, or tenants take turns."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.allowance import Limits, Quota, Taken, Use
from scheduler.experiment import Split, arms_of, commitment_bytes
from scheduler.model import PendingRequest, RequestKey, Rules, TenantId
from scheduler.plan import plan
from scheduler.policies import POLICIES
from scheduler.policies.balanced import Balanced
from scheduler.policies.value import Value
from scheduler.quota import cost_tokens
from tests.scheduler.make import ETH, NOW_S, block, model, request, service, snapshot, worker

AGING = (Value(), Balanced())
OTHERS = ("edf", "fee-first", "fifo", "weighted-raw")
LATER_S = NOW_S + 100_000


def commitment_in(arm: int, split: Split) -> bytes:
    """One that puts its request in that arm."""
    salts = [bytes([0xFF]) * 16 + salt.to_bytes(4, "big") for salt in range(5_000)]
    arms = arms_of(commitment_bytes(salts), split.experiment, split.shares)
    return salts[int(np.flatnonzero(arms == arm)[0])]


@st.composite
def splits(draw: st.DrawFn) -> Split:
    """The first arm ages; the others may not, and may have nearly all of the share."""
    count = draw(st.integers(1, 2))
    others = [
        draw(st.sampled_from(AGING[1:]) | st.sampled_from(OTHERS).map(POLICIES.__getitem__))
        for _ in range(count)
    ]
    shares = [draw(st.sampled_from([1, 10, 90])), *(draw(st.integers(1, 100)) for _ in others)]
    return Split((AGING[0], *others), tuple(shares), draw(st.integers(1, 1_000)))


@given(
    split=splits(),
    flood=st.integers(1, 4),
    slots=st.integers(1, 3),
    max_wait_s=st.integers(1, 6),
    before=st.integers(0, 6),
)
@settings(max_examples=15, deadline=None)
def test_a_split_keeps_the_bound_of_bands_of_age(
    split: Split, flood: int, slots: int, max_wait_s: int, before: int
) -> None:
    """Rich and urgent requests keep arriving in all arms; each slot comes free each second."""
    rules = Rules(poster_bps=1_000, max_wait_s=max_wait_s)
    fast = worker(slots=slots, service={model(): service(100, 200)})

    def rich(number: int, now_s: int) -> PendingRequest:
        return request(number, fee_wei=ETH, submitted_at_s=now_s, deadline_s=now_s + 300)

    poor = request(
        key=RequestKey(10**6, commitment_in(0, split)),
        fee_wei=ETH // 1_000,
        deadline_s=LATER_S,
    )
    pending = {one.key: one for one in (poor, *(rich(n, NOW_S) for n in range(before)))}
    can_be_ahead, number = before, before
    for second in range(10_000):
        now_s = NOW_S + second
        for _ in range(flood):
            one = rich(number, now_s)
            pending[one.key] = one
            number += 1
            can_be_ahead += second < max_wait_s
        round_ = snapshot(
            tuple(pending.values()),
            (fast,),
            block=block(number=100 + second, timestamp_s=now_s),
            now_s=float(now_s),
            rules=rules,
            recent_fees_wei=(ETH // 10,),
        )
        assigned = {decision.key for decision in plan(round_, split).assigned}
        assert len(assigned) == min(slots, len(pending))
        if poor.key in assigned:
            return
        assert second + 1 < ceil((can_be_ahead + 1) / slots)
        for key in assigned:
            del pending[key]


def test_an_arm_is_not_shut_out_where_each_round_has_one_slot() -> None:
    split = Split((POLICIES["value"], POLICIES["balanced"]), (90, 10), 3)
    requests = tuple(request(key=RequestKey(arm, commitment_in(arm, split))) for arm in range(2))
    served = [0, 0]
    for number in range(200):
        round_ = snapshot(requests, (worker(),), block=block(number=number))
        (one,) = plan(round_, split).assigned
        served[one.key.id] += 1
    # 3 sigma of Binomial(200, 0.1) are 13.
    assert 7 <= served[1] <= 33


TENANTS = [TenantId(bytes([number]) * 20) for number in range(1, 6)]


@given(
    lengths=st.lists(st.integers(1, 60), min_size=5, max_size=30),
    policy=st.sampled_from(AGING),
    slots=st.integers(1, 3),
    quantum=st.sampled_from([20.0, 100.0]),
    weights=st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=5, max_size=5),
    own=st.integers(0, 3),
    max_wait_s=st.sampled_from([3, 10**6]),
)
@settings(max_examples=15, deadline=None)
def test_turns_of_tenants_bound_what_others_get_meanwhile(
    lengths: list[int],
    policy: Value | Balanced,
    slots: int,
    quantum: float,
    weights: list[float],
    own: int,
    max_wait_s: int,
) -> None:
    """Four others flood with rich requests for ever, the poor one's own tenant for `own` rounds."""
    limits = Limits(
        quotas={one: Quota(weight=weight) for one, weight in zip(TENANTS, weights, strict=True)},
        fair_quantum_tokens=quantum,
    )
    rules = Rules(poster_bps=1_000, max_wait_s=max_wait_s, limits=limits)
    fast = worker(slots=slots, service={model(): service(100, 200)})
    poor = request(
        10**6, tenant=TENANTS[0], fee_wei=ETH // 1_000, deadline_s=LATER_S, tokens_mean=30.0
    )
    costs, pending = {poor.key: cost_of(poor)}, {poor.key: poor}
    deficits: dict[bytes, float] = {}
    got_tokens = number = 0
    for second in range(10_000):
        now_s = NOW_S + second
        for tenant in TENANTS if second < own else TENANTS[1:]:
            number += 1
            one = request(
                number,
                tenant=tenant,
                fee_wei=ETH,
                submitted_at_s=now_s,
                deadline_s=now_s + 500,
                tokens_mean=float(lengths[number % len(lengths)]),
            )
            pending[one.key], costs[one.key] = one, cost_of(one)
        round_ = snapshot(
            tuple(pending.values()),
            (fast,),
            block=block(number=100 + second, timestamp_s=now_s),
            now_s=float(now_s),
            rules=rules,
            recent_fees_wei=(ETH // 10,),
        )
        uses = {tenant: Use(deficit_tokens=owed) for tenant, owed in deficits.items()}
        result = plan(replace(round_, taken=Taken(uses)), policy)
        deficits = result.deficits
        assigned = [decision.key for decision in result.assigned]
        if poor.key in assigned:
            return
        got_tokens += sum(costs[key] for key in assigned)
        for key in assigned:
            del pending[key]
        if second + 1 >= own:
            assert got_tokens <= bound_tokens(own, lengths, quantum, weights) + 1e-6


def bound_tokens(own: int, lengths: list[int], quantum: float, weights: list[float]) -> float:
    """sum(Q) / Q * (O + Q + L): of the poor one's tenant, which asked first in each round."""
    its = [lengths[(5 * n + 1) % len(lengths)] for n in range(own)]
    costs = [cost_tokens(32, float(tokens)) for tokens in its]
    largest = max([cost_tokens(32, 30.0), *costs])
    return (sum(costs) + quantum * weights[0] + largest) * sum(weights) / weights[0]


def cost_of(one: PendingRequest) -> int:
    return cost_tokens(one.input_bytes, one.tokens_mean)
