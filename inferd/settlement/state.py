"""What to do next about one intent. Pure: the engine observes, this decides, the outbox records.

    planned --sign--> signed --send--> broadcast --mark_mined--> mined --confirm--> confirmed
       |                 |                | ^                     |                     |
       |                 |    (answer lost, or nonce spent)       +--fail--> failed     |
       |                 |                v |                                  |        |
       |                 +----------> unknown                                  |        |
       +--replan--> cancelled <--replan--+                                     |        |
                        +---------------------finalise------------------------+--------+--> final

An intent has one nonce for ever. Where that nonce is lost to a transaction that is not ours
(replan), or nothing can be signed for it any more (abandon), the intent is cancelled and its items
become ready again, for a new intent with a new nonce. Where no endpoint takes its bytes, where they
are in the way of others at a price that their work is not worth, or where the operator says so, a
transaction without effect is signed for the same nonce (cancel): the intent stays live, and what
becomes of its items is known when either of them is mined.

Unknown is what was sent and not answered, or answered in words of no table; and what has lost its
nonce to a transaction that no endpoint shows. Neither is guessed: a pool, a receipt or an indexed
event tells, or the nonce is spent so deep that it was somebody else's.

What is closed is watched until the block that closed it is final: a reorganisation opens it again.
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
    UNKNOWN = "unknown"
    """Sent, and nobody said that it was taken; or its nonce is spent, by what nobody shows."""
    BROADCAST = "broadcast"
    MINED = "mined"
    CONFIRMED = "confirmed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    FINAL = "final"
    """Closed, by a block that no reorganisation takes away; `outcome` says how."""


LIVE = frozenset(
    {
        IntentState.PLANNED,
        IntentState.SIGNED,
        IntentState.UNKNOWN,
        IntentState.BROADCAST,
        IntentState.MINED,
    }
)
CLOSED = frozenset({IntentState.CONFIRMED, IntentState.FAILED, IntentState.CANCELLED})
"""Over, unless a reorganisation takes the block that closed it."""
LIVE_SQL = "state IN ('planned', 'signed', 'unknown', 'broadcast', 'mined')"
CLOSED_SQL = "state IN ('confirmed', 'failed', 'cancelled')"


class AttemptState(StrEnum):
    SIGNED = "signed"
    UNKNOWN = "unknown"
    """Sent, and the answer was lost or is in no table. It may be in a pool."""
    BROADCAST = "broadcast"
    MINED = "mined"
    REPLACED = "replaced"
    """Another attempt of the same nonce was sent after it, or mined. It may still be mined."""
    DROPPED = "dropped"
    """The pool that had it lost it, or its nonce went to another transaction. It may come back."""


def _steps(*steps: str) -> frozenset[tuple[str, str]]:
    return frozenset(
        (before, after)
        for before, _, afters in (step.partition(" > ") for step in steps)
        for after in afters.split()
    )


INTENT_STEPS = _steps(
    "planned > signed cancelled",
    "signed > unknown broadcast mined cancelled",
    "unknown > broadcast mined cancelled",
    "broadcast > unknown mined cancelled",
    "mined > broadcast confirmed failed cancelled",
    "confirmed > broadcast final",
    "failed > broadcast final",
    "cancelled > broadcast final",
)
"""Which state of an intent may follow which; the database refuses all others."""
ATTEMPT_STEPS = _steps(
    "signed > unknown broadcast mined replaced dropped",
    "unknown > broadcast mined replaced dropped",
    "broadcast > mined replaced dropped",
    "replaced > broadcast mined dropped",
    "dropped > unknown broadcast mined replaced",
    "mined > broadcast replaced",
)
"""The same of an attempt."""


class Act(StrEnum):
    SIGN = "sign"
    SEND = "send"
    REBROADCAST = "rebroadcast"
    MARK_SENT = "mark_sent"
    """A pool has what was not known to be taken."""
    MARK_UNKNOWN = "mark_unknown"
    """The nonce is spent, and nobody shows by what."""
    MARK_DROPPED = "mark_dropped"
    """The pool that had it has it no more."""
    BUMP = "bump"
    CANCEL = "cancel"
    ABANDON = "abandon"
    MARK_MINED = "mark_mined"
    MARK_UNMINED = "mark_unmined"
    CONFIRM = "confirm"
    FAIL = "fail"
    REPLAN = "replan"
    REOPEN = "reopen"
    """The block that closed it is gone, or one with a transaction of it has come."""
    FINALISE = "finalise"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Action:
    """`hash` names the attempt that SEND, REBROADCAST, MARK_SENT, MARK_DROPPED, MARK_MINED, CONFIRM
    and FAIL are about."""

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
    ahead: frozenset[bytes] = frozenset()
    """Hashes with a receipt in a block above the head: mined, unless a reorganisation comes."""
    proven: frozenset[bytes] = frozenset()
    """Hashes that indexed events name: they are in canonical blocks, whatever an endpoint shows."""
    pool_visible: bool = True
    """What the endpoint does not know is in no pool that it was sent to."""
    final_number: int = -1
    """The newest block that no reorganisation takes away; only of use to what is closed."""
    final_nonce: int = 0
    """The sender's nonce there."""
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
    outbid: bool = False
    """It is in the way of others, and what gets it mined costs more than its work is worth."""
    cancel_asked: bool = False
    """The operator wants its nonce spent on nothing."""
    reachable: bool = True
    """Every lower nonce is spent, or a live intent has it."""
    has_key: bool = True
    """False for a key that is no longer here: its stored bytes are all there will ever be."""


