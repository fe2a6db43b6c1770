"""What to do next about one intent. Pure: the engine observes, this decides, the outbox records.

    planned --sign--> signed --send--> broadcast --mark_mined--> mined --confirm--> confirmed
       |                 ^                |   ^                    | |
       |                 +--bump, cancel--+   +---mark_unmined-----+ +--fail--> failed
       +--replan--> cancelled <--replan, abandon-- (signed, broadcast)

An intent has one nonce for ever. Where that nonce is lost to a transaction that is not ours
(replan), or nothing can be signed for it any more (abandon), the intent is cancelled and its items
become ready again, for a new intent with a new nonce. Where no endpoint takes its bytes, a
transaction without effect is signed for the same nonce (cancel): the intent stays live, and what
becomes of its items is known when either of them is mined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from indexer.rpc.refusals import SendError

TOO_CHEAP = frozenset({SendError.UNDERPRICED, SendError.REPLACEMENT_UNDERPRICED})


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
    CANCEL = "cancel"
    ABANDON = "abandon"
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
    taken: frozenset[bytes] = frozenset()
    """Hashes that an endpoint took whose pool cannot be seen: on their way, for all one knows. That
    they are overdue is all that can be said against it."""
    overdue: frozenset[bytes] = frozenset()
    """Hashes sent so long ago that a block ought to have them."""
    refused: frozenset[bytes] = frozenset()
    """Hashes that the endpoint refused at this very head: tried again in the next block."""
    hopeless: bool = False
    """The endpoint refused the newest attempt in so many blocks that it will never take it."""
    wanted: bool = True
    """Some item still waits for it."""
    priced_out: bool = False
    """The newest attempt offers less than the next block asks."""
    can_sign: bool = True
    """The items still want it, fees are under the cap, the balance pays for it."""
    can_bump: bool = True
    """A replacement is under the caps, and the balance pays for it."""
    can_pay: bool = True
    """The balance pays for the newest attempt."""
    can_cancel: bool = False
    """A transaction without effect can be signed and paid for, and the newest is none yet."""
    reachable: bool = True
    """Every lower nonce is spent, or a live intent has it."""
    has_key: bool = True
    """False for a key that is no longer here: its stored bytes are all there will ever be."""


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
    return _unmined(state, attempts, seen)


def _mined(
    state: IntentState, attempt: AttemptView, receipt: ReceiptView, seen: Observation
) -> Action:
    if state is not IntentState.MINED or attempt.state is not AttemptState.MINED:
        return Action(Act.MARK_MINED, attempt.hash)
    depth = seen.head_number - receipt.block_number + 1
    if depth < seen.confirmations:
        return Action(Act.WAIT)
    return Action(Act.CONFIRM if receipt.succeeded else Act.FAIL, attempt.hash)


def _unmined(state: IntentState, attempts: Sequence[AttemptView], seen: Observation) -> Action:
    newest = attempts[-1]
    any_known = any(attempt.hash in seen.known for attempt in attempts)
    if seen.settled_nonce > newest.nonce:
        # Spent, deep enough, and no hash of ours has a receipt. A hash the endpoint still knows
        # may be ours with a receipt that lags: only its absence proves a foreign transaction.
        return Action(Act.WAIT if any_known else Act.REPLAN)
    if seen.chain_nonce > newest.nonce:
        return Action(Act.WAIT)
    pooled = newest.hash in seen.known or newest.hash in seen.taken
    if not seen.has_key and _is_lost(newest, pooled, seen):
        return Action(Act.ABANDON)
    never_taken = state is IntentState.SIGNED and not any_known
    in_vain = (never_taken and not seen.wanted) or (seen.hopeless and not pooled)
    if in_vain and seen.can_cancel:
        return Action(Act.CANCEL)
    if seen.hopeless and not pooled and seen.can_bump:
        return Action(Act.BUMP)  # It has no effect already; other bytes may still be taken.
    if newest.refusal in TOO_CHEAP and seen.can_bump and newest.hash not in seen.refused:
        return Action(Act.BUMP)
    if newest.state is AttemptState.SIGNED or not pooled:
        return _send(attempts, seen)
    if newest.hash not in seen.overdue or newest.hash in seen.refused:
        return Action(Act.WAIT)
    # A later nonce cannot be mined before ours: only the next one, or one that is priced out
    # already, gains by a higher price.
    if (seen.priced_out or newest.nonce == seen.chain_nonce) and seen.can_bump:
        return Action(Act.BUMP)
    return Action(Act.REBROADCAST, newest.hash)


def _is_lost(newest: AttemptView, pooled: bool, seen: Observation) -> bool:
    """Whether bytes that nothing can replace will not be mined in time, as far as one can tell.

    Being wrong is harmless: should they be mined after all, the chain skips what is settled.
    """
    if not seen.wanted or not seen.reachable:
        return True
    if pooled:
        return seen.priced_out and newest.hash in seen.overdue
    # "Nonce too low" may be these very bytes, mined above the head.
    refused = newest.hash in seen.refused and newest.refusal is not SendError.NONCE_TOO_LOW
    return refused or not seen.can_pay


def _send(attempts: Sequence[AttemptView], seen: Observation) -> Action:
    """The newest bytes, once per block until they are taken, and older ones kept alive."""
    newest = attempts[-1]
    signed = newest.state is AttemptState.SIGNED
    if newest.hash not in seen.refused and (seen.can_pay or not signed):
        return Action(Act.SEND if signed else Act.REBROADCAST, newest.hash)
    for attempt in reversed(attempts[:-1]):
        if attempt.state is AttemptState.BROADCAST:
            on_its_way = attempt.hash in seen.taken and attempt.hash not in seen.overdue
            if attempt.hash in seen.known or attempt.hash in seen.refused or on_its_way:
                return Action(Act.WAIT)
            return Action(Act.REBROADCAST, attempt.hash)
    return Action(Act.WAIT)
