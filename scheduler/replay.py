"""A round computed once more from what it saw, and what it had to choose from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from scheduler import flow
from scheduler.choice import WEIGHTED, chosen
from scheduler.decision import Decision
from scheduler.experiment import Split
from scheduler.model import PendingRequest, RequestKey, WorkerId
from scheduler.plan import plan
from scheduler.policies import Policy, policy_named
from scheduler.policies.balanced import Balanced
from scheduler.predict_round import p90_ms, size_of
from scheduler.recording import Recording


class CannotReplay(ValueError):
    """What decided cannot be run here; the text says why."""


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


Named = Callable[[str], Policy]
"""The policy of that name. Raises ValueError for one that is not there, and CannotReplay."""


def policy_of(recording: Recording, named: Named = policy_named) -> Policy | Split:
    """What decided, with its weights, or as the experiment that it was. Raises CannotReplay."""
    version = recording.policy_version.removesuffix(flow.VERSION_SUFFIX)
    if version != recording.policy_version and not flow.available():
        raise CannotReplay("the round was decided by OR-tools, which is not installed here")
    if "," not in recording.policy:
        return _policy(recording.policy, version, named)
    versions, _, number = version.partition("#")
    split = None
    try:
        arms = chosen("", recording.policy, "").arms
        policies = [
            _policy(arm.policy, one, named)
            for arm, one in zip(arms, versions.split(","), strict=True)
        ]
        split = Split(
            tuple(policies), tuple(arm.share for arm in arms), Split.experiment_of(number)
        )
    except CannotReplay:
        raise
    except ValueError:
        pass
    if split is None or (split.name, split.version) != (recording.policy, version):
        raise CannotReplay(f"{recording.policy} of version {version} is no experiment")
    return split


def _policy(name: str, version: str, named: Named) -> Policy:
    try:
        policy = named(name)
    except CannotReplay:
        raise
    except ValueError:
        raise CannotReplay(
            f"policy {name} is not installed here: install the package that offers version"
            f" {version}"
        ) from None
    if name == WEIGHTED:
        with suppress(ValueError):
            policy = Balanced.of_version(version)
    if policy.version != version:
        raise CannotReplay(f"policy {name} is version {policy.version} here, and {version} decided")
    return policy


def replayed(recording: Recording, policy: Policy | Split, key: RequestKey) -> Decision | None:
    """What the round decides on a request, in the way in which it was decided, exactly or
    greedily; None if it was not pending."""
    seen = recording.snapshot
    if not recording.policy_version.endswith(flow.VERSION_SUFFIX):
        seen = replace(seen, rules=replace(seen.rules, flow_arcs=0))
    again = plan(seen, policy)
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
