"""An upper bound of what any policy can earn in a world, even one that knows the future.

A linear programme indexed by time, solved by HiGHS. Workers that do the same are one class c with
the sum of their slots; time is cut into intervals b. Its variables y[j, c, b] >= 0 are the slot-ms
that class c spends on request j within b:

    maximise    sum over j of v[j] * sum over c, b of speed[c, b] * y[j, c, b] / work[j, c]
    subject to  sum over c, b of speed[c, b] * y[j, c, b] / work[j, c] <= 1   each request once
                sum over j of y[j, c, b] <= slots[c] * time of b              each class, each b
                y[j, c, b] <= time of b within the window of j                never beside itself

Every schedule that keeps the node's rules is a solution of it. The window of a request begins with
the block it is first seen in. It ends where every lease does, whatever the policy: at its deadline
less the time that is kept free for the post (`scheduler.lease`); in any case before the last block
that can still deliver it. A valid result takes exactly its work. What is relaxed only helps:
requests may be interrupted, moved, split among classes, and served in part for part of their value;
a request never takes a slot of a worker that would fail on it; leases that fail, loading models and
rounds take no time; nobody is on probation.

v[j] is the fee less the least that its delivery can add to the gas paid: its share of the fullest
post that rules and gas allow, at the lowest base fee of the blocks it can be mined in.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from scheduler.model import GasModel
from scheduler.posting_model import PostingRules
from scheduler.simulation.leases import fails_on
from scheduler.simulation.scenario import World
from scheduler.simulation.workers import SEGMENT_MS, SimWorker
from scheduler.simulation.workload import START_S, SimRequest

INTERVALS = 80
"""Into how many intervals the time of a world is cut at most, apart from changes of speed."""
_MARGIN = 1e-6
"""Added to the optimum, relatively: the solver's tolerances are 1e-7."""


class BoundError(Exception):
    """HiGHS is not installed, or did not solve the programme."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound and the size of the programme that gave it."""

    value_wei: int
    variables: int
    constraints: int


@dataclass(frozen=True, slots=True)
class _Class:
    """Workers that do the same."""

    worker: SimWorker
    slots: int


def clairvoyant_bound(world: World, intervals: int = INTERVALS) -> Bound:
    """The bound of a world, in wei. Raises BoundError."""
    programme = _programme(world, intervals)
    return Bound(
        int(_solve(programme) * (1.0 + _MARGIN)) + 1, len(programme.values), programme.rows
    )


def least_gas_wei(request: SimRequest, world: World) -> int:
    """The least that the request's delivery adds to the gas of any schedule's posts, rounded down.

    A post of n results has at least one group, so each has at least a share of
    (fixed + group) / n + result, least for the largest n that the rules and the gas allow.
    """
    rules, gas = world.posting, world.gas
    largest = _largest_post(gas, rules)
    first = request.seen_at_ms // world.block_ms + 1
    last = _last_block(request, world)
    cheapest_wei = min(world.base_fees_wei[first : last + 1], default=0) + rules.priority_fee_wei
    return gas.of(1, largest) * cheapest_wei // largest


