"""The reference: for each request in its turn, a look at every worker."""

from __future__ import annotations

from math import ceil, exp, inf, log2, sqrt

from scheduler.decision import Decision, Plan
from scheduler.kinds import MAX_SERVICE_MS, MIN_SERVICE_MS, PER_OCTAVE, PER_SIGMA, Z90
from scheduler.model import ModelId, PendingRequest, RequestKey, Snapshot, WorkerId, WorkerView
from scheduler.policies.value import LEAST_SUCCESS


def scan(snapshot: Snapshot, plan: Plan) -> dict[RequestKey, WorkerId]:
    """Who gets what by policy `value`, in the plan's order: the least predicted time until a valid
    result."""
    requests = {request.key: request for request in snapshot.requests}
    waiting: list[Decision] = [*plan.assigned, *(one for one in plan.kept if one.score is not None)]
    waiting.sort(key=lambda one: (-(one.score or 0.0), one.key))
    workers = sorted(snapshot.workers, key=lambda view: view.id)
    used = {view.id: view.in_flight for view in workers}
    chosen = {}
    for one in waiting:
        budget_ms = one.numbers.budget_ms or 0
        best = _best(requests[one.key], budget_ms, workers, used)
        if best is not None:
            chosen[one.key] = best
            used[best] += 1
    return chosen


def _best(
    request: PendingRequest, budget_ms: int, workers: list[WorkerView], used: dict[WorkerId, int]
) -> WorkerId | None:
    tokens = _tokens(request)
    sigma = ceil(PER_SIGMA * request.tokens_sigma) / PER_SIGMA
    best, least_ms = None, inf
    for view in workers:
        taken = used[view.id]
        if (
            not view.available
            or taken >= view.slots
            or request.model not in view.service
            or view.memory_mb < request.memory_mb
        ):
            continue
        estimate = view.service[request.model]
        mean_ms = _mean_ms(view, request.model, tokens)
        s = min(sqrt(estimate.sigma**2 + sigma**2), Z90)
        work_ms = mean_ms / max(estimate.success_lower, LEAST_SUCCESS)
        until_valid_ms = work_ms * ((view.slots + taken) / view.slots)
        law = round(exp(Z90 * s - s * s / 2), 9)
        in_time = mean_ms * (law * estimate.p90_factor) <= budget_ms
        if in_time and until_valid_ms < least_ms:
            best, least_ms = view.id, until_valid_ms
    return best


def _tokens(request: PendingRequest) -> float:
    if request.tokens_mean <= 0.0:
        return 0.0
    return float(2.0 ** (ceil(PER_OCTAVE * log2(max(request.tokens_mean, 1.0))) / PER_OCTAVE))


def _mean_ms(view: WorkerView, model: ModelId, tokens: float) -> float:
    estimate = view.service[model]
    cold = view.loaded is not None and model not in view.loaded
    base_ms = estimate.base_ms + (estimate.load_ms if cold else 0.0)
    return min(max(base_ms + estimate.per_token_ms * tokens, MIN_SERVICE_MS), MAX_SERVICE_MS)
