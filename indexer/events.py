"""The events of the indexed contracts. Layouts: contracts/src/interfaces/."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from indexer.types import Address, Hash32, Wei


@dataclass(frozen=True, slots=True)
class InferenceRequested:
    request_id: int
    requester: Address
    model_id: Hash32
    commitment: bytes
    """20 bytes."""
    fee_wei: Wei
    deadline_s: int
    delivery: int
    quorum: int
    batchable: bool
    under_terms: bool
    """Whether its model's terms ask for a proof or a dispute window."""
    max_tokens: int
    memory_mb: int
    callback_gas_limit: int
    input_kind: int
    input: bytes


@dataclass(frozen=True, slots=True)
class FeeRaised:
    request_id: int
    fee_wei: Wei
    """Now held."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    request_id: int
    deadline_s: int
    """Now in force."""


@dataclass(frozen=True, slots=True)
class InferenceFulfilled:
    request_id: int
    worker: Address
    digest: Hash32


@dataclass(frozen=True, slots=True)
class ResultSkipped:
    request_id: int
    """Whatever a poster wrote: any 64-bit number."""
    reason: int


@dataclass(frozen=True, slots=True)
class RequestRefunded:
    request_id: int
    requester: Address
    amount_wei: Wei


@dataclass(frozen=True, slots=True)
class RefundSkipped:
    request_id: int
    """Whatever a caller wrote: any 256-bit number."""
    reason: int


@dataclass(frozen=True, slots=True)
class WorkerPaid:
    worker: Address
    owner: Address
    results: int
    amount_wei: Wei


@dataclass(frozen=True, slots=True)
class PosterPaid:
    poster: Address
    amount_wei: Wei


@dataclass(frozen=True, slots=True)
class Withdrawn:
    account: Address
    to: Address
    amount_wei: Wei


@dataclass(frozen=True, slots=True)
class GroupSkipped:
    group_index: int
    reason: int


@dataclass(frozen=True, slots=True)
class DecisionsAnchored:
    root: Hash32
    poster: Address


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    signer: Address
    owner: Address
    models: tuple[Hash32, ...]
    endpoint: bytes
    slots: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class WorkerUpdated:
    signer: Address
    owner: Address
    models: tuple[Hash32, ...]
    endpoint: bytes
    slots: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class WorkerEnabled:
    signer: Address
    enabled: bool


@dataclass(frozen=True, slots=True)
class WorkerStaked:
    signer: Address
    staked: bool


@dataclass(frozen=True, slots=True)
class Staked:
    signer: Address
    sender: Address
    amount_wei: Wei
    staked_wei: Wei
    """Now staked."""


@dataclass(frozen=True, slots=True)
class UnstakeStarted:
    signer: Address
    amount_wei: Wei
    staked_wei: Wei
    unbonding_wei: Wei
    withdrawable_at_s: int


@dataclass(frozen=True, slots=True)
class StakeWithdrawn:
    signer: Address
    to: Address
    amount_wei: Wei


@dataclass(frozen=True, slots=True)
class Slashed:
    signer: Address
    reporter: Address
    amount_wei: Wei
    staked_wei: Wei
    """What is left."""
    unbonding_wei: Wei


@dataclass(frozen=True, slots=True)
class Equivocated:
    signer: Address
    request_id: int
    """Whatever a worker signed: any 64-bit number."""
    commitment: bytes
    digest: Hash32
    other_digest: Hash32


@dataclass(frozen=True, slots=True)
class CallbackDelivered:
    request_id: int
    consumer: Address


@dataclass(frozen=True, slots=True)
class CallbackFailed:
    request_id: int
    consumer: Address
    reason: bytes
    """The first of what the consumer returned."""


@dataclass(frozen=True, slots=True)
class CallbackSkipped:
    request_id: int
    """Whatever a caller wrote: any 256-bit number."""
    reason: int


@dataclass(frozen=True, slots=True)
class ProofRejected:
    request_id: int
    verifier: Address


@dataclass(frozen=True, slots=True)
class PaymentHeld:
    request_id: int
    commitment: bytes
    digest: Hash32
    workers: tuple[Address, ...]
    owners: tuple[Address, ...]
    payment_wei: Wei
    poster: Address
    poster_wei: Wei
    bond_wei: Wei
    disputable_until_s: int


@dataclass(frozen=True, slots=True)
class PaymentReleased:
    request_id: int


@dataclass(frozen=True, slots=True)
class ReleaseSkipped:
    request_id: int
    """Whatever a caller wrote: any 256-bit number."""
    reason: int


@dataclass(frozen=True, slots=True)
class DisputeOpened:
    request_id: int
    disputer: Address
    ruling_until_s: int


@dataclass(frozen=True, slots=True)
class DisputeRuled:
    request_id: int
    disputer: Address
    upheld: bool
    slashed_wei: Wei


@dataclass(frozen=True, slots=True)
class DisputeLapsed:
    request_id: int


@dataclass(frozen=True, slots=True)
class ArbiterSet:
    arbiter: Address


@dataclass(frozen=True, slots=True)
class Credited:
    account: Address
    sender: Address
    amount_wei: Wei


@dataclass(frozen=True, slots=True)
class CreditTransferred:
    sender: Address
    to: Address
    amount_wei: Wei


@dataclass(frozen=True, slots=True)
class PausedSet:
    paused: bool


@dataclass(frozen=True, slots=True)
class OwnershipOffered:
    owner: Address
    pending_owner: Address


@dataclass(frozen=True, slots=True)
class OwnershipTaken:
    former_owner: Address
    owner: Address


@dataclass(frozen=True, slots=True)
class ModelTermsSet:
    terms_id: int
    """0: the model has no terms any more."""
    model_id: Hash32
    verifier: Address
    dispute_window_s: int
    bond_gwei: int
    min_quorum: int


RequestEvent: TypeAlias = (
    InferenceRequested
    | FeeRaised
    | CancelRequested
    | InferenceFulfilled
    | RequestRefunded
    | CallbackDelivered
    | CallbackFailed
)
"""What changes a request."""

SkipEvent: TypeAlias = (
    ResultSkipped | RefundSkipped | CallbackSkipped | ProofRejected | ReleaseSkipped
)
"""Says something of a request and changes nothing."""

WorkerEvent: TypeAlias = (
    WorkerRegistered
    | WorkerUpdated
    | WorkerEnabled
    | WorkerStaked
    | Staked
    | UnstakeStarted
    | StakeWithdrawn
    | Slashed
)
"""What changes a worker."""

PaymentEvent: TypeAlias = WorkerPaid | PosterPaid

DisputeEvent: TypeAlias = (
    PaymentHeld | PaymentReleased | DisputeOpened | DisputeRuled | DisputeLapsed
)
"""What becomes of a request's payment that is held back."""

AdminEvent: TypeAlias = PausedSet | OwnershipOffered | OwnershipTaken | ModelTermsSet | ArbiterSet
"""What the owner of the deployment does."""

Event: TypeAlias = (
    RequestEvent
    | SkipEvent
    | WorkerEvent
    | PaymentEvent
    | DisputeEvent
    | AdminEvent
    | Equivocated
    | Credited
    | CreditTransferred
    | Withdrawn
    | GroupSkipped
    | DecisionsAnchored
)


def kind_of(event: Event) -> str:
    """The event's name in the interface."""
    return type(event).__name__
