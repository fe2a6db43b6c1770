"""What the node's HTTP API says of workers, its own and those of other machines."""

from __future__ import annotations

from pydantic import Field

from inferd.node.api_models import SCHEMA_VERSION, View


class ModelReputationView(View):
    """A worker's leases of one model, all there were."""

    model: str
    """The name where this node knows it, else the id."""
    good: int
    late: int
    """Valid, and of use though their lease had ended."""
    failed: int
    timeouts: int
    lies: int
    """Answers that were not what they said they were."""
    mean_ms: float | None = None
    """Predicted of an output of 64 tokens; None before a round has seen the worker."""
    tokens_per_s: float | None = None
    """As its heartbeat has it."""
    success_lower: float | None = None
    """It succeeds more often than this, with 90 % confidence."""
    on_probation: bool | None = None
    loaded: bool | None = None


class PoolWorkerView(View):
    address: str
    name: str
    """Of an embedded worker; empty for others."""
    embedded: bool
    endpoint: str
    """As registered."""
    in_pool: bool
    """Whether it is given work."""
    reason: str
    """Why not; empty where it is."""
    slots: int
    limit: int | None
    """Requests it bears at a time, as far as is known."""
    in_flight: int
    circuit: str
    """closed, open or half_open; empty for one that is not in the pool."""
    heartbeat_age_s: float | None
    skew_ms: float | None
    """Its clock less this node's."""
    stake_wei: str | None
    """None where it is not registered."""
    models: list[ModelReputationView]


class PoolView(View):
    schema_version: int = SCHEMA_VERSION
    workers: list[PoolWorkerView]


class WorkerFailureView(View):
    at: str
    id: int
    """The request's."""
    model: str
    failure: str


class SignedKeyView(View):
    """A key that inputs for a worker alone may be encrypted to."""

    key: str
    """X25519, 32 bytes."""
    signature: str
    """The worker's, over EIP-712 `EncryptionKey(bytes32 key)` in the domain of InferenceRequests:
    not this node's word, and not checked here."""


class CheckCountView(View):
    """How checks of one model's answers ended."""

    model: str
    kind: str
    """spot or canary."""
    passed: int
    failed: int
    undecided: int
    not_done: int


class DisagreementBriefView(View):
    """`/v1/workers/{address}/evidence` has all of it."""

    id: int
    at: str
    kind: str
    request_id: int
    decided: bool
    reason: str


class PoolWorkerDetailView(PoolWorkerView):
    schema_version: int = SCHEMA_VERSION
    owner: str | None
    memory_mb: int
    opens_in_s: float
    """Seconds until an open circuit lets calls try."""
    failure_share: float
    """Of its last calls."""
    slow_share: float
    rests_s: float
    """Seconds until it is given work again, after it said that it is busy."""
    skew_error_ms: float | None
    """The skew is right to so much."""
    trouble: str | None
    """Why the newest question for a heartbeat had no answer."""
    version: str | None
    """Of its agent."""
    running: int | None
    """Jobs that it computes, of all its operators."""
    queued: int | None
    free_memory_mb: int | None
    encryption_keys: list[SignedKeyView] = Field(default_factory=list)
    """As its heartbeat has them, the newest first."""
    suspended: str | None
    """The operator's reason."""
    suspended_by: str | None
    failures: list[WorkerFailureView]
    """The last that count against it, the newest first."""
    checks: list[CheckCountView]
    disagreements: list[DisagreementBriefView]
    """The newest first."""
