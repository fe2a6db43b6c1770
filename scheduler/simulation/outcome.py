"""How a simulation ended: one final state a request, one row a post, and the money."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scheduler.model import Reason, TenantId, WorkerId
from scheduler.simulation.workload import SimRequest


class End(StrEnum):
    """The states that a request can end in; each ends in exactly one."""

    DELIVERED = "delivered"
    """Its result was mined within its deadline."""
    LATE = "late"
    """Its result was mined after its deadline: skipped on chain, and its gas lost."""
    NOT_POSTED = "not_posted"
    """It was computed, but no block that was left was worth the gas."""
    EXPIRED = "expired"
    """Its deadline passed without a result."""
    REFUSED = "refused"
    """It was turned away before its deadline."""


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """One request's end. Times are ms since the start."""

    request: SimRequest
    end: End
    reason: Reason | None
    """Why it was turned away."""
    worker: WorkerId | None = None
    """Who computed the result that was posted."""
    leased_at_ms: int | None = None
    """Of the attempt that succeeded."""
    computed_at_ms: int | None = None
    mined_at_ms: int | None = None
    first_leased_at_ms: int | None = None
    attempts_failed: int = 0

    @property
    def queue_ms(self) -> int:
        """From the block it came with to the lease that succeeded; delivered requests only."""
        assert self.leased_at_ms is not None  # noqa: S101 - by End.DELIVERED
        return self.leased_at_ms - self.request.seen_at_ms

    @property
    def run_ms(self) -> int:
        """Length of the lease that succeeded; delivered requests only."""
        assert self.computed_at_ms is not None and self.leased_at_ms is not None  # noqa: S101
        return self.computed_at_ms - self.leased_at_ms

    @property
    def post_ms(self) -> int:
        """From the result to the block it was mined in; delivered requests only."""
        assert self.mined_at_ms is not None and self.computed_at_ms is not None  # noqa: S101
        return self.mined_at_ms - self.computed_at_ms


@dataclass(frozen=True, slots=True)
class PostEnd:
    """One mined transaction."""

    block: int
    results: int
    delivered: int
    gas: int
    price_wei: int
    fees_wei: int
    """Of the requests it delivered."""
    revenue_wei: int
    """What of these fees is the operator's."""

    @property
    def cost_wei(self) -> int:
        return self.gas * self.price_wei

    @property
    def at_a_loss(self) -> bool:
        return self.revenue_wei < self.cost_wei


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that one simulation gave."""

    policy: str
    ends: tuple[RequestEnd, ...]
    """In the order of the requests' keys."""
    posts: tuple[PostEnd, ...]
    rounds: int
    dispatches: int
    negative_slack: int
    """Dispatches whose p90 did not fit before their deadline and inclusion."""
    fallbacks: int
    """Rounds in which the policy was replaced."""

    @property
    def delivered(self) -> tuple[RequestEnd, ...]:
        return tuple(end for end in self.ends if end.end is End.DELIVERED)

    @property
    def fees_wei(self) -> int:
        """Of everything delivered."""
        return sum(end.request.fee_wei for end in self.delivered)

    @property
    def refunds_wei(self) -> int:
        """What goes back to requesters."""
        return sum(end.request.fee_wei for end in self.ends if end.end is not End.DELIVERED)

    @property
    def gas_cost_wei(self) -> int:
        return sum(post.cost_wei for post in self.posts)

    @property
    def value_wei(self) -> int:
        """Fees delivered less the gas of all posts: what workers and operator have together."""
        return self.fees_wei - self.gas_cost_wei

    @property
    def operator_wei(self) -> int:
        """What the operator has of it: revenue less gas."""
        return sum(post.revenue_wei for post in self.posts) - self.gas_cost_wei

    def counts(self) -> Mapping[End, int]:
        return Counter(end.end for end in self.ends)


def served_share(ends: Sequence[RequestEnd]) -> dict[TenantId, float]:
    """The delivered share of each tenant's requests."""
    asked: Counter[TenantId] = Counter(end.request.tenant for end in ends)
    served: Counter[TenantId] = Counter(
        end.request.tenant for end in ends if end.end is End.DELIVERED
    )
    return {tenant: served[tenant] / number for tenant, number in asked.items()}


def jain_index(values: Sequence[float]) -> float:
    """(sum x)^2 / (n * sum x^2): 1 = all equal, 1/n = one has all (Jain, Chiu, Hawe 1984).

    1 where nobody has anything.
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0.0 else 1.0
