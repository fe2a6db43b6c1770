"""What to do next about one intent. Pure: the engine observes, this decides, the outbox records.

    planned --sign--> signed --send--> broadcast --mark_mined--> mined --confirm--> confirmed
       |                 ^                |   ^                    | |
       |                 +-----bump-------+   +---mark_unmined-----+ +--fail--> failed
       +--replan--> cancelled <--replan-- (signed, broadcast: a foreign transaction took the nonce)

An intent has one nonce for ever. Where that nonce is lost to a transaction that is not ours, the
intent is cancelled and its items become ready again, for a new intent with a new nonce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from inferd.settlement.errors import SendError


class IntentState(StrEnum):
    PLANNED = "planned"
    SIGNED = "signed"
    BROADCAST = "broadcast"
    MINED = "mined"
    CONFIRMED = "confirmed"
    FAILED = "failed"
    CANCELLED = "cancelled"


LIVE = frozenset(
    {IntentState.PLANNED, IntentState.SIGNED, IntentState.BROADCAST, IntentState.MINED}
)


class AttemptState(StrEnum):
    SIGNED = "signed"
    BROADCAST = "broadcast"
    MINED = "mined"
    REPLACED = "replaced"
    """Another attempt of the same nonce was sent after it, or mined. It may still be mined."""
    DROPPED = "dropped"
    """A foreign transaction took its nonce."""


class Act(StrEnum):
    SIGN = "sign"
    SEND = "send"
    REBROADCAST = "rebroadcast"
    BUMP = "bump"
    MARK_MINED = "mark_mined"
    MARK_UNMINED = "mark_unmined"
    CONFIRM = "confirm"
    FAIL = "fail"
    REPLAN = "replan"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Action:
    """`hash` names the attempt that SEND, REBROADCAST, MARK_MINED, CONFIRM and FAIL are about."""

    act: Act
    hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One signed transaction of the intent; later ones offer more."""

    hash: bytes
    nonce: int
    state: AttemptState
    refusal: SendError | None = None
    """What the endpoint answered last, where that was not a success."""


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """A receipt in a canonical block at or below the head."""

    block_number: int
    block_hash: bytes
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Observation:
    """What the chain shows of one intent, all of it at one head."""

    head_number: int
    confirmations: int
    """Blocks, the one with the transaction included, after which it counts as done."""
    chain_nonce: int
    """The sender's nonce at the head."""
    settled_nonce: int
    """The sender's nonce `confirmations` blocks deep: what is below is spent for good."""
    receipts: Mapping[bytes, ReceiptView] = field(default_factory=dict)
    known: frozenset[bytes] = frozenset()
    """Hashes the endpoint still knows, mined or pooled."""
    overdue: frozenset[bytes] = frozenset()
    """Hashes sent so long ago that a block ought to have them."""
    priced_out: bool = False
    """The newest attempt offers less than the next block asks."""
    can_sign: bool = True
    """The items still want it, fees are under the cap, the balance pays for it."""
    can_bump: bool = True
    """A replacement is under the caps, and the balance pays for it."""
    can_pay: bool = True
    """The balance pays for the newest attempt."""


def next_action(state: IntentState, attempts: Sequence[AttemptView], seen: Observation) -> Action:
    """Total and deterministic. `attempts` are in the order they were signed."""
    if state not in LIVE:
        return Action(Act.WAIT)
    for attempt in attempts:
        receipt = seen.receipts.get(attempt.hash)
        if receipt is not None:
            return _mined(state, attempt, receipt, seen)
    if state is IntentState.MINED:
        return Action(Act.MARK_UNMINED)
    if not attempts:
        return Action(Act.SIGN if seen.can_sign else Act.REPLAN)
    return _unmined(attempts, seen)


def _mined(
    state: IntentState, attempt: AttemptView, receipt: ReceiptView, seen: Observation
) -> Action:
    if state is not IntentState.MINED or attempt.state is not AttemptState.MINED:
        return Action(Act.MARK_MINED, attempt.hash)
    depth = seen.head_number - receipt.block_number + 1
    if depth < seen.confirmations:
        return Action(Act.WAIT)
    return Action(Act.CONFIRM if receipt.succeeded else Act.FAIL, attempt.hash)


def _unmined(attempts: Sequence[AttemptView], seen: Observation) -> Action:
    newest = attempts[-1]
    if seen.settled_nonce > newest.nonce:
        # Spent, deep enough, and no hash of ours has a receipt. A hash the endpoint still knows
        # may be ours with a receipt that lags: only its absence proves a foreign transaction.
        known = any(attempt.hash in seen.known for attempt in attempts)
        return Action(Act.WAIT if known else Act.REPLAN)
    if seen.chain_nonce > newest.nonce:
        return Action(Act.WAIT)
    cheap = newest.refusal in {SendError.UNDERPRICED, SendError.REPLACEMENT_UNDERPRICED}
    if cheap and seen.can_bump:
        return Action(Act.BUMP)
    if newest.state is AttemptState.SIGNED:
        if seen.can_pay and not cheap:
            return Action(Act.SEND, newest.hash)
        return _resend_older(attempts, seen)
    if newest.hash not in seen.known:
        return Action(Act.REBROADCAST, newest.hash)
    if newest.hash not in seen.overdue:
        return Action(Act.WAIT)
    # A later nonce cannot be mined before ours: only the next one, or one that is priced out
    # already, gains by a higher price.
    if (seen.priced_out or newest.nonce == seen.chain_nonce) and seen.can_bump:
        return Action(Act.BUMP)
    return Action(Act.REBROADCAST, newest.hash)


def _resend_older(attempts: Sequence[AttemptView], seen: Observation) -> Action:
    """The newest bytes are of no use now: the pool shall at least keep those it took before."""
    for attempt in reversed(attempts[:-1]):
        if attempt.state is AttemptState.BROADCAST:
            if attempt.hash in seen.known:
                return Action(Act.WAIT)
            return Action(Act.REBROADCAST, attempt.hash)
    return Action(Act.WAIT)
