"""Small worlds for the simulator's tests, and the hypothesis strategy of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from inferd.workers.breaker import CircuitBreaker
from scheduler.policies import POLICIES
from scheduler.simulation.beliefs import Informed
from scheduler.simulation.engine import Simulation
from scheduler.simulation.learning import Learning
from scheduler.simulation.outcome import Outcome
from scheduler.simulation.scenario import GWEI, Setting, World, draw_world
from scheduler.simulation.trace import CONVERSATION, TraceRow, drawn
from scheduler.simulation.workers import POOLS
from scheduler.simulation.workload import Demand


def rows(count: int, random: np.random.Generator) -> tuple[TraceRow, ...]:
    return drawn(CONVERSATION, count, random)


def fees(count: int, random: np.random.Generator) -> list[int]:
    """A random walk around 1 gwei that sometimes makes posts dearer than fees."""
    steps = np.exp(np.cumsum(random.normal(0.0, 0.11, count)))
    return [int(GWEI * step) for step in steps]


def world(seed: int = 1, **changes: object) -> World:
    setting = Setting("test", Demand(load=1.5), POOLS["equal"], requests=120)
    return draw_world(replace(setting, **changes), rows, fees, seed)  # type: ignore[arg-type]


def run(one: World, policy: str = "value", *, learns: bool = False) -> Outcome:
    beliefs = learning(one) if learns else Informed(0.1)
    return Simulation(one, POLICIES[policy], beliefs).run()


def learning(one: World, *, lengths: bool = False) -> Learning:
    """Beliefs as a node has them, with its own circuit breakers."""
    return Learning(one, 0.1, CircuitBreaker, lengths=lengths)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    demand = Demand(
        load=draw(st.sampled_from([0.5, 1.5, 4.0])),
        fee_median_wei=draw(st.sampled_from([10**13, 10**15])),
        tokens_sigma=draw(st.sampled_from([0.0, 0.7])),
        models=draw(st.sampled_from([1, 3])),
    )
    setting = Setting(
        "drawn",
        demand,
        POOLS[draw(st.sampled_from(sorted(POOLS)))],
        block_ms=draw(st.sampled_from([250, 2_000, 12_000])),
        requests=draw(st.integers(0, 60)),
    )
    return draw_world(setting, rows, fees, draw(st.integers(0, 10**6)))
