"""Values the decisions are made of: what a round sees, and what it decides.

Amounts are int wei, times are seconds since the epoch unless the name says `_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from scheduler.allowance import NO_LIMITS, NOTHING_TAKEN, Limits, Taken

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


class DeliveryKind(StrEnum):
    """How a result reaches its requester."""

    EVENT = "event"
    STORED = "stored"
    """Its digest stays in storage."""
    CALLBACK = "callback"
    """The post notes that a contract is to be called; the call is another transaction."""


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
    quorum: int = 1
    """How many workers of different owners must give the same answer."""
    answers: int = 0
    """How many have answered a request whose quorum is above 1."""
    agreeing: int = 0
    """How many of these, of different owners, gave the answer that most gave."""
    excluded: frozenset[WorkerId] = frozenset()
    """Workers that are not asked, whoever else is there: those that answered, and others of their
    owners."""
    unsupported: str | None = None
    """Why this node cannot serve it at all (delivery, quorum, input kind), in words."""
    bad_input: str | None = None
    """What a worker found wrong with its input, in words; no worker could ever compute it."""
    input_awaited: bool = False
    """Whether its input is named by a URI and is not here yet."""
    input_lost: str | None = None
    """Why the input that it names can never be had, in words."""
    batchable: bool = True
    """Whether its result may share a transaction; if not, its fee bears a whole post's gas."""
    delivery: DeliveryKind = DeliveryKind.EVENT
    later_gas: int = 0
    """What its delivery takes in another transaction than the post: the call of a contract."""
    later_bytes: int = 0
    """The calldata of that."""
    tokens_mean: float = 0.0
    """Predicted mean of the tokens of its output; at most `max_tokens`."""
    tokens_sigma: float = 0.0
    """Their spread: the standard deviation of the logarithm of a log-normal law."""
    charged: bool = False
    """Whether its tenant's bucket paid for it before: it had a lease."""


@dataclass(frozen=True, slots=True)
class ServiceEstimate:
    """How long one request of a model takes on a worker, and how surely it ends well.

    mean_ms of a request = base_ms + per_token_ms * tokens_mean, + load_ms where the model is not
    loaded; the law is log-normal with `sigma` (see `scheduler.kinds`).
    """

    base_ms: float
    per_token_ms: float = 0.0
    sigma: float = 0.0
    """Standard deviation of the logarithm of the time, apart from the tokens' spread."""
    samples: int = 0
    success_lower: float = 1.0
    """Lower confidence bound of the probability that a lease ends in a valid result."""
    load_ms: float = 0.0
    """What loading the model takes."""
    ewma_ms: float = 0.0
    """Peak-sensitive moving average of the latest service times; 0 = the mean is taken."""
    p90_factor: float = 1.0
    """What the law's 90 % quantile is multiplied by, as measured (see `scheduler.calibration`)."""


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
    loaded: frozenset[ModelId] | None = None
    """The models that are in its memory now; None = all that it serves."""
    stake_wei: int = 0
    fees_in_hand_wei: int = 0
    """Fees of the requests that it computes now."""
    owner: bytes = b""
    """Who is paid for it, 20 bytes; empty where it is not registered. In a quorum the workers of
    one owner count once."""


