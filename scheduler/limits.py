"""Where limits on tenants, budgets and workers on probation enter a round.

After ordering, each request in its turn: what a limit still allows changes as the round assigns.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from scheduler.model import PendingRequest, Reason, WorkerId
from scheduler.policies.protocol import OrderView


class Reached(NamedTuple):
    """A limit that keeps a request in this round."""

    reason: Reason
    used: float
    limit: float


class OpenLimit(Protocol):
    """A limit during one round. Requests are named by their position in the view."""

    def reached(self, row: int, request: PendingRequest) -> Reached | None:
        """Whether the request has to stay, before a worker is looked for."""

    def assigned(self, row: int, request: PendingRequest, worker: WorkerId) -> None:
        """Counts an assignment."""


class Limit(Protocol):
    """A limit that holds in every round."""

    def begin(self, view: OrderView) -> OpenLimit:
        """The limit as it stands when a round begins."""
