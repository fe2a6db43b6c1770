"""Values the decisions are made of: what a round sees, and what it decides.

Amounts are int wei, times are seconds since the epoch unless the name says `_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

WorkerId = NewType("WorkerId", bytes)
"""The worker's signer address, 20 bytes."""
ModelId = NewType("ModelId", bytes)
"""32 bytes."""
TenantId = NewType("TenantId", bytes)
"""The requester's address, 20 bytes."""


@dataclass(frozen=True, slots=True, order=True)
class RequestKey:
    """A request on one branch of the chain: ids can be reused by a reorg, commitments cannot."""

    id: int
    commitment: bytes


@dataclass(frozen=True, slots=True)
class Block:
    """The block a round is pinned to."""

    number: int
    hash: bytes
    timestamp_s: int
    base_fee_wei: int
    gas_limit: int


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that has neither a result nor an active lease."""

    key: RequestKey
    tenant: TenantId
    model: ModelId
    fee_wei: int
    submitted_at_s: int
    deadline_s: int
    max_tokens: int
    input_bytes: int
    memory_mb: int
    attempts: int = 0
    tried: frozenset[WorkerId] = frozenset()
    """Workers whose lease on it failed or expired."""
    unsupported: str | None = None
    """Why this node cannot serve it at all (delivery, quorum, input kind), in words."""
    bad_input: str | None = None
    """What a worker found wrong with its input, in words; no worker could ever compute it."""
    batchable: bool = True
    """Whether its result may share a transaction; if not, its fee bears a whole post's gas."""
    delivery_gas: int = 0
    """What its delivery takes beyond its share of a post."""


@dataclass(frozen=True, slots=True)
class ServiceEstimate:
    """How long one request of a model takes on a worker."""

    mean_ms: float
    p90_ms: float
    samples: int


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as a round sees it."""

    id: WorkerId
    slots: int
    in_flight: int
    memory_mb: int
    available: bool
    """Registered, enabled, staked, and its circuit closed."""
    service: Mapping[ModelId, ServiceEstimate]
    """What it serves; a model it does not serve is absent."""
    owned: bool
    """Whether its share of the fee is this operator's own money."""


@dataclass(frozen=True, slots=True)
class GasModel:
    """Gas of one post: `fixed_gas + per_group_gas * groups + per_result_gas * results`."""

    fixed_gas: int
    per_group_gas: int
    per_result_gas: int

    def of(self, groups: int, results: int) -> int:
        return self.fixed_gas + self.per_group_gas * groups + self.per_result_gas * results


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator settles in the configuration."""

    poster_bps: int
    """The poster's share of each fee, in 1/10,000; fixed by the deployed contract."""
    max_wait_s: int = 60
    """The wait at which a request counts as fully aged."""
    inclusion_s: float = 3.0
    """Time kept free between a computed result and its deadline, for the post to be mined."""
    gas_margin: float = 1.5
    """How many times its expected share of gas a fee must cover."""
    expected_batch: int = 1
    """Results per post that the fixed gas is shared by when a request is admitted."""
    max_attempts: int = 3
    """Leases after which a request is given up."""
    priority_fee_wei: int = 0
    """Tip per gas that posts are expected to pay."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one round sees. The same snapshot always gives the same plan."""

    block: Block
    now_s: float
    requests: tuple[PendingRequest, ...]
    workers: tuple[WorkerView, ...]
    gas: GasModel
    rules: Rules
    recent_fees_wei: tuple[int, ...] = ()
    """Fees of the recent window, sorted, on which a fee's quantile is read."""


class Reason(StrEnum):
    """Why a request was assigned, kept or turned away. Stable: shown to people, stored, counted."""

    ASSIGNED = "assigned"
    # kept: may still be served
    NO_FREE_SLOT = "no_free_slot"
    NO_AVAILABLE_WORKER = "no_available_worker"
    GAS_TOO_DEAR_NOW = "gas_too_dear_now"
    # refused: never served by this node
    EXPIRED = "expired"
    DEADLINE_INFEASIBLE = "deadline_infeasible"
    MODEL_UNKNOWN = "model_unknown"
    MEMORY_TOO_LARGE = "memory_too_large"
    UNSUPPORTED = "unsupported"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    BAD_INPUT = "bad_input"
    """Found by a worker: no model could ever compute it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One request's outcome in one round, with the numbers that decided."""

    key: RequestKey
    reason: Reason
    sentence: str
    worker: WorkerId | None = None
    score: float | None = None
    lease_ms: int | None = None
    """For an assignment: how long the worker may take before the request goes to another."""
    inputs: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round decided. Every request of the snapshot is in exactly one of the three."""

    block: Block
    policy: str
    assigned: tuple[Decision, ...]
    kept: tuple[Decision, ...]
    refused: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class ReadyResult:
    """A signed result that waits to be posted."""

    key: RequestKey
    worker: WorkerId
    fee_wei: int
    revenue_wei: int
    """What posting it earns this operator."""
    deadline_s: int
    computed_at_s: float
    batchable: bool


@dataclass(frozen=True, slots=True)
class PostingRules:
    """What the operator settles about posting."""

    delay_price_wei_per_s: int
    """What one result's waiting for one second is worth."""
    max_results: int
    """Upper bound of results in one transaction, whatever gas allows."""
    max_gas: int
    """Upper bound of one transaction's gas."""
    guard_s: float
    """Post at once when a deadline is nearer than this and one block more."""
    priority_fee_wei: int
    max_fee_per_gas_wei: int
    """Never post above this gas price."""


@dataclass(frozen=True, slots=True)
class PostingSnapshot:
    """All that a posting decision sees."""

    block: Block
    now_s: float
    ready: tuple[ReadyResult, ...]
    gas: GasModel
    rules: PostingRules
    block_interval_s: float
    """How far apart the chain's blocks are: what is posted now is mined so long after the head."""


class PostReason(StrEnum):
    """Why a batch is posted now, or why not yet."""

    NOTHING_READY = "nothing_ready"
    ACCUMULATING = "accumulating"
    UNPROFITABLE = "unprofitable"
    TOO_LATE = "too_late"
    GAS_PRICE_OVER_CAP = "gas_price_over_cap"
    WORTH_IT = "worth_it"
    DEADLINE_NEAR = "deadline_near"
    BATCH_FULL = "batch_full"
    NOT_BATCHABLE = "not_batchable"


@dataclass(frozen=True, slots=True)
class PostingDecision:
    """Which results to post in the next transaction; empty = wait."""

    reason: PostReason
    sentence: str
    results: tuple[ReadyResult, ...]
    gas_limit_estimate: int
    cost_wei: int
    revenue_wei: int
    too_late: tuple[ReadyResult, ...] = ()
    """Left out for good: no block that is still to come is within their deadlines."""
    inputs: Mapping[str, int | float | str] = field(default_factory=dict)
