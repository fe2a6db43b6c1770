"""A round computed once more from what it saw, and what it had to choose from."""

from __future__ import annotations

from typing import NamedTuple

from scheduler.decision import Decision
from scheduler.model import PendingRequest, RequestKey, WorkerId
from scheduler.plan import plan
from scheduler.policies import Policy
from scheduler.predict_round import p90_ms, size_of
from scheduler.recording import Recording


class Candidate(NamedTuple):
    """A worker that serves a request's model and has its memory."""

    worker: WorkerId
    p90_ms: float
    """Of this request, its model being loaded."""
    success_lower: float
    in_flight: int
    """When the round began."""
    slots: int
    available: bool
    tried: bool
    """Whether it has failed on the request before."""


def replayed(recording: Recording, policy: Policy, key: RequestKey) -> Decision | None:
    """What the round decides on a request; None if it was not pending."""
    again = plan(recording.snapshot, policy)
    for decisions in (again.assigned, again.kept, again.refused):
        for decision in decisions:
            if decision.key == key:
                return decision
    return None


def candidates(recording: Recording, key: RequestKey) -> list[Candidate]:
    """Whom the round could choose from, the fastest first; nobody for an unknown request."""
    request = _request(recording, key)
    if request is None:
        return []
    size = size_of(request.tokens_mean, request.tokens_sigma)
    found = [
        Candidate(
            worker.id,
            p90_ms(worker.service[request.model], size),
            worker.service[request.model].success_lower,
            worker.in_flight,
            worker.slots,
            worker.available,
            worker.id in request.tried,
        )
        for worker in recording.snapshot.workers
        if request.model in worker.service and worker.memory_mb >= request.memory_mb
    ]
    return sorted(found, key=lambda one: (one.p90_ms, one.worker))


def _request(recording: Recording, key: RequestKey) -> PendingRequest | None:
    return next((one for one in recording.snapshot.requests if one.key == key), None)
