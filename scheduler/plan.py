"""One round: a snapshot in, a plan out."""

from __future__ import annotations

from itertools import pairwise

from scheduler.admission import Admission, Admitted
from scheduler.assignment import Assigner
from scheduler.model import Decision, PendingRequest, Plan, Reason, Snapshot
from scheduler.policies import DEFAULT, policy_named
from scheduler.pool import Pool


def plan(snapshot: Snapshot, policy: str = DEFAULT) -> Plan:
    """What to do with every request of the snapshot: assign, keep or refuse, each with a reason.

    The same snapshot always gives the same plan, in whatever order its tuples come. Assigned
    decisions come in the order of their scores, the others in the order of their keys.
    Raises ValueError if the policy is unknown or the snapshot holds a request or worker twice.
    """
    chosen = policy_named(policy)
    pool = Pool(snapshot.workers)
    admission = Admission(snapshot, pool)
    admitted: list[Admitted] = []
    kept: list[Decision] = []
    refused: list[Decision] = []
    for request in _in_order_of_keys(snapshot.requests):
        outcome = admission.check(request)
        if isinstance(outcome, Admitted):
            admitted.append(outcome)
        elif outcome.reason is Reason.GAS_TOO_DEAR_NOW:
            kept.append(outcome)
        else:
            refused.append(outcome)

    scores = chosen.scores(snapshot, admitted)
    # A stable sort of what is in the order of keys: equal scores stay in that order.
    ranking = sorted(range(len(admitted)), key=scores.__getitem__, reverse=True)
    assigner = Assigner(pool, snapshot.block)
    assigned: list[Decision] = []
    for index in ranking:
        decision = assigner.decide(admitted[index], scores[index])
        (assigned if decision.reason is Reason.ASSIGNED else kept).append(decision)
    kept.sort(key=lambda decision: (decision.key.id, decision.key.commitment))
    return Plan(snapshot.block, chosen.name, tuple(assigned), tuple(kept), tuple(refused))


def _in_order_of_keys(requests: tuple[PendingRequest, ...]) -> list[PendingRequest]:
    ordered = sorted(requests, key=lambda request: (request.key.id, request.key.commitment))
    for one, other in pairwise(ordered):
        if one.key.id == other.key.id and one.key == other.key:
            raise ValueError(f"the snapshot holds request {one.key.id} twice")
    return ordered
