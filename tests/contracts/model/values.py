"""What the model remembers; amounts are wei unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from tests.contracts.abi import NOBODY, Address


class Delivery(IntEnum):
    EVENT = 0
    STORED = 1
    CALLBACK = 2


class RequestStatus(IntEnum):
    UNKNOWN = 0
    PENDING = 1
    EXPIRED = 2
    SETTLED = 3


class Skip(IntEnum):
    UNKNOWN_ID = 0
    COMMITMENT_MISMATCH = 1
    ALREADY_SETTLED = 2
    EXPIRED = 3
    NOT_EXPIRED = 4
    QUORUM_MISMATCH = 5
    TERMS_APPLY = 6


class GroupSkip(IntEnum):
    BAD_LENGTH = 0
    BAD_SIGNATURE = 1
    BAD_SIGNER_COUNT = 2
    INACTIVE_WORKER = 3
    SIGNERS_NOT_ASCENDING = 4
    BAD_PROOF_COUNT = 5


class CallbackSkip(IntEnum):
    NOT_OWED = 0
    NOT_CALLBACK = 1


class HoldStatus(IntEnum):
    NONE = 0
    HELD = 1
    DISPUTED = 2
    CLOSED = 3


class HoldSkip(IntEnum):
    NOT_HELD = 0
    STILL_DISPUTABLE = 1


class Terms(NamedTuple):
    """`ModelTerms`, in its order."""

    model_id: bytes
    verifier: Address
    dispute_window: int
    bond_gwei: int
    min_quorum: int


NO_TERMS = Terms(bytes(32), NOBODY, 0, 0, 0)


class Params(NamedTuple):
    """`RequestParams`, in its order."""

    model_id: bytes
    max_tokens: int
    deadline: int
    memory_mb: int
    callback_gas_limit: int
    quorum: int
    batchable: bool
    delivery: int
    input_kind: int
    input: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A request from its submission on."""

    id: int
    requester: Address
    params: Params
    params_hash: bytes
    commitment: bytes
    fee: int
    deadline: int
    terms: Terms
    digest: bytes | None = None
    refunded: bool = False
    called: bool = False

    @property
    def settled(self) -> bool:
        return self.refunded or self.digest is not None

    @property
    def under_terms(self) -> bool:
        return self.terms != NO_TERMS


class Item(NamedTuple):
    """What a worker signs of one result."""

    id: int
    commitment: bytes
    digest: bytes

    def packed(self) -> bytes:
        return self.id.to_bytes(8, "big") + self.commitment + self.digest


class Hold(NamedTuple):
    """`Hold`, in its order."""

    id: int
    commitment: bytes
    digest: bytes
    workers: tuple[Address, ...]
    owners: tuple[Address, ...]
    payment: int
    poster: Address
    poster_cut: int
    bond: int
    disputable_until: int


@dataclass(frozen=True, slots=True)
class Case:
    """A held payment and what became of it."""

    hold: Hold
    status: HoldStatus
    disputer: Address = NOBODY
    ruling_until: int = 0


@dataclass(frozen=True, slots=True)
class Worker:
    owner: Address
    models: tuple[bytes, ...]
    endpoint: str
    slots: int
    memory_mb: int
    enabled: bool = True
    staked: bool = False


@dataclass(frozen=True, slots=True)
class Stake:
    staked: int = 0
    unbonding: int = 0
    withdrawable_at: int = 0
    barred: bool = False


class Behaviour(IntEnum):
    """How a consumer takes being called or paid."""

    ACCEPT = 0
    REFUSE_AT_LENGTH = 1
    REFUSE_SHORTLY = 2
    BURN = 3
    REENTER = 4


@dataclass(frozen=True, slots=True)
class Reaction:
    """A behaviour, and for REENTER what is called."""

    mode: Behaviour = Behaviour.ACCEPT
    role: str = "requests"
    function: str = "withdraw"
    arguments: tuple[Any, ...] = ()
