"""One round from scratch: a snapshot in, a plan out."""

from __future__ import annotations

from scheduler.decision import Plan
from scheduler.experiment import Split
from scheduler.model import Snapshot
from scheduler.planner import Changes, Planner
from scheduler.policies import DEFAULT, Policy


def plan(snapshot: Snapshot, policy: Policy | Split = DEFAULT) -> Plan:
    """What to do with every request of the snapshot: assign, keep or refuse, each with a reason.

    The same snapshot always gives the same plan, in whatever order its tuples come. Raises
    ValueError if the snapshot holds a request or worker twice.
    """
    seen = set()
    for worker in snapshot.workers:
        if worker.id in seen:
            raise ValueError(f"the snapshot holds worker 0x{worker.id.hex()} twice")
        seen.add(worker.id)
    planner = Planner()
    planner.apply(Changes(added=snapshot.requests, workers=snapshot.workers))
    return planner.plan(snapshot.moment, policy)
