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
2. *By whom.* Among all assignments of that set, the least sum of the policy's keys, work * load: of
   predicted completions, for the policies that go by them. A worker's load with one request more
   never falls, so the costs are convex, and a flow with one arc a free slot.

The time it takes is bounded by the number of arcs and not by a clock: the same round must give the
same plan on every machine. Above the budget, or where OR-tools is absent, `assign` gives None, and
the round is decided by the heaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

VERSION_SUFFIX = "+flow"
"""Of the version of a policy whose round was decided in this way."""
MAX_ARCS = 20_000
"""Some 50 ms of one core."""
_LARGEST_KEY = 2**20
"""Keys are rounded to a millionth of the largest one."""
_MAX_COST = 2**62
"""OR-tools takes 64-bit costs and multiplies them by the number of nodes."""


def available() -> bool:
    """Whether OR-tools is installed."""
    try:
        import ortools.graph.python.min_cost_flow  # noqa: F401, PLC0415 - of the extra `flow`
    except ImportError:
        return False
    return True


def assign(
    works: Sequence[Mapping[int, float]],
    loads: Mapping[int, Sequence[float]],
    max_arcs: int = MAX_ARCS,
) -> tuple[int | None, ...] | None:
    """The worker of each request, None for those left out; None for all if it cannot be decided so.

    `works` are the requests in the policy's order: for each the workers that could serve it, with
    its work there. `loads` are of each such worker's free slots, by how many of them are taken
    before: finite, at least 0, never falling.
    """
    try:
        from ortools.graph.python import min_cost_flow  # noqa: PLC0415 - of the extra `flow`
    except ImportError:
        return None
    requests = len(works)
    arcs = sum(len(loads[worker]) for work in works for worker in work)
    if arcs == 0:
        return (None,) * requests
    if arcs + 2 * requests > max_arcs:
        return None

    # Nodes: the requests, then a node for each free slot, then the sink.
    first_slot: dict[int, int] = {}
    sink = requests
    for worker in sorted(loads):
        first_slot[worker] = sink
        sink += len(loads[worker])
    tails: list[int] = []
    heads: list[int] = []
    keys: list[float] = []
    workers: list[int] = []
    for request, work in enumerate(works):
        for worker, size in sorted(work.items()):
            for taken, load in enumerate(loads[worker]):
                tails.append(request)
                heads.append(first_slot[worker] + taken)
                keys.append(size * load)
                workers.append(worker)
    # One place in the order outweighs all keys together.
    place = requests * _LARGEST_KEY + 1
    if place * requests * (sink + 1) > _MAX_COST:
        return None
    unit = max(keys) / _LARGEST_KEY or 1.0
    costs = np.rint(np.array(keys) / unit).astype(np.int64)
    costs -= place * (requests - np.array(tails, np.int64))
    # A slot leads to the sink, and so does a request that nobody serves.
    through = np.arange(sink)
    solver = min_cost_flow.SimpleMinCostFlow()
    added = solver.add_arcs_with_capacity_and_unit_cost(
        np.concatenate([np.array(tails), through]),
        np.concatenate([np.array(heads), np.full(sink, sink)]),
        np.ones(arcs + sink, np.int64),
        np.concatenate([costs, np.zeros(sink, np.int64)]),
    )
    solver.set_nodes_supplies(
        np.append(np.arange(requests), sink), np.append(np.ones(requests, np.int64), -requests)
    )
    if solver.solve() != solver.OPTIMAL:
        return None
    chosen: list[int | None] = [None] * requests
    for arc in np.flatnonzero(solver.flows(added[:arcs])).tolist():
        chosen[tails[arc]] = workers[arc]
    return tuple(chosen)