_UNTAKEN = frozenset({IntentState.SIGNED, IntentState.UNKNOWN})
_NOT_IN_A_POOL = frozenset({AttemptState.SIGNED, AttemptState.UNKNOWN, AttemptState.DROPPED})
_NEVER_TAKEN = frozenset({AttemptState.SIGNED, AttemptState.UNKNOWN})


def next_action(state: IntentState, attempts: Sequence[AttemptView], seen: Observation) -> Action:
    """Total and deterministic. `attempts` are in the order they were signed."""
    if state is IntentState.FINAL:
        return Action(Act.WAIT)
    if state in CLOSED:
        return _closed(attempts, seen)
    for attempt in attempts:
        receipt = seen.receipts.get(attempt.hash)
        if receipt is not None:
            return _mined(state, attempt, receipt, seen)
    if state is IntentState.MINED:
        return Action(Act.MARK_UNMINED)
    if not attempts:
        can_sign = seen.can_sign and not seen.cancel_asked
        return Action(Act.SIGN if can_sign else Act.REPLAN)
    if seen.chain_nonce > attempts[-1].nonce:
        return _spent(state, attempts, seen)
    return _unmined(state, attempts, seen)


def _closed(attempts: Sequence[AttemptView], seen: Observation) -> Action:
    """A receipt may be the stored one, where its block is still canonical."""
    if not attempts:
        return Action(Act.FINALISE)
    for attempt in attempts:
        receipt = seen.receipts.get(attempt.hash)
        if receipt is not None:
            if attempt.state is not AttemptState.MINED:
                return Action(Act.REOPEN)
            final = receipt.block_number <= seen.final_number
            return Action(Act.FINALISE if final else Act.WAIT)
    if any(attempt.state is AttemptState.MINED for attempt in attempts):
        return Action(Act.REOPEN)
    # Where the foreign transaction leaves the chain, the nonce is a gap, and is filled as one.
    return Action(Act.FINALISE if seen.final_nonce > attempts[-1].nonce else Act.WAIT)


def _mined(
    state: IntentState, attempt: AttemptView, receipt: ReceiptView, seen: Observation
) -> Action:
    if state is not IntentState.MINED or attempt.state is not AttemptState.MINED:
        return Action(Act.MARK_MINED, attempt.hash)
    depth = seen.head_number - receipt.block_number + 1
    if depth < seen.confirmations:
        return Action(Act.WAIT)
    return Action(Act.CONFIRM if receipt.succeeded else Act.FAIL, attempt.hash)


def _spent(state: IntentState, attempts: Sequence[AttemptView], seen: Observation) -> Action:
    """The nonce is spent, and no hash of ours has a receipt.

    A hash that the endpoint still knows may be ours with a receipt that lags, and one that an event
    names is ours for sure: only the absence of both, deep enough, proves a foreign transaction.
    """
    if {attempt.hash for attempt in attempts} & (seen.known | seen.proven):
        return Action(Act.WAIT)
    if state is not IntentState.UNKNOWN:
        return Action(Act.MARK_UNKNOWN)
    return Action(Act.REPLAN if seen.settled_nonce > attempts[-1].nonce else Act.WAIT)


def _unmined(state: IntentState, attempts: Sequence[AttemptView], seen: Observation) -> Action:
    newest = attempts[-1]
    any_known = any(attempt.hash in seen.known for attempt in attempts)
    pooled = newest.hash in seen.known or newest.hash in seen.taken
    untaken = state in _UNTAKEN
    if pooled and (untaken or newest.state in _NOT_IN_A_POOL):
        return Action(Act.MARK_SENT, newest.hash)
    if any(attempt.hash in seen.ahead for attempt in attempts):
        return Action(Act.WAIT)  # What is signed or sent for its nonce now comes too late.
    if not seen.has_key and _is_lost(newest, pooled, seen):
        return Action(Act.ABANDON)
    never_taken = untaken and not any_known
    in_vain = (never_taken and not seen.wanted) or (seen.hopeless and not pooled)
    if (in_vain or seen.cancel_asked) and seen.can_cancel:
        return Action(Act.CANCEL)
    if seen.hopeless and not pooled and seen.can_bump:
        return Action(Act.BUMP)  # It has no effect already; other bytes may still be taken.
    lost = newest.state is AttemptState.BROADCAST and not pooled and seen.pool_visible
    if lost and newest.refusal is not SendError.NONCE_TOO_LOW:
        return Action(Act.MARK_DROPPED, newest.hash)
    due = newest.hash in seen.overdue or newest.refusal in TOO_CHEAP
    if seen.outbid and due and seen.can_cancel and newest.hash not in seen.refused:
        return Action(Act.CANCEL)
    if newest.refusal in TOO_CHEAP and seen.can_bump and newest.hash not in seen.refused:
        return Action(Act.BUMP)
    if newest.state in _NOT_IN_A_POOL or not pooled:
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
    never_taken = newest.state in _NEVER_TAKEN
    if newest.hash not in seen.refused and (seen.can_pay or not never_taken):
        return Action(Act.SEND if never_taken else Act.REBROADCAST, newest.hash)
    for attempt in reversed(attempts[:-1]):
        if attempt.state is AttemptState.BROADCAST:
            on_its_way = attempt.hash in seen.taken and attempt.hash not in seen.overdue
            if attempt.hash in seen.known or attempt.hash in seen.refused or on_its_way:
                return Action(Act.WAIT)
            return Action(Act.REBROADCAST, attempt.hash)
    return Action(Act.WAIT)
