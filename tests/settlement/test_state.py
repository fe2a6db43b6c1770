"""`next_action` against a model of chain, pool and outbox that does whatever hypothesis wants."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from inferd.settlement.errors import SendError
from inferd.settlement.state import (
    LIVE,
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
FOREIGN = b"foreign"
NONCE = 5


@dataclass
class Model:
    """One intent; nonces below 5 are spent. A block holds a hash of it, a foreign one or none."""

    state: IntentState = IntentState.PLANNED
    attempts: list[AttemptView] = field(default_factory=list)
    chain: list[bytes | None] = field(default_factory=lambda: [None])
    pool: set[bytes] = field(default_factory=set)
    reverts: bool = False
    funded: bool = True
    answers: list[SendError | None] = field(default_factory=list)
    calm_since: int = 0
    acts: list[Act] = field(default_factory=list)

    @property
    def head(self) -> int:
        return len(self.chain) - 1

    def mined(self) -> dict[bytes, ReceiptView]:
        return {
            tx: ReceiptView(number, bytes([number % 256]), not self.reverts)
            for number, tx in enumerate(self.chain)
            if tx is not None and tx != FOREIGN
        }

    def nonce_at(self, number: int) -> int:
        return NONCE + sum(tx is not None for tx in self.chain[: number + 1])

    def observation(self) -> Observation:
        receipts = self.mined()
        return Observation(
            head_number=self.head,
            confirmations=K,
            chain_nonce=self.nonce_at(self.head),
            settled_nonce=self.nonce_at(self.head - K + 1),
            receipts=receipts,
            known=frozenset(receipts) | frozenset(self.pool),
            overdue=frozenset(a.hash for a in self.attempts),
            can_sign=self.funded,
            can_bump=self.funded and len(self.attempts) < 5,
            can_pay=self.funded,
        )

    def step(self) -> None:
        for _ in range(6):
            action = next_action(self.state, self.attempts, self.observation())
            self.check(action)
            if not self.perform(action):
                return

    def check(self, action: Action) -> None:
        seen = self.observation()
        ours = seen.receipts
        if action.act is Act.SIGN:
            assert not self.attempts
        if action.act in (Act.CONFIRM, Act.FAIL):
            receipt = ours[action.hash or b""]
            assert seen.head_number - receipt.block_number + 1 >= K
            assert receipt.succeeded is (action.act is Act.CONFIRM)
            assert self.state is IntentState.MINED
        if action.act is Act.REPLAN and self.attempts:
            assert not ours
            assert not any(a.hash in seen.known for a in self.attempts)
            assert FOREIGN in self.chain[: self.head - K + 2]
        if action.act is Act.MARK_UNMINED:
            assert not ours
        if action.act in (Act.BUMP, Act.SEND, Act.REBROADCAST):
            assert not ours, "nothing is sent for what is mined"

    def perform(self, action: Action) -> bool:
        self.acts.append(action.act)
        match action.act:
            case Act.SIGN | Act.BUMP:
                name = b"tx%d" % len(self.attempts)
                self.attempts.append(AttemptView(name, NONCE, AttemptState.SIGNED))
                if action.act is Act.SIGN:
                    self.state = IntentState.SIGNED
            case Act.SEND | Act.REBROADCAST:
                return self._send(action.hash or b"")
            case Act.MARK_MINED:
                self._mark(action.hash, AttemptState.MINED, AttemptState.REPLACED)
                self.state = IntentState.MINED
            case Act.MARK_UNMINED:
                self.attempts = [
                    replace(a, state=AttemptState.BROADCAST) if a.state is AttemptState.MINED else a
                    for a in self.attempts
                ]
                self.state = IntentState.BROADCAST
            case Act.CONFIRM:
                self.state = IntentState.CONFIRMED
            case Act.FAIL:
                self.state = IntentState.FAILED
            case Act.REPLAN:
                self.state = IntentState.CANCELLED
            case _:
                return False
        return True

    def _send(self, tx: bytes) -> bool:
        answer = self.answers.pop(0) if self.answers else None
        if self.nonce_at(self.head) > NONCE:
            answer = SendError.NONCE_TOO_LOW
        if answer is not None:
            self.attempts = [
                replace(a, refusal=answer) if a.hash == tx else a for a in self.attempts
            ]
            return False
        self.pool = {tx}
        self._mark(tx, AttemptState.BROADCAST, AttemptState.REPLACED)
        if self.state is IntentState.SIGNED:
            self.state = IntentState.BROADCAST
        return True

    def _mark(self, tx: bytes | None, this: AttemptState, others: AttemptState) -> None:
        self.attempts = [
            replace(a, state=this, refusal=None) if a.hash == tx else replace(a, state=others)
            for a in self.attempts
        ]

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
        if tx is not None:
            self.pool.clear()

    def reorg(self, depth: int) -> None:
        keep = max(1, len(self.chain) - depth)
        self.chain = [*self.chain[:keep], *[None] * (len(self.chain) - keep + 1)]


EVENTS = st.lists(
    st.one_of(
        st.sampled_from(["pool", "any", "foreign", "empty", "evict", "step"]),
        st.tuples(st.just("reorg"), st.integers(1, 4)),
        st.tuples(st.just("answer"), st.sampled_from([*SendError])),
        st.tuples(st.just("funds"), st.booleans()),
    ),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(EVENTS, st.booleans())
def test_any_history_is_followed_safely_and_to_an_end(events: list[object], reverts: bool) -> None:
    model = Model(reverts=reverts)
    for happening in events:
        match happening:
            case "evict":
                model.pool.clear()
            case "step":
                model.step()
            case ("reorg", int(depth)):
                model.reorg(depth)
            case ("answer", SendError() as refusal):
                model.answers.append(refusal)
            case ("funds", bool(funded)):
                model.funded = funded
            case str(block):
                model.mine(block)
    assert len({attempt.nonce for attempt in model.attempts}) <= 1
    closed_before = model.state not in LIVE
    # From now on the endpoint behaves: it must come to an end, and the right one.
    model.funded = True
    model.answers.clear()
    for _ in range(12):
        model.step()
        model.mine("pool")
    model.step()
    assert model.state not in LIVE
    event(f"ends {model.state}")
    if closed_before:
        return
    if model.mined():
        expected = IntentState.FAILED if reverts else IntentState.CONFIRMED
        assert model.state is expected
    else:
        assert model.state is IntentState.CANCELLED


def test_mined_goes_back_to_broadcast_after_a_reorganisation() -> None:
    model = Model()
    model.step()
    model.mine("pool")
    model.step()
    assert model.state is IntentState.MINED
    model.reorg(1)
    model.step()
    assert model.state is IntentState.BROADCAST
    back = model.acts.index(Act.MARK_UNMINED)
    assert model.acts[back + 1] is Act.REBROADCAST


def test_a_planned_intent_that_nobody_wants_any_more_is_dropped() -> None:
    seen = Observation(head_number=9, confirmations=K, chain_nonce=5, settled_nonce=5)
    unwanted = replace(seen, can_sign=False)
    assert next_action(IntentState.PLANNED, [], seen) == Action(Act.SIGN)
    assert next_action(IntentState.PLANNED, [], unwanted) == Action(Act.REPLAN)


def test_a_price_that_cannot_be_raised_leaves_the_old_bytes_in_the_pool() -> None:
    old = AttemptView(b"old", NONCE, AttemptState.BROADCAST)
    new = AttemptView(b"new", NONCE, AttemptState.SIGNED, SendError.REPLACEMENT_UNDERPRICED)
    seen = Observation(
        head_number=9, confirmations=K, chain_nonce=5, settled_nonce=5, can_bump=False
    )
    assert next_action(IntentState.BROADCAST, [old, new], seen) == Action(Act.REBROADCAST, b"old")
    pooled = replace(seen, known=frozenset({b"old"}))
    assert next_action(IntentState.BROADCAST, [old, new], pooled) == Action(Act.WAIT)
