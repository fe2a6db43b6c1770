"""What limits, splits and a change of policy cost a round.

Times are processor time, the median over repetitions in which all cases take turns: on a shared
machine only ratios mean something.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median

from inferd.bench.round.world import Size, World
from inferd.policies.hosted import HostedPolicy
from inferd.policies.journal import Entry, Source
from inferd.policies.steering import Steering
from scheduler.allowance import Budget, Limits, Probation, Quota, Taken
from scheduler.choice import chosen
from scheduler.experiment import Split
from scheduler.model import Moment
from scheduler.planner import Changes, Planner
from scheduler.policies import DEFAULT, POLICIES, Policy

_QUOTA = Quota(tokens_per_s=100.0, burst_tokens=20_000.0, in_flight=50)
_GENEROUS = Quota(tokens_per_s=1e9, burst_tokens=1e12, in_flight=10**9)
_STAKE_WEI = 10**17
"""Ten times the median fee of the world."""
_BUDGET = Budget(3_600, 10**30, 0)


def _cases(moment: Moment) -> dict[str, tuple[Moment, Policy | Split]]:
    def under(limits: Limits, *budgets: Budget) -> Moment:
        return replace(
            moment, rules=replace(moment.rules, limits=limits), taken=Taken(budgets=budgets)
        )

    split = Split((POLICIES["value"], POLICIES["balanced"]), (90, 10), 1)
    return {
        "none": (moment, DEFAULT),
        "quotas_wide": (under(Limits(_GENEROUS), _BUDGET), DEFAULT),
        "quotas_tight": (under(Limits(_QUOTA), _BUDGET), DEFAULT),
        "fair_turns": (under(Limits(fair_quantum_tokens=2_000.0)), DEFAULT),
        "probation": (under(Limits(probation=Probation(0.85, 1))), DEFAULT),
        "all": (
            under(Limits(_QUOTA, {}, 2_000.0, Probation(0.85, 1)), _BUDGET),
            DEFAULT,
        ),
        "split": (moment, split),
    }


def measure_limits(
    size: Size, repetitions: int, tell: Callable[[str], None]
) -> Mapping[str, float]:
    """By case, milliseconds of a round's plan; and the stall of a change of policy."""
    world = World(size)
    snapshot = world.snapshot
    planner = Planner()
    staked = [replace(view, stake_wei=_STAKE_WEI) for view in snapshot.workers]
    planner.apply(Changes(added=snapshot.requests, workers=staked))
    cases = _cases(snapshot.moment)
    times: dict[str, list[float]] = {name: [] for name in cases}
    gc.freeze()
    for repetition in range(repetitions):
        for name, (moment, policy) in cases.items():
            began_s = time.process_time()
            planner.plan(moment, policy)
            times[name].append((time.process_time() - began_s) * 1000)
        tell(f"repetition {repetition + 1} of {repetitions}")
    found = {f"{name}_ms": round(median(values), 1) for name, values in times.items()}
    return found | _swap_stalls_ms(100)


def _swap_stalls_ms(times: int) -> dict[str, float]:
    """What a round does more where the policy has changed: the planner keeps nothing of a policy
    between rounds, so all there is to it is `follow`, and starting a process where the new one is
    of another package. The most of so many times, by the clock."""
    steering = Steering()
    changes = [chosen("value", "", ""), chosen("", "value=90,balanced=10", "fee=1,wait=1,slack=1")]
    stalls_ms, starts_ms = [], []
    for number in range(times):
        entry = Entry(number, Source.COMMAND, changes[number % 2], "bench", datetime.now(UTC))
        began_s = time.perf_counter()
        steering.follow(entry)
        stalls_ms.append((time.perf_counter() - began_s) * 1000)
    for _ in range(5):
        began_s = time.perf_counter()
        hosted = HostedPolicy("any")
        starts_ms.append((time.perf_counter() - began_s) * 1000)
        hosted.close()
    return {
        "swap_stall_ms": round(max(stalls_ms), 2),
        "swap_to_process_stall_ms": round(max(starts_ms), 2),
    }
