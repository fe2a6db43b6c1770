"""With limits, experiments and flows too a plan is that of a fresh start, and of the recording."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import recording
from scheduler.allowance import UNUSED, Bucket, Budget, Limits, Probation, Quota, Taken, Use
from scheduler.experiment import Split
from scheduler.model import Rules, TenantId
from scheduler.plan import plan
from scheduler.planner import Changes, Planner
from scheduler.policies import POLICIES
from scheduler.policies.balanced import Balanced
from scheduler.recording import Recording
from scheduler.replay import policy_of, replayed
from tests.scheduler.make import NOW_S, pending, snapshot, workers

_TENANTS = [TenantId(bytes([n]) * 20) for n in (1, 2, 3)]
_POLICIES = [
    *(POLICIES[name] for name in sorted(POLICIES)),
    Balanced(1, 2, 3),
    Split((POLICIES["value"], Balanced(1, 2, 3)), (1, 2), 5),
    Split((POLICIES["p2c"], POLICIES["edf"], POLICIES["weighted-round-robin"]), (1, 1, 1), 9),
]

_quotas = st.builds(
    Quota,
    tokens_per_s=st.sampled_from([0.0, 1.0]),
    burst_tokens=st.sampled_from([0.0, 50.0, 500.0]),
    in_flight=st.sampled_from([0, 1, 2]),
    weight=st.sampled_from([1.0, 3.0]),
)
_limits = st.builds(
    Limits,
    quota=_quotas,
    quotas=st.dictionaries(st.sampled_from(_TENANTS), _quotas),
    fair_quantum_tokens=st.sampled_from([0.0, 10.0, 100.0]),
    probation=st.builds(
        Probation,
        success=st.sampled_from([0.0, 0.6]),
        in_flight=st.integers(1, 2),
        stake_bps=st.sampled_from([1_000, 10_000]),
    ),
)
_uses = st.builds(
    Use,
    in_flight=st.integers(0, 2),
    bucket=st.none() | st.builds(Bucket, st.floats(-50, 100), st.just(float(NOW_S - 5))),
    deficit_tokens=st.sampled_from([0.0, 20.0]),
)
_budgets = st.builds(
    Budget,
    st.just(3_600),
    st.sampled_from([0, 3 * 10**13, 10**16]),
    st.sampled_from([0, 10**12, 10**16]),
)
_taken = st.builds(
    Taken,
    uses=st.dictionaries(st.sampled_from(_TENANTS), _uses),
    budgets=st.lists(_budgets, max_size=2).map(tuple),
)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_a_plan_within_limits_is_that_of_a_fresh_start_and_of_its_recording(data):
    planner, requests, pool = Planner(), {}, {}
    for number in range(data.draw(st.integers(1, 4), label="rounds")):
        removed = [key for key in requests if data.draw(st.integers(0, 3)) == 0]
        added = [
            replace(data.draw(pending(one)), tenant=data.draw(st.sampled_from(_TENANTS)))
            for one in data.draw(st.sets(st.integers(0, 15), max_size=10))
        ]
        changed = [
            replace(
                data.draw(workers(one)),
                stake_wei=data.draw(st.sampled_from([0, 10**16, 10**18])),
                fees_in_hand_wei=data.draw(st.sampled_from([0, 10**15])),
            )
            for one in data.draw(st.sets(st.integers(1, 5), max_size=3))
        ]
        for key in removed:
            del requests[key]
        requests |= {one.key: one for one in added}
        pool |= {one.id: one for one in changed}
        planner.apply(Changes(added, removed, changed))
        limits = data.draw(_limits)
        rules = Rules(1_000, limits=limits, flow_arcs=data.draw(st.sampled_from([0, 5_000])))
        seen = snapshot((), (), now_s=NOW_S + 3.0 * number, rules=rules)
        moment = replace(seen, taken=data.draw(_taken)).moment
        policy = data.draw(st.sampled_from(_POLICIES), label="policy")
        made, seen = planner.plan(moment, policy), planner.snapshot(moment)
        assert made == plan(seen, policy)

        decisions = [*made.assigned, *made.kept, *made.refused]
        assert sorted(one.key for one in decisions) == sorted(requests)
        _is_within(limits, made.assigned, requests, pool, moment.taken)

        stored = recording.encode(Recording(made.policy, made.policy_version, seen))
        read = recording.decode(stored)
        for one in decisions[:3]:
            assert replayed(read, policy_of(read), one.key) == one


def _is_within(limits, assigned, requests, pool, taken):
    used = Counter({one.id: one.in_flight for one in pool.values()})
    fees_wei = Counter({one.id: one.fees_in_hand_wei for one in pool.values()})
    in_flight = Counter({one: taken.uses.get(one, UNUSED).in_flight for one in _TENANTS})
    for one in assigned:
        view, asked = pool[one.worker], requests[one.key]
        used[view.id] += 1
        fees_wei[view.id] += asked.fee_wei
        in_flight[asked.tenant] += 1
        assert view.available
        assert used[view.id] <= view.slots
        most = limits.quota_of(asked.tenant).in_flight
        assert not most or in_flight[asked.tenant] <= most
        proved = max(estimate.success_lower for estimate in view.service.values())
        terms = limits.probation
        if not view.owned and proved < terms.success:
            assert used[view.id] <= terms.in_flight
            assert fees_wei[view.id] <= view.stake_wei * terms.stake_bps // 10_000
