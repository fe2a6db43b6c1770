"""The events of the indexed contracts. Layouts: contracts/src/interfaces/."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from indexer.types import Address, Hash32, Wei


class _Event(msgspec.Struct, frozen=True, gc=False):
    """Values without references back: a backfill holds many, and the garbage collector none."""


class InferenceRequested(_Event, frozen=True):
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


class FeeRaised(_Event, frozen=True):
    request_id: int
    fee_wei: Wei
    """Now held."""


class CancelRequested(_Event, frozen=True):
    request_id: int
    deadline_s: int
    """Now in force."""


class InferenceFulfilled(_Event, frozen=True):
    request_id: int
    worker: Address
    digest: Hash32


class ResultSkipped(_Event, frozen=True):
    request_id: int
    """Whatever a poster wrote: any 64-bit number."""
    reason: int


class RequestRefunded(_Event, frozen=True):
    request_id: int
    requester: Address
    amount_wei: Wei


class RefundSkipped(_Event, frozen=True):
    request_id: int
    """Whatever a caller wrote: any 256-bit number."""
    reason: int


class WorkerPaid(_Event, frozen=True):
    worker: Address
    owner: Address
    results: int
    amount_wei: Wei


class PosterPaid(_Event, frozen=True):
    poster: Address
    amount_wei: Wei


class Withdrawn(_Event, frozen=True):
    account: Address
    to: Address
    amount_wei: Wei


class GroupSkipped(_Event, frozen=True):
    group_index: int
    reason: int


class DecisionsAnchored(_Event, frozen=True):
    root: Hash32
    poster: Address


class WorkerRegistered(_Event, frozen=True):
    signer: Address
    owner: Address
    models: tuple[Hash32, ...]
    endpoint: bytes
    slots: int
    memory_mb: int


class WorkerUpdated(_Event, frozen=True):
    signer: Address
    owner: Address
    models: tuple[Hash32, ...]
    endpoint: bytes
    slots: int
    memory_mb: int


class WorkerEnabled(_Event, frozen=True):
    signer: Address
    enabled: bool


class WorkerStaked(_Event, frozen=True):
    signer: Address
    staked: bool


class Staked(_Event, frozen=True):
    signer: Address
    sender: Address
    amount_wei: Wei
    staked_wei: Wei
    """Now staked."""


class UnstakeStarted(_Event, frozen=True):
    signer: Address
    amount_wei: Wei
    staked_wei: Wei
    unbonding_wei: Wei
    withdrawable_at_s: int


class StakeWithdrawn(_Event, frozen=True):
    signer: Address
    to: Address
    amount_wei: Wei


class Slashed(_Event, frozen=True):
    signer: Address
    reporter: Address
    amount_wei: Wei
    staked_wei: Wei
    """What is left."""
    unbonding_wei: Wei


class Equivocated(_Event, frozen=True):
    signer: Address
    request_id: int
    """Whatever a worker signed: any 64-bit number."""
    commitment: bytes
    digest: Hash32
    other_digest: Hash32


class CallbackDelivered(_Event, frozen=True):
    request_id: int
    consumer: Address


class CallbackFailed(_Event, frozen=True):
    request_id: int
    consumer: Address
    reason: bytes
    """The first of what the consumer returned."""


class CallbackSkipped(_Event, frozen=True):
    request_id: int
    """Whatever a caller wrote: any 256-bit number."""
    reason: int


class ProofRejected(_Event, frozen=True):
    request_id: int
    verifier: Address


class PaymentHeld(_Event, frozen=True):
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


class PaymentReleased(_Event, frozen=True):
    request_id: int


class ReleaseSkipped(_Event, frozen=True):
    request_id: int
    """Whatever a caller wrote: any 256-bit number."""
    reason: int


class DisputeOpened(_Event, frozen=True):
    request_id: int
    disputer: Address
    ruling_until_s: int


class DisputeRuled(_Event, frozen=True):
    request_id: int
    disputer: Address
    upheld: bool
    slashed_wei: Wei


class DisputeLapsed(_Event, frozen=True):
    request_id: int


class ArbiterSet(_Event, frozen=True):
    arbiter: Address


class Credited(_Event, frozen=True):
    account: Address
    sender: Address
    amount_wei: Wei


class CreditTransferred(_Event, frozen=True):
    sender: Address
    to: Address
    amount_wei: Wei


class PausedSet(_Event, frozen=True):
    paused: bool


class OwnershipOffered(_Event, frozen=True):
    owner: Address
    pending_owner: Address


class OwnershipTaken(_Event, frozen=True):
    former_owner: Address
    owner: Address


class ModelTermsSet(_Event, frozen=True):
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
