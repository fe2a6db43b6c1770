"""Rounds timed alone: from scratch, after a small change, at growing sizes, and a scan beside them.

A round is measured from tables of requests and workers that have just been filled, with nothing
else kept (no order, no facts, no candidates), to the rows that would be written: the
database is left out. Filling the tables is measured apart, as the daemon does it once.
"""

from __future__ import annotations

import gc
import math
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from inferd.bench.round.scan import scan
from inferd.bench.round.world import Size, World
from inferd.node.round_rows import round_rows
from scheduler.decision import Plan
from scheduler.model import Snapshot, WorkerView
from scheduler.planner import Changes, Planner

_FRACTIONS = (8, 4, 2, 1)
"""Parts of a size that the growth is fitted on."""
_SCANNED = Size(10_000, 1_000, 50)
"""The largest round that is also scanned; its 10 million pairs take some seconds."""
_ADDED, _FINISHED = 100, 50


@dataclass(frozen=True, slots=True)
class Took:
    """How long something took, by the clock and by the processor."""

    wall_ms: float
    cpu_ms: float


def measure(size: Size, *, repetitions: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """All figures, as `inferd bench round --json` shows them."""
    progress(f"drawing {size.pending} requests and {size.workers} workers")
    world = World(size)
    progress("rounds from scratch")
    fills, rounds = [], []
    for _ in range(repetitions):
        filled, took, plan = _round(world.snapshot)
        fills.append(filled)
        rounds.append(took)
    # Of the whole process, with the drawn requests and workers, before the runs at other sizes.
    peak_mb = _peak_mb()
    progress("rounds after a small change")
    small = _small_changes(world, repetitions)
    progress("growth")
    snapshot = world.snapshot
    by_pending = [_smaller(snapshot, pending=size.pending // part) for part in _FRACTIONS]
    by_workers = [_smaller(snapshot, workers=size.workers // part) for part in _FRACTIONS]
    growth = {
        "pending": [(len(one.requests), _fastest(one)) for one in by_pending],
        "workers": [(len(one.workers), _fastest(one)) for one in by_workers],
    }
    progress("the scan over all pairs")
    scanned = _smaller(
        snapshot,
        pending=min(size.pending, _SCANNED.pending),
        workers=min(size.workers, _SCANNED.workers),
    )
    return {
        "pending": size.pending,
        "workers": size.workers,
        "models": size.models,
        "repetitions": repetitions,
        "assigned": len(plan.assigned),
        "kept": len(plan.kept),
        "refused": len(plan.refused),
        "round_ms": _median([took.wall_ms for took in rounds]),
        "round_cpu_ms": _median([took.cpu_ms for took in rounds]),
        "fill_ms": _median([took.wall_ms for took in fills]),
        "small_change_ms": _median([took.wall_ms for took in small]),
        "small_change_cpu_ms": _median([took.cpu_ms for took in small]),
        "peak_mb": round(peak_mb),
        "exponent_pending": _exponent(growth["pending"]),
        "exponent_workers": _exponent(growth["workers"]),
        "growth": {
            name: [{name: number, "cpu_ms": round(cpu_ms, 1)} for number, cpu_ms in points]
            for name, points in growth.items()
        },
        **_scan(scanned, size, median(took.cpu_ms for took in rounds)),
    }


def _round(snapshot: Snapshot) -> tuple[Took, Took, Plan]:
    """Filling the tables, and the round."""
    gc.collect()
    planner = Planner()

    def fill() -> None:
        planner.apply(Changes(added=snapshot.requests, workers=snapshot.workers))

    def decide() -> Plan:
        plan = planner.plan(snapshot.moment)
        _consume(plan)
        return plan

    filled, _ = _timed(fill)
    took, plan = _timed(decide)
    return filled, took, plan


def _small_changes(world: World, repetitions: int) -> list[Took]:
    """Block after block: what was assigned has left, some leases have ended, some requests came."""
    snapshot = world.snapshot
    planner = Planner()
    planner.apply(Changes(added=snapshot.requests, workers=snapshot.workers))
    views = {view.id: view for view in snapshot.workers}
    moment = snapshot.moment
    plan = planner.plan(moment)
    running: list[tuple[Any, Any]] = []
    took = []
    for number in range(repetitions + 1):
        changed: dict[Any, WorkerView] = {}
        for request, worker in zip(
            plan.assigned.requests.tolist(), plan.assigned.column("worker"), strict=True
        ):
            running.append((worker, request.model))
            view = views[worker]
            changed[worker] = views[worker] = replace(view, in_flight=view.in_flight + 1)
        for _ in range(min(_FINISHED, len(running)) if number else 0):
            worker, model = running.pop(0)
            changed[worker] = views[worker] = world.finished(views[worker], model)
        first_id = len(snapshot.requests) + number * _ADDED
        changes = Changes(
            added=world.requests(first_id, _ADDED),
            removed=[request.key for request in plan.assigned.requests.tolist()],
            workers=list(changed.values()),
        )
        moment = world.later(moment, 1)
        gc.collect()

        def decide(changes: Changes = changes, moment: Any = moment) -> Plan:
            planner.apply(changes)
            plan = planner.plan(moment)
            _consume(plan)
            return plan

        one, plan = _timed(decide)
        if number:  # the first takes in everything that the round from scratch has assigned
            took.append(one)
    return took


def _scan(snapshot: Snapshot, size: Size, round_cpu_ms: float) -> dict[str, Any]:
    """The reference at its size, in processor time; it must choose the same workers.

    At the size that was asked for it is projected by the number of pairs.
    """
    runs = [_round(snapshot) for _ in range(3)]
    plan, least_ms = runs[0][2], min(took.cpu_ms for _, took, _ in runs)
    took, scanned = _timed(lambda: scan(snapshot, plan))
    pairs = len(snapshot.requests) * len(snapshot.workers)
    projected_ms = took.cpu_ms * (size.pending * size.workers / pairs)
    chosen = dict(
        zip(
            (request.key for request in plan.assigned.requests.tolist()),
            plan.assigned.column("worker"),
            strict=True,
        )
    )
    if scanned != chosen:
        raise RuntimeError("the scan over all pairs has chosen other workers than the round")
    return {
        "scan": {
            "pending": len(snapshot.requests),
            "workers": len(snapshot.workers),
            "scan_cpu_ms": round(took.cpu_ms, 1),
            "round_cpu_ms": round(least_ms, 1),
        },
        "ratio_scan": round(took.cpu_ms / least_ms, 1),
        "ratio_scan_projected": round(projected_ms / round_cpu_ms),
    }


def _smaller(
    snapshot: Snapshot, pending: int | None = None, workers: int | None = None
) -> Snapshot:
    return replace(
        snapshot, requests=snapshot.requests[:pending], workers=snapshot.workers[:workers]
    )


def _fastest(snapshot: Snapshot) -> float:
    """Processor time of the fastest of three: what else the machine does only adds."""
    return min(_round(snapshot)[1].cpu_ms for _ in range(3))


def _consume(plan: Plan) -> None:
    """Makes all rows, as a copy into the database does."""
    deque(round_rows(plan).records(1), maxlen=0)


def _timed(work: Callable[[], Any]) -> tuple[Took, Any]:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    result = work()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return Took(wall_s * 1000, cpu_s * 1000), result


def _exponent(points: Sequence[tuple[int, float]]) -> float:
    """The slope of the least-squares line through the logarithms."""
    xs = [math.log(max(1, number)) for number, _ in points]
    ys = [math.log(took_ms) for _, took_ms in points]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - middle_x) ** 2 for x in xs)
    if not spread:
        return 0.0
    common = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return round(common / spread, 2)


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _median(values: Sequence[float]) -> float:
    return round(median(values), 1)
