"""What a round decided: a decision for each request, a plan for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from scheduler.explain import sentence
from scheduler.model import Block, Numbers, Reason, RequestKey, WorkerId

if TYPE_CHECKING:
    from scheduler.rows import DecisionRows

NUMBER_NAMES: tuple[str, ...] = tuple(field.name for field in fields(Numbers))

_NONE = Numbers()


@dataclass(frozen=True, slots=True)
class Decision:
    """One request's outcome in one round, with the numbers that decided."""

    key: RequestKey
    reason: Reason
    worker: WorkerId | None = None
    score: float | None = None
    lease_ms: int | None = None
    """For an assignment: how long the worker may take before the request goes to another."""
    numbers: Numbers = _NONE

    @property
    def sentence(self) -> str:
        """The reason and its numbers in words."""
        return sentence(self.reason, self.numbers, self.worker)

    @property
    def inputs(self) -> dict[str, int | float | str]:
        """The numbers that played a part, by name."""
        numbers = ((name, getattr(self.numbers, name)) for name in NUMBER_NAMES)
        return {name: value for name, value in numbers if value is not None}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round decided. Every pending request is in exactly one of the three.

    Assigned decisions come in the order of their scores, the others in the order of their keys.
    """

    block: Block
    policy: str
    policy_version: str
    """Ends with `+flow` where the round was decided by minimum-cost flow (`scheduler.flow`)."""
    assigned: DecisionRows
    kept: DecisionRows
    refused: DecisionRows
    deficits: Mapping[bytes, float] = field(default_factory=dict)
    """What tenants are owed after the round, in tokens, where shares are fair; all that are pending
    or were owed something are there."""
