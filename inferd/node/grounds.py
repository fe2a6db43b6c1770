"""What refusals rest on, and which of them a change may undo."""

from __future__ import annotations

from dataclasses import dataclass

from inferd.node.snapshot import RoundInputs
from scheduler.model import Reason

# What more or other workers could still serve.
_OF_OFFERS = frozenset({Reason.MODEL_UNKNOWN, Reason.MEMORY_TOO_LARGE, Reason.DEADLINE_INFEASIBLE})
# What a transaction with more gas could still deliver.
_OF_GAS = frozenset({Reason.UNSUPPORTED})
# What another setting, or another version of this node, could still serve: both come with a start.
_OF_ATTEMPTS = frozenset({Reason.ATTEMPTS_EXHAUSTED, Reason.NO_AGREEMENT})
_OF_THIS_NODE = _OF_OFFERS | _OF_GAS | _OF_ATTEMPTS | {Reason.INPUT_UNAVAILABLE}


@dataclass(frozen=True, slots=True)
class Grounds:
    """What refusals rest on beside the request, its attempts and the settings of this process."""

    offers: frozenset[tuple[bytes, bytes, int]]
    """Worker, model and memory."""
    max_gas: int
    """Of a transaction, by the operator and by the block."""
    max_attempts: int
    inclusion_s: float


def reopened(before: Grounds | None, now: Grounds) -> frozenset[Reason]:
    """Which refusals may be none any more; `before` is None in the first round of a session. Pure.

    What became stricter reopens nothing: what was refused would be refused again.
    """
    if before is None:
        return _OF_THIS_NODE
    found: set[Reason] = set()
    if now.offers != before.offers:
        found |= _OF_OFFERS
    if now.max_gas > before.max_gas:
        found |= _OF_GAS
    if now.max_attempts > before.max_attempts:
        found |= _OF_ATTEMPTS
    if now.inclusion_s < before.inclusion_s:
        found.add(Reason.DEADLINE_INFEASIBLE)
    return frozenset(found)


def grounds_of(inputs: RoundInputs, block_gas_limit: int) -> Grounds:
    """Of a round at a head with this limit. Pure."""
    return Grounds(
        offers=frozenset(
            (worker.id, model, worker.memory_mb)
            for worker in inputs.workers
            for model in worker.service
        ),
        max_gas=inputs.gas_cap(block_gas_limit),
        max_attempts=inputs.rules.max_attempts,
        inclusion_s=inputs.rules.inclusion_s,
    )
