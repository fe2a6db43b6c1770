"""Values of the limits: what the operator allows, and what has been taken of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Quota:
    """What the operator allows one tenant; 0 = no limit."""

    tokens_per_s: float = 0.0
    burst_tokens: float = 0.0
    in_flight: int = 0
    weight: float = 1.0
    """Its share where shares are fair, relative to that of others."""


@dataclass(frozen=True, slots=True)
class Probation:
    """The operator's terms for workers that have not proved themselves."""

    success: float = 0.0
    """The lower bound of P(success) that ends it; 0 = nobody is on probation."""
    in_flight: int = 1
    """Requests in hand, at most."""
    stake_bps: int = 10_000
    """Fees in hand, at most, in 1/10,000 of the stake."""


@dataclass(frozen=True, slots=True)
class Limits:
    """All that the operator settles. The defaults limit nothing."""

    quota: Quota = Quota()
    """Of tenants without a quota of their own."""
    quotas: Mapping[bytes, Quota] = field(default_factory=dict)
    """By the tenant's address."""
    fair_quantum_tokens: float = 0.0
    """What a tenant of weight 1 takes in its turn; 0 = the policy's order alone."""
    probation: Probation = Probation()
    unposted: int = 0
    """Results that wait for room in a post from which on nothing is assigned; 0 = no limit."""

    @property
    def of_tenants(self) -> bool:
        """Whether any tenant has a quota."""
        return any(one.tokens_per_s or one.in_flight for one in (self.quota, *self.quotas.values()))

    def quota_of(self, tenant: bytes) -> Quota:
        return self.quotas.get(tenant, self.quota)


@dataclass(frozen=True, slots=True)
class Bucket:
    """What a tenant's bucket held at a moment; whoever has none has a full one."""

    tokens: float
    """Negative after a request that cost more than the burst."""
    at_s: float


@dataclass(frozen=True, slots=True)
class Use:
    """What a tenant has taken and is owed, as a round begins."""

    in_flight: int = 0
    """Its active leases."""
    bucket: Bucket | None = None
    deficit_tokens: float = 0.0
    """What it is owed from earlier rounds, see `scheduler.fairness`."""


UNUSED = Use()


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit of gas within a window, and what counts against it as a round begins, in wei."""

    window_s: int
    limit_wei: int
    committed_wei: int

    @property
    def left_wei(self) -> int:
        return self.limit_wei - self.committed_wei


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken before the round."""

    uses: Mapping[bytes, Use] = field(default_factory=dict)
    """By the tenant's address; whoever is not there has taken nothing."""
    budgets: tuple[Budget, ...] = ()
    unposted: int = 0
    """Results that wait for room in a post."""


NO_LIMITS = Limits()
NOTHING_TAKEN = Taken()
