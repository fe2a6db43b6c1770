"""The exact assignment of a round: a minimum-cost flow, solved by OR-tools (extra `flow`).

The greedy way (`scheduler.assignment`) gives each request, in the policy's order, the worker that
finishes first. A request can then take the only slot that a later one could use, though another
would have done for it. The flow decides on all at once, and by two aims, the first before all:

1. *Who is served.* Sets of requests that can be served together are the independent sets of a
   transversal matroid, so the heaviest of them is the same for all weights in the policy's order:
   the one that the order itself would choose, request by request, if slots could still be
   rearranged (Edmonds, "Matroids and the greedy algorithm", 1971). Whoever is left out could not be
   served without leaving out one that is ahead. So the bound on the wait, which rests on serving
   in order (`scheduler.priority`), holds as it does for the greedy way.
2. *By whom.* Among all assignments of that set, the least sum of predicted completions. A worker's
   k-th request costs mean * (slots + used + k) / slots, as in the greedy way: growing, hence convex
   and a flow with one arc a free slot.

The time it takes is bounded by the number of arcs and not by a clock: the same round must give the
same plan on every machine. Above the budget, or where OR-tools is absent, `assign` gives None, and
the round is decided by the heaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

MAX_ARCS = 50_000
"""Some 50 ms of one core."""
_MAX_COST = 2**62
"""OR-tools takes 64-bit costs and multiplies them by the number of nodes."""


class Seats(NamedTuple):
    """A worker's slots."""

    used: int
    slots: int


def available() -> bool:
    """Whether OR-tools is installed."""
    try:
        import ortools.graph.python.min_cost_flow  # noqa: F401, PLC0415 - of the extra `flow`
    except ImportError:
        return False
    return True


def assign(
    options: Sequence[Mapping[int, float]],
    seats: Mapping[int, Seats],
    max_arcs: int = MAX_ARCS,
) -> tuple[int | None, ...] | None:
    """The worker of each request, None for those left out; None for all if it cannot be decided so.

    `options` are the requests in the policy's order: for each the workers that could serve it, with
    the mean time in ms. `seats` holds every worker named there.
    """
    try:
        from ortools.graph.python import min_cost_flow  # noqa: PLC0415 - of the extra `flow`
    except ImportError:
        return None
    free = {worker: max(0, seat.slots - seat.used) for worker, seat in sorted(seats.items())}
    arcs = sum(free[worker] for option in options for worker in option)
    if arcs == 0:
        return (None,) * len(options)
    if arcs + 2 * len(options) > max_arcs:
        return None

    # Nodes: the requests, then a node for each free slot, then the sink.
    first_slot: dict[int, int] = {}
    nodes = len(options)
    for worker, number in free.items():
        first_slot[worker] = nodes
        nodes += number
    sink = nodes
    tails: list[int] = []
    heads: list[int] = []
    times_us: list[int] = []
    workers: list[int] = []
    for request, option in enumerate(options):
        for worker, mean_ms in sorted(option.items()):
            used, slots = seats[worker]
            for taken in range(free[worker]):
                tails.append(request)
                heads.append(first_slot[worker] + taken)
                times_us.append(int(mean_ms * 1000.0 * (slots + used + taken) / slots))
                workers.append(worker)
    # One place in the order outweighs all completions together.
    place = len(options) * max(times_us) + 1
    if place * len(options) * (nodes + 1) > _MAX_COST:
        return None
    costs = [
        time_us - place * (len(options) - request)
        for request, time_us in zip(tails, times_us, strict=True)
    ]
    slots_to_sink = range(len(options), sink)
    # A request that nobody serves goes to the sink by itself.
    solver = min_cost_flow.SimpleMinCostFlow()
    first_arcs = solver.add_arcs_with_capacity_and_unit_cost(
        np.array([*tails, *slots_to_sink, *range(len(options))]),
        np.array([*heads, *[sink] * (len(slots_to_sink) + len(options))]),
        np.ones(arcs + len(slots_to_sink) + len(options), dtype=np.int64),
        np.array([*costs, *[0] * (len(slots_to_sink) + len(options))], dtype=np.int64),
    )[:arcs]
    solver.set_nodes_supplies(
        np.array([*range(len(options)), sink]),
        np.array([*[1] * len(options), -len(options)]),
    )
    if solver.solve() != solver.OPTIMAL:
        return None
    chosen: list[int | None] = [None] * len(options)
    for arc in np.flatnonzero(solver.flows(first_arcs)).tolist():
        chosen[tails[arc]] = workers[arc]
    return tuple(chosen)
