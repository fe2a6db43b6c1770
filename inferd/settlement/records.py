"""The rows of the outbox as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eth_utils.crypto import keccak

from indexer.rpc.refusals import SendError, classify
from indexer.types import Address, Hash32
from inferd.protocol.request import Commitment
from inferd.settlement.earning import Earning
from inferd.settlement.fees import Fees
from inferd.settlement.state import AttemptState, AttemptView, IntentState


@dataclass(frozen=True, slots=True)
class Item:
    """A request that an intent is about; `worker` is None unless its result is posted: then it is
    whose, and of a quorum the one of the lowest address."""

    request_id: int
    commitment: Commitment
    worker: Address | None
    others: tuple[Address, ...] = ()
    """Who else of a quorum signed it, by rising address."""

    @property
    def trace_id(self) -> str:
        return self.commitment.hex()[:16]


@dataclass(frozen=True, slots=True)
class Payload:
    """What a transaction does, whatever it pays for that."""

    target: Address
    calldata: bytes
    gas_limit: int
    value_wei: int = 0
    """Sent along."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An intent that is not stored yet."""

    kind: str
    """'post', 'refund', 'deliver', 'release', 'close' or 'dispute'"""
    target: Address
    calldata: bytes
    gas_limit: int
    items: tuple[Item, ...]
    reason: str
    inputs: Mapping[str, int | float | str]
    decisions_root: Hash32 | None = None
    decisions: tuple[tuple[int, bytes], ...] = ()
    """What it anchors: rows of node.decision and their leaves."""
    value_wei: int = 0
    """Sent along: a dispute's bond."""

    @property
    def key(self) -> bytes:
        """The same for the same effect, whatever transaction has it."""
        return keccak(self.kind.encode() + b"\x00" + self.target + self.calldata)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One signed transaction."""

    hash: Hash32
    nonce: int
    fees: Fees
    gas_limit: int
    raw: bytes
    state: AttemptState
    error: str | None = None
    data_fee_wei: int = 0
    """Beside its gas: by the receipt where it is mined, and what is kept for it before."""
    value_wei: int = 0
    """Sent along."""

    @property
    def max_gas_wei(self) -> int:
        """The most that gas and bytes cost."""
        return self.fees.max_fee_wei * self.gas_limit + self.data_fee_wei

    @property
    def max_cost_wei(self) -> int:
        """The most that leaves the account, with what is sent along."""
        return self.max_gas_wei + self.value_wei

    @property
    def refusal(self) -> SendError | None:
        return classify(self.error) if self.error is not None else None

    def view(self) -> AttemptView:
        return AttemptView(self.hash, self.nonce, self.state, self.refusal)


@dataclass(frozen=True, slots=True)
class Intent:
    """What has to happen on chain, with all transactions that were signed for it, oldest first."""

    id: int
    kind: str
    state: IntentState
    target: Address
    calldata: bytes
    gas_limit: int
    items: tuple[Item, ...]
    attempts: tuple[Attempt, ...]
    earning: Earning | None = None
    """None of what earns nothing."""
    cancel_asked: bool = False
    """By the operator: its nonce shall be spent on nothing."""
    value_wei: int = 0
    """What its transactions send along, but for one without effect."""

    @property
    def nonce(self) -> int | None:
        """The one nonce it has; None while nothing was signed."""
        return self.attempts[0].nonce if self.attempts else None

    def attempt(self, tx_hash: bytes) -> Attempt:
        """The transaction of that hash, which it has."""
        return next(attempt for attempt in self.attempts if attempt.hash == tx_hash)

    def all_items(self, outcome: str) -> dict[tuple[int, Commitment], str]:
        """The same outcome for each item."""
        return {(item.request_id, item.commitment): outcome for item in self.items}

    @property
    def payload(self) -> Payload:
        return Payload(self.target, self.calldata, self.gas_limit, self.value_wei)

    def has_effect(self, attempt: Attempt) -> bool:
        """False for the transaction without effect that shall only take the nonce.

        The encoding of a transaction has its calldata in one piece, and ours is never short.
        """
        return self.calldata in attempt.raw

    @property
    def reserved_wei(self) -> int:
        """The most it can still cost: nothing once mined, since the balance shows it then."""
        if self.state is IntentState.MINED:
            return 0
        return max((attempt.max_cost_wei for attempt in self.attempts), default=0)

    @property
    def reserved_gas_wei(self) -> int:
        """The same of gas and bytes alone, which is what budgets are of."""
        if self.state is IntentState.MINED:
            return 0
        return max((attempt.max_gas_wei for attempt in self.attempts), default=0)

    @property
    def trace_ids(self) -> list[str]:
        return [item.trace_id for item in self.items]