def _largest_post(gas: GasModel, rules: PostingRules) -> int:
    results = rules.max_results
    if gas.per_result_gas > 0:
        results = min(results, (rules.max_gas - gas.of(1, 0)) // gas.per_result_gas)
    return max(1, results)


def _last_block(request: SimRequest, world: World) -> int:
    """The last block whose timestamp is within the deadline."""
    left_s = request.deadline_s - START_S
    number = ((left_s + 1) * 1000 - 1) // world.block_ms
    return min(number, len(world.base_fees_wei) - 1)


def _ready_by_ms(request: SimRequest, world: World) -> int:
    """When its result has to be there."""
    kept_free_ms = int(world.rules.inclusion_s * 1000)
    lease_ends_ms = (request.deadline_s - START_S) * 1000 - kept_free_ms
    return min(lease_ends_ms, _last_block(request, world) * world.block_ms)


@dataclass(slots=True)
class _Programme:
    """Columns in the order of the variables."""

    gains: list[float]
    uppers: list[float]
    starts: list[int]
    rows_of: list[int]
    values: list[float]
    row_uppers: list[float]

    @property
    def rows(self) -> int:
        return len(self.row_uppers)


def _programme(world: World, intervals: int) -> _Programme:
    classes = _classes(world)
    cuts = _cuts(world, intervals)
    programme = _Programme([], [], [0], [], [], [])
    capacity_rows: dict[tuple[int, int], int] = {}
    for request in world.requests:
        worth = float(request.fee_wei - least_gas_wei(request, world))
        if worth <= 0.0:
            continue
        window = (request.seen_at_ms, _ready_by_ms(request, world))
        request_row = len(programme.row_uppers)
        programme.row_uppers.append(1.0)
        first, last = (
            int(np.searchsorted(cuts, window[0], side="right")) - 1,
            int(np.searchsorted(cuts, window[1], side="left")),
        )
        for number, one in enumerate(classes):
            worker = one.worker
            service = worker.service.get(request.model)
            if service is None or fails_on(request, worker):
                continue
            work_ms = service.work_ms(request.generated_tokens, request.factor)
            for interval in range(max(0, first), min(last, len(cuts) - 1)):
                start, end = float(cuts[interval]), float(cuts[interval + 1])
                begin = max(start, window[0], worker.joins_at_ms)
                time_ms = min(end, window[1]) - begin
                speed = worker.speed(int(start) // SEGMENT_MS)
                if time_ms <= 0.0 or speed <= 0.0:
                    continue
                row = capacity_rows.get((number, interval))
                if row is None:
                    row = capacity_rows[number, interval] = len(programme.row_uppers)
                    there_ms = end - max(start, worker.joins_at_ms)
                    programme.row_uppers.append(one.slots * there_ms)
                share = speed / work_ms
                programme.gains.append(worth * share)
                programme.uppers.append(min(time_ms, 1.0 / share))
                programme.rows_of += (request_row, row)
                programme.values += (share, 1.0)
                programme.starts.append(len(programme.values))
    return programme


def _classes(world: World) -> list[_Class]:
    """Workers that differ in nothing but their id and slots; one that can fail is its own class."""
    slots: dict[tuple[object, ...], int] = defaultdict(int)
    first: dict[tuple[object, ...], SimWorker] = {}
    for worker in world.workers:
        key = (
            tuple(sorted(worker.service.items())) if not worker.failure else worker.id,
            worker.speeds,
            worker.joins_at_ms,
        )
        slots[key] += worker.slots
        first.setdefault(key, worker)
    return [_Class(first[key], number) for key, number in slots.items()]


def _cuts(world: World, intervals: int) -> NDArray[np.float64]:
    """The borders of the intervals: every n-th block, and where any speed changes."""
    end_ms = (len(world.base_fees_wei) - 1) * world.block_ms
    blocks = -(-(len(world.base_fees_wei) - 1) // intervals)
    even = np.append(np.arange(0.0, end_ms, max(1, blocks) * world.block_ms), end_ms)
    longest = max((len(worker.speeds) for worker in world.workers), default=1)
    changes = [
        float(n * SEGMENT_MS)
        for n in range(1, min(longest, end_ms // SEGMENT_MS + 1))
        if any(worker.speed(n) != worker.speed(n - 1) for worker in world.workers)
    ]
    return np.unique(np.concatenate([even, np.array(changes)]))


def _solve(programme: _Programme) -> float:
    try:
        import highspy  # noqa: PLC0415 - of the optional extra `bench`
    except ImportError as error:
        raise BoundError("HiGHS is not installed: pip install 'inferd[bench]'") from error
    count = len(programme.gains)
    if count == 0:
        return 0.0
    # In units of the largest gain: solvers do not like 1e18.
    gains = np.array(programme.gains)
    unit = float(gains.max())
    model = highspy.HighsLp()
    model.num_col_ = count
    model.num_row_ = programme.rows
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = gains / unit
    model.col_lower_ = np.zeros(count)
    model.col_upper_ = np.array(programme.uppers)
    model.row_lower_ = np.full(programme.rows, -inf)
    model.row_upper_ = np.array(programme.row_uppers)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.array(programme.starts)
    model.a_matrix_.index_ = np.array(programme.rows_of)
    model.a_matrix_.value_ = np.array(programme.values)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise BoundError(f"HiGHS ended with {solver.modelStatusToString(status)}")
    return float(solver.getInfo().objective_function_value) * unit
