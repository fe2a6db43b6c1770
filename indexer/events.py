"""The events of the four contracts. Layouts: contracts/src/interfaces/."""

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


RequestEvent: TypeAlias = (
    InferenceRequested | FeeRaised | CancelRequested | InferenceFulfilled | RequestRefunded
)
"""What changes a request."""

SkipEvent: TypeAlias = ResultSkipped | RefundSkipped
"""Says something of a request and changes nothing."""

WorkerEvent: TypeAlias = (
    WorkerRegistered
    | WorkerUpdated
    | WorkerEnabled
    | WorkerStaked
    | Staked
    | UnstakeStarted
    | StakeWithdrawn
)
"""What changes a worker."""

PaymentEvent: TypeAlias = WorkerPaid | PosterPaid

Event: TypeAlias = (
    RequestEvent
    | SkipEvent
    | WorkerEvent
    | PaymentEvent
    | Withdrawn
    | GroupSkipped
    | DecisionsAnchored
)


def kind_of(event: Event) -> str:
    """The event's name in the interface."""
    return type(event).__name__
