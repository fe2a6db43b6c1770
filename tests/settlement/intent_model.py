"""A model of chain, pool and outbox, with one intent in it, that does whatever a test wants."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from indexer.rpc.refusals import SendError
from inferd.settlement.state import (
    ATTEMPT_STEPS,
    CLOSED,
    INTENT_STEPS,
    Act,
    Action,
    AttemptState,
    AttemptView,
    IntentState,
    Observation,
    ReceiptView,
    next_action,
)

K = 2
"""Confirmations."""
FINAL = 6
"""How many blocks the final one is below the head: no reorganisation of the model is as deep."""
FOREIGN = b"foreign"
NONCE = 5
HOPELESS_AFTER = 3


@dataclass
class Model:
    """One intent; nonces below 5 are spent. A block holds a hash of it, a foreign one or none."""

    state: IntentState = IntentState.PLANNED
    attempts: list[AttemptView] = field(default_factory=list)
    chain: list[bytes | None] = field(default_factory=lambda: [None])
    pool: set[bytes] = field(default_factory=set)
    reverts: bool = False
    funded: bool = True
    raisable: bool = True
    """The caps leave room for a dearer replacement."""
    wanted: bool = True
    has_key: bool = True
    answers: list[SendError | None] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    noops: set[bytes] = field(default_factory=set)
    refusals: dict[bytes, int] = field(default_factory=dict)
    """In how many blocks each was refused as UNKNOWN, since it was last taken."""
    refused: set[bytes] = field(default_factory=set)
    """At this head."""
    sent: set[bytes] = field(default_factory=set)
    """At this head."""
    bumps: int = 0
    """At this head."""
    visible: bool = True
    """Whether the pool can be looked into."""
    taken: set[bytes] = field(default_factory=set)
    """As the sender remembers: sent with success, and nothing spoke against it since."""
    sees_mined: bool = True
    """Whether the endpoint shows what is mined: one that lags shows neither receipt nor hash."""
    logs_tell: bool = True
    """Whether the events of what is mined name its items."""
    takes_in_silence: bool = False
    """Whether a node that answers in words of no table has taken the bytes all the same."""
    in_the_way: bool = False
    cancel_asked: bool = False
    behind: int = 0
    """How many blocks the node has not indexed yet, though its endpoint shows them."""
    closed_as: IntentState | None = None
    """The state before it was final."""

    @property
    def head(self) -> int:
        return max(len(self.chain) - 1 - self.behind, 0)

    @property
    def newest(self) -> bytes:
        return self.attempts[-1].hash

    def new_block(self) -> None:
        self.refused.clear()
        self.sent.clear()
        self.bumps = 0

    def mined(self) -> dict[bytes, ReceiptView]:
        return {
            tx: ReceiptView(number, bytes([number % 256]), not self.reverts)
            for number, tx in enumerate(self.chain)
            if tx is not None and tx != FOREIGN
        }

    def nonce_at(self, number: int) -> int:
        return NONCE + sum(tx is not None for tx in self.chain[: number + 1])

    def observation(self) -> Observation:
        mined = self.mined()
        closed_by_one = self.state in CLOSED and AttemptState.MINED in {
            attempt.state for attempt in self.attempts
        }
        shown = mined if self.sees_mined or closed_by_one else {}
        receipts = {tx: one for tx, one in shown.items() if one.block_number <= self.head}
        newest = self.attempts[-1].hash if self.attempts else b""
        return Observation(
            head_number=self.head,
            confirmations=K,
            chain_nonce=self.nonce_at(self.head),
            settled_nonce=self.nonce_at(self.head - K + 1),
            receipts=receipts,
            ahead=frozenset(shown) - frozenset(receipts),
            known=frozenset(shown) | frozenset(self.pool if self.visible else ()),
            taken=frozenset(() if self.visible else self.taken),
            proven=frozenset(
                {tx for tx in set(mined) - self.noops if mined[tx].block_number <= self.head}
                if self.logs_tell
                else ()
            ),
            pool_visible=self.visible,
            final_number=self.head - FINAL,
            final_nonce=self.nonce_at(max(self.head - FINAL, 0)),
            outbid=self.in_the_way and not self.raisable,
            cancel_asked=self.cancel_asked,
            overdue=frozenset(a.hash for a in self.attempts) - self.sent,
            refused=frozenset(self.refused),
            hopeless=self.refusals.get(newest, 0) >= HOPELESS_AFTER,
            wanted=self.wanted,
            can_sign=self.funded and self.wanted and self.has_key,
            can_bump=self.funded and self.raisable and self.has_key and len(self.attempts) < 9,
            can_pay=self.funded,
            can_cancel=self.funded and self.has_key and newest not in self.noops,
            has_key=self.has_key,
        )

    def step(self) -> None:
        gap = self.attempts and self.nonce_at(self.head) <= NONCE and self.has_key
        if self.state in CLOSED and gap:
            self.perform(Action(Act.REOPEN))
        for _ in range(9):
            action = next_action(self.state, self.attempts, self.observation())
            self.check(action)
            if not self.perform(action):
                return
        raise AssertionError(f"no end to one step: {self.acts[-9:]}")

    def check(self, action: Action) -> None:
        seen = self.observation()
        ours = seen.receipts
        if action.act is Act.SIGN:
            assert not self.attempts
        if action.act is Act.FINALISE:
            assert self.state in CLOSED
            spent = [number for number, tx in enumerate(self.chain) if tx is not None]
            if self.attempts:
                assert spent
                assert max(spent) <= self.head - FINAL
            self.closed_as = self.state
        if action.act is Act.REOPEN:
            assert self.state in CLOSED
        if action.act is Act.MARK_UNKNOWN:
            assert not ours
            assert seen.chain_nonce > NONCE
        if action.act is Act.MARK_DROPPED:
            assert not self.pool & {action.hash}
        if action.act in (Act.CONFIRM, Act.FAIL):
            receipt = ours[action.hash or b""]
            assert seen.head_number - receipt.block_number + 1 >= K
            assert receipt.succeeded is (action.act is Act.CONFIRM)
            assert self.state is IntentState.MINED
        if action.act is Act.REPLAN and self.attempts:
            assert not ours
            assert not any(a.hash in seen.known for a in self.attempts)
            spent = self.chain[: self.head - K + 2]
            assert self.state is IntentState.UNKNOWN
            assert FOREIGN in spent or not (self.sees_mined or self.logs_tell)
        if action.act is Act.MARK_UNMINED:
            assert not ours
        if action.act in (Act.BUMP, Act.SEND, Act.REBROADCAST, Act.CANCEL, Act.ABANDON):
            assert not ours, "nothing is sent for what is mined"
            assert not seen.ahead, "nor for what is mined above the head"
        if action.act in (Act.SEND, Act.REBROADCAST):
            assert action.hash not in self.refused, "once per block is enough"
        if action.act is Act.BUMP:
            assert self.bumps == 0, "one raise per block"
        if action.act is Act.CANCEL:
            assert self.attempts[-1].hash not in self.noops
            if not (self.cancel_asked or seen.outbid):
                assert self.attempts[-1].hash not in seen.known
                assert seen.hopeless or not self.wanted
        if action.act is Act.ABANDON:
            assert not self.has_key

    def perform(self, action: Action) -> bool:
        self.acts.append(action.act)
        match action.act:
            case Act.SIGN | Act.BUMP | Act.CANCEL:
                name = b"tx%d" % len(self.attempts)
                if action.act is Act.CANCEL or (self.attempts and self.newest in self.noops):
                    self.noops.add(name)
                self.bumps += action.act is Act.BUMP
                self.attempts.append(AttemptView(name, NONCE, AttemptState.SIGNED))
                if action.act is Act.SIGN:
                    self._go(IntentState.SIGNED)
            case Act.SEND | Act.REBROADCAST:
                self._send(action.hash or b"")
            case Act.MARK_MINED:
                self._mark(action.hash, AttemptState.MINED, AttemptState.REPLACED)
                self._go(IntentState.MINED)
            case Act.MARK_SENT:
                self._taken(action.hash or b"")
            case Act.MARK_UNKNOWN:
                self._go(IntentState.UNKNOWN)
            case Act.MARK_DROPPED:
                self._set(action.hash or b"", AttemptState.DROPPED)
            case Act.MARK_UNMINED | Act.REOPEN:
                for attempt in self.attempts:
                    if attempt.state in (AttemptState.MINED, AttemptState.DROPPED):
                        self._set(attempt.hash, AttemptState.BROADCAST)
                self._go(IntentState.BROADCAST)
                self.taken.clear()
            case Act.CONFIRM:
                mined_noop = action.hash in self.noops
                self._go(IntentState.CANCELLED if mined_noop else IntentState.CONFIRMED)
            case Act.FAIL:
                self._go(IntentState.FAILED)
            case Act.REPLAN | Act.ABANDON:
                for attempt in self.attempts:
                    self._set(attempt.hash, AttemptState.DROPPED)
                self._go(IntentState.CANCELLED)
            case Act.FINALISE:
                self._go(IntentState.FINAL)
            case _:
                return False
        return True

    def _go(self, after: IntentState) -> None:
        assert (self.state, after) in INTENT_STEPS
        self.state = after

    def _set(self, tx: bytes, after: AttemptState, refusal: SendError | None = None) -> None:
        (before,) = (a.state for a in self.attempts if a.hash == tx)
        assert before == after or (before, after) in ATTEMPT_STEPS
        self.attempts = [
            replace(a, state=after, refusal=refusal) if a.hash == tx else a for a in self.attempts
        ]

    def _send(self, tx: bytes) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if self.nonce_at(len(self.chain) - 1) > NONCE:
            answer = SendError.NONCE_TOO_LOW
        self.taken.discard(tx)
        if answer is not None:
            self.refused.add(tx)
            self.refusals[tx] = self.refusals.get(tx, 0) + (answer is SendError.UNKNOWN)
            (state,) = (a.state for a in self.attempts if a.hash == tx)
            if answer is SendError.UNKNOWN:
                if self.takes_in_silence:
                    self.pool = {tx}
                if state in (AttemptState.SIGNED, AttemptState.DROPPED):
                    state = AttemptState.UNKNOWN
                if self.state is IntentState.SIGNED:
                    self._go(IntentState.UNKNOWN)
            self._set(tx, state, answer)
            return
        self.pool = {tx}
        self._taken(tx)

    def _taken(self, tx: bytes) -> None:
        self.sent.add(tx)
        self.taken.add(tx)
        self.refusals.pop(tx, None)
        self._mark(tx, AttemptState.BROADCAST, AttemptState.REPLACED)
        if self.state in (IntentState.SIGNED, IntentState.UNKNOWN):
            self._go(IntentState.BROADCAST)

    def _mark(self, tx: bytes | None, this: AttemptState, others: AttemptState) -> None:
        for attempt in self.attempts:
            self._set(attempt.hash, this if attempt.hash == tx else others)

    def mine(self, what: str) -> None:
        spent = any(tx is not None for tx in self.chain)
        tx: bytes | None = None
        if what == "pool" and self.pool and not spent:
            tx = sorted(self.pool)[0]
        elif what == "any" and self.attempts and not spent:
            # A node elsewhere may still have any bytes that ever left.
            tx = self.attempts[0].hash
        elif what == "foreign" and not spent:
            tx = FOREIGN
        self.chain.append(tx)
        self.new_block()
        if tx is not None:
            self.pool.clear()

    def reorg(self, depth: int) -> None:
        keep = max(1, len(self.chain) - depth)
        self.chain = [*self.chain[:keep], *[None] * (len(self.chain) - keep + 1)]
        self.new_block()
