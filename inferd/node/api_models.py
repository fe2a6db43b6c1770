"""What the node's HTTP API says; the commands read it with the same types.

Amounts in wei are decimal strings (a JSON number is exact only to 2^53), bytes are 0x-hex unless
the name says otherwise.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class View(BaseModel):
    """What all answers of the API have in common."""

    model_config = ConfigDict(frozen=True)


class RequestState(StrEnum):
    """Where a request is, as this node sees it."""

    PENDING = "pending"
    """On chain, not yet looked at by a round."""
    WAITING = "waiting"
    """Looked at and kept for a later round; `reason` says why."""
    ASSIGNED = "assigned"
    """A worker computes it."""
    COMPUTED = "computed"
    """The signed result waits to be posted."""
    POSTING = "posting"
    """In a transaction that is not yet mined, or not yet final."""
    SETTLED = "settled"
    """The result is on chain, and paid, or its payment held back while it can be disputed."""
    REFUSED = "refused"
    """This node will not serve it; `reason` says why."""
    EXPIRED = "expired"
    """Past its deadline, not yet refunded."""
    REFUNDED = "refunded"
    """The fee is credited to the requester."""


class CallbackState(StrEnum):
    """Whether the contract that asked has its answer; only of settled requests with delivery
    CALLBACK."""

    OWED = "owed"
    """It is called when the settlement is confirmed."""
    DELIVERED = "delivered"
    FAILED = "failed"
    """It reverted, or ran out of the gas it asked for. Anyone may call it again."""


class CheckState(StrEnum):
    """What a computed result waits for, beside its post."""

    HELD = "held"
    """Another worker computes it once more."""
    UNDECIDED = "undecided"
    """Workers contradict each other, and it is not known who is wrong."""


class RequestView(View):
    id: int
    commitment: str
    requester: str
    model: str
    """The name where this node knows it, else the id."""
    fee_wei: str
    deadline_s: int
    submitted_at_s: int
    created_block: int
    created_tx: str
    cancel_requested: bool
    state: RequestState
    reason: str | None
    sentence: str | None
    attempts: int
    worker: str | None
    waited_blocks: int
    """From the request's block to its settlement, or to the newest indexed block."""
    batch_size: int | None
    """Results settled by the same transaction."""
    tx_hash: str | None
    settled_block: int | None
    digest: str | None
    quorum: int = 1
    """How many workers of different owners must give the same answer."""
    answers: int = 0
    """Of a quorum: how many workers have answered."""
    agreeing: int = 0
    """Of a quorum: how many of them, of different owners, gave the answer that most gave."""
    callback: CallbackState | None = None
    callback_failure: str | None = None
    """What the contract last returned instead, at most 128 bytes of it."""
    payment: str | None = None
    """Of a request under a dispute window, once it is settled: held, disputed, released, upheld,
    rejected or lapsed."""
    disagreement: int | None = None
    """This node's record that the settled result is wrong: `inferd workers evidence` has it."""
    check: CheckState | None = None
    """Why a computed result is not posted yet, where a check is why."""
    numbers: dict[str, str] = Field(default_factory=dict, exclude=True)
    """What the newest decision was made of, by name."""


class RequestPage(View):
    schema_version: int = SCHEMA_VERSION
    requests: list[RequestView]
    """Newest first."""


class WhyView(View):
    schema_version: int = SCHEMA_VERSION
    id: int
    state: RequestState
    reason: str
    sentence: str
    next_action: str
    numbers: dict[str, str] = Field(default_factory=dict)
    """What the newest decision on it was made of, by name, in the units of the names."""


class DecisionView(View):
    """One decision with what proves it; `scheduler/audit.py` says how a leaf is made of it."""

    round_id: int
    kind: str
    """assign, keep or refuse."""
    commitment: str
    reason: str
    worker: str | None
    score: float | None
    lease_ms: int | None
    inputs: dict[str, int | float | bool | str]
    """The numbers that decided."""
    block_number: int
    block_hash: str
    base_fee_wei: str
    policy: str
    policy_version: str
    snapshot_digest: str | None
    """Of what the round saw; None where it was not recorded."""
    leaf: str | None
    """Under which it was anchored; None before."""
    leaf_version: int | None
    proof: list[str] | None
    """The siblings from the leaf up to the root."""
    tx_hash: str | None
    """The mined transaction that anchored it."""


class DecisionsView(View):
    schema_version: int = SCHEMA_VERSION
    id: int
    decisions: list[DecisionView]
    """Oldest first."""


class ResultView(View):
    schema_version: int = SCHEMA_VERSION
    id: int
    commitment: str
    digest: str
    output_base64: str | None = None
    """None where it is large or was deleted; `/v1/results/{id}/output` has it, or says why not."""
    output_bytes: int | None = None
    """None where it was deleted after its time."""
    media_type: str
    worker: str
    workers: list[str]
    """Who signed what was posted, or who gave this answer so far: one, or those of a quorum. The
    rest of this view is of `worker`, one of them."""
    signature: str
    manifest: dict[str, Any]
    compute_ms: int
    tx_hash: str | None
    """None until it is settled."""
    settled_block: int | None