@dataclass(frozen=True, slots=True)
class GasModel:
    """Gas of one post: `fixed_gas + per_group_gas * groups + per_result_gas * results`, and of
    each result what its delivery adds."""

    fixed_gas: int
    per_group_gas: int
    per_result_gas: int
    per_stored_gas: int = 0
    """What a result with delivery `STORED` takes beyond `per_result_gas`."""
    per_callback_gas: int = 0
    """The same of `CALLBACK`, without the call itself."""
    per_later_call_gas: int = 0
    """What a transaction after the post costs beside its gas, as gas, where a chain takes that."""
    per_later_byte_gas: int = 0
    """The same for each byte of its calldata."""
    per_later_gas_ppm: int = 0
    """The same for a million of its gas."""

    def of(self, groups: int, results: int, *, stored: int = 0, callbacks: int = 0) -> int:
        """Of a post with so many groups and results; `stored` and `callbacks` are among these."""
        extra = self.per_stored_gas * stored + self.per_callback_gas * callbacks
        return self.fixed_gas + self.per_group_gas * groups + self.per_result_gas * results + extra

    def of_delivery(self, delivery: DeliveryKind) -> int:
        """What a result's delivery adds to the post itself."""
        if delivery is DeliveryKind.STORED:
            return self.per_stored_gas
        return self.per_callback_gas if delivery is DeliveryKind.CALLBACK else 0

    def of_later(self, gas: int, calldata_bytes: int) -> int:
        """What a transaction after the post costs, as gas; 0 where there is none."""
        if not calldata_bytes:
            return gas
        extra = self.per_later_call_gas + self.per_later_byte_gas * calldata_bytes
        return gas + extra - (-gas * self.per_later_gas_ppm // 1_000_000)

    def of_result(self, delivery: DeliveryKind) -> int:
        """What one more result of a worker that is in the post already adds."""
        return self.per_result_gas + self.of_delivery(delivery)


@dataclass(frozen=True, slots=True)
class DataFee:
    """What a post costs beside its gas, in wei: rollups take a fee for its bytes.

    `fixed_wei + per_group_wei * groups + per_result_wei * results + per_gas_wei * gas`
    """

    fixed_wei: int = 0
    per_group_wei: int = 0
    per_result_wei: int = 0
    per_gas_wei: int = 0

    def of(self, groups: int, results: int, gas: int) -> int:
        """Of a post with so many groups and results that takes so much gas."""
        content_wei = self.per_group_wei * groups + self.per_result_wei * results
        return self.fixed_wei + content_wei + self.per_gas_wei * gas


NO_DATA_FEE = DataFee()


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
    """How many times its expected share of gas a fee must cover at least."""
    block_interval_s: float = 0.0
    """How far apart the chain's blocks are; 0 = not known, and every horizon is one block."""
    base_fee_quantiles_ppm: tuple[int, ...] = ()
    """Measured quantile of base fee then / base fee now, in parts per million, `i + 1` blocks
    ahead; a horizon beyond the last takes the last. Empty = not measured: the floor alone."""
    expected_batch: int = 1
    """Results per post that the fixed gas is shared by when a request is admitted."""
    max_attempts: int = 3
    """Leases after which a request is given up."""
    priority_fee_wei: int = 0
    """Tip per gas that posts are expected to pay."""
    limits: Limits = NO_LIMITS
    flow_arcs: int = 0
    """Up to how many arcs a round is decided exactly, by minimum-cost flow; 0 = never."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a round sees beside requests and workers."""

    block: Block
    now_s: float
    gas: GasModel
    rules: Rules
    recent_fees_wei: tuple[int, ...] = ()
    """Fees of the recent window, on which a fee's quantile is read."""
    taken: Taken = NOTHING_TAKEN
    """What of the limits was taken before."""

    @property
    def clock_s(self) -> float:
        """The time all of a round's decisions are made at, seconds since the epoch.

        Deadlines are chain time: a wall clock that lags behind the chain must not make one look
        further away than it is.
        """
        return max(self.now_s, float(self.block.timestamp_s))


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
    """Fees of the recent window, on which a fee's quantile is read."""
    taken: Taken = NOTHING_TAKEN
    """What of the limits was taken before."""

    @property
    def moment(self) -> Moment:
        return Moment(
            self.block, self.now_s, self.gas, self.rules, self.recent_fees_wei, self.taken
        )


class Reason(StrEnum):
    """Why a request was assigned, kept or turned away. Stable: shown to people, stored, counted."""

    ASSIGNED = "assigned"
    # kept: may still be served
    NO_FREE_SLOT = "no_free_slot"
    NO_AVAILABLE_WORKER = "no_available_worker"
    GAS_TOO_DEAR_NOW = "gas_too_dear_now"
    TENANT_IN_FLIGHT = "tenant_in_flight"
    TENANT_RATE = "tenant_rate"
    PROBATION_CAP = "probation_cap"
    BUDGET_SPENT = "budget_spent"
    QUORUM_SHORT = "quorum_short"
    """Too few owners have workers that could serve it."""
    INPUT_AWAITED = "input_awaited"
    POSTING_BEHIND = "posting_behind"
    # refused: never served by this node
    EXPIRED = "expired"
    DEADLINE_INFEASIBLE = "deadline_infeasible"
    MODEL_UNKNOWN = "model_unknown"
    MEMORY_TOO_LARGE = "memory_too_large"
    UNSUPPORTED = "unsupported"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    NO_AGREEMENT = "no_agreement"
    """As many workers have answered as are asked, and no quorum of them alike."""
    BAD_INPUT = "bad_input"
    """Found by a worker: no model could ever compute it."""
    INPUT_UNAVAILABLE = "input_unavailable"
    """What its URI names cannot be had, or is not what it committed to."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers that decided on a request; None where one played no part."""

    fee_wei: int | None = None
    revenue_wei: int | None = None
    """What it earns this operator."""
    gas_need_wei: int | None = None
    """What it would have to earn."""
    gas_price_wei: int | None = None
    margin_ppm: int | None = None
    """How many times the expected gas it has to cover, in parts per million."""
    horizon_blocks: int | None = None
    """The post is expected within so many blocks, for which the margin is; None where no rise of
    the base fee was measured. The furthest that was measured stands for all beyond."""
    delivery_gas: int | None = None
    """What its delivery takes beyond a share of the post, the call of a contract included."""
    deadline_s: int | None = None
    now_s: float | None = None
    wait_s: float | None = None
    budget_ms: int | None = None
    """How long its computation may take: until the deadline, less the time for inclusion."""
    inclusion_s: float | None = None
    p90_ms: float | None = None
    """Of the worker that was chosen, or of the fastest registered one."""
    completion_ms: float | None = None
    """When the chosen worker is expected to be done: its mean time under its load."""
    registered: int | None = None
    """Registered workers that could serve it."""
    available: int | None = None
    available_slots: int | None = None
    owned_only: bool | None = None
    """Whether only the operator's own workers make it worth its gas."""
    attempts: int | None = None
    max_attempts: int | None = None
    tried: int | None = None
    """Workers that failed on it."""
    memory_mb: int | None = None
    largest_memory_mb: int | None = None
    limit: float | None = None
    """The limit that was reached: tokens, requests or wei, as the reason says."""
    used: float | None = None
    """What of the limit is used."""
    detail: str | None = None
    """A name or an error in words."""
