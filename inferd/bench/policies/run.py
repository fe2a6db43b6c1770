"""Every policy in every cell, on the same seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing import get_context

from inferd.bench.policies.cells import Cell
from inferd.bench.policies.errors import BenchExtraMissing
from inferd.bench.policies.recordings import Recordings
from inferd.workers.breaker import CircuitBreaker
from scheduler.policies import DEFAULT, POLICIES, Policy
from scheduler.simulation.beliefs import Beliefs, Informed
from scheduler.simulation.bound import clairvoyant_bound
from scheduler.simulation.engine import Simulation
from scheduler.simulation.figures import Figures, figures
from scheduler.simulation.learning import Learning
from scheduler.simulation.scenario import draw_world


@dataclass(slots=True)
class Measured:
    """A cell's figures: by policy, in the order of the seeds."""

    cell: Cell
    seeds: int
    figures: dict[str, list[Figures]] = field(default_factory=dict)
    told: list[Figures] = field(default_factory=list)
    """Of the default policy with beliefs that are true at the start and never change."""
    variables: int = 0
    """Of the largest bound's programme."""
    constraints: int = 0


@dataclass(frozen=True, slots=True)
class _Job:
    cell: Cell
    seed: int
    recordings: Recordings


@dataclass(frozen=True, slots=True)
class _Done:
    figures: dict[str, Figures]
    told: Figures
    variables: int
    constraints: int


def measure(
    cells: Sequence[tuple[Cell, int]],
    recordings: Recordings,
    processes: int,
    progress: Callable[[str], None],
) -> list[Measured]:
    """Each cell over so many seeds; the same arguments give the same figures.

    Beliefs are learnt as a node learns them, with its own circuit breakers.

    Raises BenchExtraMissing.
    """
    if find_spec("highspy") is None:
        raise BenchExtraMissing("the bound needs HiGHS, which is not installed")
    measured = []
    with ProcessPoolExecutor(processes, get_context("spawn"), _quiet) as pool:
        for cell, seeds in cells:
            progress(f"{cell.name}: {seeds} seeds")
            result = Measured(cell, seeds, {name: [] for name in POLICIES})
            jobs = [_Job(cell, seed, recordings) for seed in range(seeds)]
            for done in pool.map(_run, jobs):
                for name, one in done.figures.items():
                    result.figures[name].append(one)
                result.told.append(done.told)
                result.variables = max(result.variables, done.variables)
                result.constraints = max(result.constraints, done.constraints)
            measured.append(result)
    return measured


def _quiet() -> None:
    """HiGHS writes its name to stdout, where nothing but results may be."""
    os.dup2(2, 1)


def _run(job: _Job) -> _Done:
    cell = job.cell
    world = draw_world(cell.setting, job.recordings.rows, job.recordings.fees_of(cell), job.seed)
    bound = clairvoyant_bound(world)
    sigma = cell.setting.demand.noise_sigma

    def of(policy: Policy, beliefs: Beliefs) -> Figures:
        return figures(Simulation(world, policy, beliefs).run(), bound)

    found = {
        name: of(policy, Learning(world, sigma, CircuitBreaker, lengths=cell.lengths))
        for name, policy in POLICIES.items()
    }
    return _Done(found, of(DEFAULT, Informed(sigma)), bound.variables, bound.constraints)