class EncryptionKeyView(View):
    """To which inputs may be encrypted, and who says so; docs/protocol.md says what is signed."""

    schema_version: int = SCHEMA_VERSION
    key: str
    """Of X25519."""
    poster: str
    signature: str | None
    """EIP-2098; None where the poster's key is at a remote signer."""


class Problem(View):
    """Something that keeps the node from its work, and what to do about it."""

    code: str
    sentence: str
    next_action: str


class EndpointView(View):
    """One RPC endpoint; of its address only scheme, host and port."""

    endpoint: str
    state: str
    """in_use, ready, resting, rate_limited, wrong_chain; of a websocket, live or away."""
    reason: str | None
    """Why it is not used, or its last failure."""
    latency_ms: float | None
    """Moving average of small calls; None before the first, and of a websocket."""
    error_rate: float
    """Moving average over all calls, 0 to 1."""
    head: int | None
    lag_blocks: int
    """Behind the newest block of all, when they were last asked together."""
    calls_per_s: float | None
    """What its refusals have taught; None without a limit."""


class IndexView(View):
    head: int | None
    indexed: int | None
    finalized: int | None
    lag_blocks: int | None
    lag_s: float | None
    reorgs: int
    quarantined: int
    left_s: float | None = None
    """How long the backfill still takes at its pace; None at the head."""
    deepest_reorg: int = 0
    """Blocks given up by the deepest reorganisation since the start."""
    range_blocks: int = 0
    """How many blocks the backfill asks for at once; 0 before it has begun."""
    endpoints: list[EndpointView] = []
    """Those of `rpc_urls` in their order, those of `rpc_send_urls`, then the websocket in use."""
    rechecked: int | None
    """The newest final block that was compared with the chain once more."""
    repaired_blocks: int
    """Of which an endpoint had not told the chain's logs, and that were mended: final ones, and
    those near the head where a request's number was missing."""


class WorkerStatusView(View):
    """One model of a worker in the node; slots and what is in flight are of all its models."""

    address: str
    name: str
    model: str
    slots: int
    in_flight: int
    available: bool
    completed: int
    failed: int


class FundsView(View):
    """What a poster's balance has to pay for, and how far it goes. As of the newest block."""

    state: str
    """enough, low or spent; spent = nothing new is planned."""
    in_flight_wei: str
    """The most that transactions under way can still cost."""
    waiting_wei: str
    """What waiting results and callbacks are expected to cost."""
    result_wei: str
    """What one more result is expected to cost."""
    runway_results: int | None
    """How many results the balance pays for; None while gas is free."""
    spent_wei_per_day: str
    """Gas of the last 24 hours, or at the rate of the time since the first of it."""
    runway_days: float | None
    """How long the balance lasts at that rate; None where nothing was spent."""


class PosterView(View):
    """One key that posts."""

    address: str
    former: bool
    """The settings name it no more; what it has under way is followed."""
    balance_wei: str | None
    funds: FundsView | None = None
    in_flight: int
    confirmed: int
    paused_reason: str | None
    """Why it sends nothing new, whatever the others do."""
    error: str | None
    """What was in its way last."""


class SettlementView(View):
    posters: list[PosterView]
    in_flight: int
    """Of all posters together, as the next ones."""
    ready: int
    paused_reason: str | None
    """None while one poster at least sends what should be sent."""
    confirmed: int
    callbacks_owed: int
    """Contracts that are still to be called with their outputs."""
    delivering: str
    """Why some of them are not called now; empty where all are."""
    disputes_open: int
    """Of this operator, on which nobody has ruled yet."""
    bonds_staked_wei: str
    """In these."""
    disputing: str
    """What comes of lies that are settled under a dispute window; empty where there are none."""
    releasing: str
    """What comes of payments that were held back and are due; empty where there are none."""


class ProcessView(View):
    """One process of a node that is split over several."""

    holder: str
    """Host and process id."""
    roles: list[str]
    ready: bool
    told_s: float
    """Seconds since it has told."""
    problems: list[Problem]
    warnings: list[Problem]


class StatusView(View):
    schema_version: int = SCHEMA_VERSION
    version: str
    chain_id: int
    role: str
    """leader, standby, starting, or reader where it only answers."""
    ready: bool
    problems: list[Problem]
    warnings: list[Problem] = []
    """What will keep it from its work if nobody does anything."""
    index: IndexView
    requests: dict[str, int]
    """Number of requests by chain status."""
    workers: list[WorkerStatusView]
    settlement: SettlementView | None
    processes: list[ProcessView] = []
    """Of a node that is split over processes, those that work now; empty of one that is whole."""


class HealthView(View):
    status: str
    role: str
    problems: list[Problem]
