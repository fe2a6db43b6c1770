"""`next_action` against a model of chain, pool and outbox that does whatever hypothesis wants."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from indexer.rpc.refusals import SendError
from inferd.settlement.state import (
    ATTEMPT_STEPS,
    CLOSED,
    INTENT_STEPS,
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


EVENTS = st.lists(
    st.one_of(
        st.sampled_from(["pool", "any", "foreign", "empty", "evict", "step", "step", "lose_key"]),
        st.tuples(st.just("reorg"), st.integers(1, 4)),
        st.tuples(st.just("behind"), st.integers(0, 2)),
        st.tuples(st.just("answer"), st.sampled_from([*SendError])),
        st.tuples(st.just("funded"), st.booleans()),
        st.tuples(st.just("raisable"), st.booleans()),
        st.tuples(st.just("wanted"), st.booleans()),
        st.tuples(st.just("sees_mined"), st.booleans()),
        st.tuples(st.just("logs_tell"), st.booleans()),
        st.tuples(st.just("takes_in_silence"), st.booleans()),
        st.tuples(st.just("in_the_way"), st.booleans()),
        st.just("cancel"),
    ),
    max_size=40,
)
REFUSED_FOR_GOOD: list[object] = [("answer", SendError.UNKNOWN)] * 4


def _happen(model: Model, happening: object) -> None:
    match happening:
        case "evict":
            model.pool.clear()
        case "step":
            model.step()
        case "lose_key":
            model.has_key = False
        case ("behind", int(blocks)):
            model.behind = blocks
            model.new_block()
        case ("reorg", int(depth)):
            model.reorg(depth)
        case ("answer", SendError() as refusal):
            model.answers.append(refusal)
        case (str(name), bool(value)):
            setattr(model, name, value)
        case "cancel":
            model.cancel_asked = True
        case str(block):
            model.mine(block)


@settings(max_examples=600, deadline=None)
@given(EVENTS, st.booleans(), st.booleans(), st.booleans())
@example([("answer", SendError.UNDERPRICED), "step"], False, False, True)  # at the cap: it stalled
@example(["step", ("answer", SendError.UNDERPRICED), "empty", "step", "evict"], False, True, True)
@example([*REFUSED_FOR_GOOD, *["step", "empty"] * 4, "step"], False, True, True)
@example([*REFUSED_FOR_GOOD, "step", ("wanted", False)], False, True, True)
@example(["step", "evict", "step", "evict", "empty"], False, False, False)
@example(["step", ("sees_mined", False), "pool", "step", "empty", "step"], False, True, True)
@example(["step", "empty", ("behind", 1), "pool", "step"], False, True, True)
@example(["step", ("takes_in_silence", True), "evict", "step", "step"], False, True, True)
@example(["step", "foreign", "empty", "step", ("reorg", 3), "step"], False, True, True)
def test_any_history_is_followed_safely_and_to_an_end(
    events: list[object], reverts: bool, raisable: bool, visible: bool
) -> None:
    model = Model(reverts=reverts, raisable=raisable, visible=visible)
    for happening in events:
        _happen(model, happening)
    assert len({attempt.nonce for attempt in model.attempts}) <= 1
    # From now on the endpoint behaves: it must come to an end, and the right one.
    model.funded = model.sees_mined = model.logs_tell = True
    model.behind = 0
    model.answers.clear()
    for _ in range(12 + FINAL):
        model.step()
        model.mine("pool")
    model.step()
    assert model.state not in LIVE
    event(f"ends {model.closed_as or model.state}")
    if not model.has_key and not any(model.chain):
        assert model.state in {IntentState.CANCELLED, IntentState.FINAL}
        return
    assert model.state is IntentState.FINAL
    if Act.ABANDON in model.acts:
        return
    ours = set(model.mined())
    if ours and not (ours & model.noops and not reverts):
        assert model.closed_as is (IntentState.FAILED if reverts else IntentState.CONFIRMED)
    else:
        assert model.closed_as is IntentState.CANCELLED


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
    assert model.acts[back + 1 : back + 3] == [Act.MARK_DROPPED, Act.REBROADCAST]


def test_a_planned_intent_that_nobody_wants_any_more_is_dropped() -> None:
    seen = Observation(head_number=9, confirmations=K, chain_nonce=5, settled_nonce=5)
    unwanted = replace(seen, can_sign=False)
    assert next_action(IntentState.PLANNED, [], seen) == Action(Act.SIGN)
    assert next_action(IntentState.PLANNED, [], unwanted) == Action(Act.REPLAN)


AT_CAP = Observation(head_number=9, confirmations=K, chain_nonce=5, settled_nonce=5, can_bump=False)
OLD = AttemptView(b"old", NONCE, AttemptState.BROADCAST)
CHEAP_NEW = AttemptView(b"new", NONCE, AttemptState.SIGNED, SendError.REPLACEMENT_UNDERPRICED)


def test_at_the_cap_the_newest_bytes_are_tried_each_block_and_older_ones_kept_alive() -> None:
    attempts = [OLD, CHEAP_NEW]
    first = next_action(IntentState.BROADCAST, attempts, AT_CAP)
    assert first == Action(Act.SEND, b"new")
    refused = replace(AT_CAP, refused=frozenset({b"new"}))
    then = next_action(IntentState.BROADCAST, attempts, refused)
    assert then == Action(Act.REBROADCAST, b"old")
    pooled = replace(refused, known=frozenset({b"old"}))
    assert next_action(IntentState.BROADCAST, attempts, pooled) == Action(Act.WAIT)


def test_what_an_unseen_pool_took_is_left_alone_until_it_is_overdue() -> None:
    seen = replace(AT_CAP, can_bump=True, taken=frozenset({b"old"}))
    assert next_action(IntentState.BROADCAST, [OLD], seen) == Action(Act.WAIT)
    overdue = replace(seen, overdue=frozenset({b"old"}))
    assert next_action(IntentState.BROADCAST, [OLD], overdue) == Action(Act.BUMP)
    at_cap = replace(overdue, can_bump=False)
    assert next_action(IntentState.BROADCAST, [OLD], at_cap) == Action(Act.REBROADCAST, b"old")
    # A foreign transaction has the nonce for good: what a relay took once proves nothing.
    spent = replace(overdue, chain_nonce=NONCE + 1, settled_nonce=NONCE + 1)
    assert next_action(IntentState.BROADCAST, [OLD], spent) == Action(Act.MARK_UNKNOWN)
    assert next_action(IntentState.UNKNOWN, [OLD], spent) == Action(Act.REPLAN)
    refused = replace(seen, refused=frozenset({b"new"}))
    attempts = [OLD, CHEAP_NEW]
    assert next_action(IntentState.BROADCAST, attempts, refused) == Action(Act.WAIT)
    refused = replace(refused, overdue=frozenset({b"old"}))
    assert next_action(IntentState.BROADCAST, attempts, refused) == Action(Act.REBROADCAST, b"old")


def test_a_price_is_raised_once_per_block() -> None:
    seen = replace(AT_CAP, can_bump=True)
    assert next_action(IntentState.SIGNED, [CHEAP_NEW], seen) == Action(Act.BUMP)
    again = replace(seen, refused=frozenset({b"new"}))
    assert next_action(IntentState.SIGNED, [CHEAP_NEW], again) == Action(Act.WAIT)


def test_what_is_refused_for_good_or_not_wanted_ends_as_a_transaction_without_effect() -> None:
    signed = AttemptView(b"new", NONCE, AttemptState.SIGNED, SendError.UNKNOWN)
    seen = replace(AT_CAP, can_cancel=True)
    assert next_action(IntentState.SIGNED, [signed], seen) == Action(Act.SEND, b"new")
    for reason in (replace(seen, hopeless=True), replace(seen, wanted=False)):
        assert next_action(IntentState.SIGNED, [signed], reason) == Action(Act.CANCEL)
        pooled = replace(reason, known=frozenset({b"new"}))
        assert next_action(IntentState.SIGNED, [signed], pooled) == Action(Act.MARK_SENT, b"new")
    # Once a pool took it, it is cheapest to let it be mined.
    unwanted = replace(seen, wanted=False, known=frozenset({b"old"}), overdue=frozenset({b"old"}))
    assert next_action(IntentState.BROADCAST, [OLD], unwanted) == Action(Act.REBROADCAST, b"old")


def test_without_its_key_an_intent_is_sent_as_long_as_that_can_work() -> None:
    seen = replace(AT_CAP, has_key=False)
    dropped = replace(OLD, state=AttemptState.DROPPED)
    assert next_action(IntentState.BROADCAST, [OLD], seen) == Action(Act.MARK_DROPPED, b"old")
    assert next_action(IntentState.BROADCAST, [dropped], seen) == Action(Act.REBROADCAST, b"old")
    pooled = replace(seen, known=frozenset({b"old"}), overdue=frozenset({b"old"}))
    assert next_action(IntentState.BROADCAST, [OLD], pooled).act is Act.REBROADCAST
    for lost in (
        replace(pooled, wanted=False),
        replace(pooled, priced_out=True),
        replace(pooled, reachable=False),
        replace(seen, can_pay=False),
        replace(seen, refused=frozenset({b"old"})),
    ):
        assert next_action(IntentState.BROADCAST, [OLD], lost) == Action(Act.ABANDON)
    mined_above_the_head = replace(OLD, refusal=SendError.NONCE_TOO_LOW)
    waits = replace(seen, refused=frozenset({b"old"}))
    assert next_action(IntentState.BROADCAST, [mined_above_the_head], waits).act is Act.WAIT


def test_a_spent_nonce_is_ours_for_sure_where_an_event_names_the_hash() -> None:
    spent = replace(AT_CAP, chain_nonce=NONCE + 1, settled_nonce=NONCE + 1)
    proven = replace(spent, proven=frozenset({b"old"}))
    for state in (IntentState.BROADCAST, IntentState.UNKNOWN):
        assert next_action(state, [OLD], proven) == Action(Act.WAIT)
    shallow = replace(spent, settled_nonce=NONCE)
    assert next_action(IntentState.BROADCAST, [OLD], shallow) == Action(Act.MARK_UNKNOWN)
    assert next_action(IntentState.UNKNOWN, [OLD], shallow) == Action(Act.WAIT)
    assert next_action(IntentState.UNKNOWN, [OLD], spent) == Action(Act.REPLAN)


def test_what_is_outbid_or_not_wanted_by_the_operator_gives_its_nonce_to_nothing() -> None:
    pooled = replace(AT_CAP, known=frozenset({b"old"}), can_cancel=True)
    assert next_action(IntentState.BROADCAST, [OLD], pooled) == Action(Act.WAIT)
    asked = replace(pooled, cancel_asked=True)
    assert next_action(IntentState.BROADCAST, [OLD], asked) == Action(Act.CANCEL)
    assert next_action(IntentState.PLANNED, [], replace(asked, can_sign=True)).act is Act.REPLAN
    outbid = replace(pooled, outbid=True)
    assert next_action(IntentState.BROADCAST, [OLD], outbid) == Action(Act.WAIT)
    overdue = replace(outbid, overdue=frozenset({b"old"}))
    assert next_action(IntentState.BROADCAST, [OLD], overdue) == Action(Act.CANCEL)


def test_what_is_closed_is_watched_until_its_block_is_final() -> None:
    mined = AttemptView(b"tx", NONCE, AttemptState.MINED)
    there = replace(AT_CAP, receipts={b"tx": ReceiptView(7, b"", True)}, final_number=6)
    for state in CLOSED:
        assert next_action(state, [mined], there) == Action(Act.WAIT)
        final = replace(there, final_number=7)
        assert next_action(state, [mined], final) == Action(Act.FINALISE)
        assert next_action(state, [mined], AT_CAP) == Action(Act.REOPEN)
    lost = AttemptView(b"tx", NONCE, AttemptState.DROPPED)
    assert next_action(IntentState.CANCELLED, [lost], AT_CAP) == Action(Act.WAIT)
    spent = replace(AT_CAP, final_nonce=NONCE + 1)
    assert next_action(IntentState.CANCELLED, [lost], spent) == Action(Act.FINALISE)
    # An endpoint that lagged shows it after all.
    assert next_action(IntentState.CANCELLED, [lost], there) == Action(Act.REOPEN)
    assert next_action(IntentState.CANCELLED, [], AT_CAP) == Action(Act.FINALISE)
    assert next_action(IntentState.FINAL, [mined], AT_CAP) == Action(Act.WAIT)


HASHES = (b"a", b"b", b"c")
SOME = st.frozensets(st.sampled_from(HASHES))
OBSERVATIONS = st.builds(
    Observation,
    head_number=st.integers(0, 20),
    confirmations=st.integers(1, 4),
    chain_nonce=st.integers(NONCE - 1, NONCE + 2),
    settled_nonce=st.integers(NONCE - 1, NONCE + 1),
    receipts=st.dictionaries(
        st.sampled_from(HASHES),
        st.builds(ReceiptView, st.integers(0, 20), st.just(b""), st.booleans()),
        max_size=1,
    ),
    known=SOME,
    proven=SOME,
    taken=SOME,
    overdue=SOME,
    refused=SOME,
    final_number=st.integers(-1, 20),
    final_nonce=st.integers(NONCE - 1, NONCE + 1),
    **dict.fromkeys(
        (
            "pool_visible",
            "hopeless",
            "wanted",
            "priced_out",
            "can_sign",
            "can_bump",
            "can_pay",
            "can_cancel",
            "outbid",
            "cancel_asked",
            "reachable",
            "has_key",
        ),
        st.booleans(),
    ),
)
AFTER = {
    Act.SIGN: IntentState.SIGNED,
    Act.MARK_UNKNOWN: IntentState.UNKNOWN,
    Act.MARK_MINED: IntentState.MINED,
    Act.MARK_UNMINED: IntentState.BROADCAST,
    Act.CONFIRM: IntentState.CONFIRMED,
    Act.FAIL: IntentState.FAILED,
    Act.REPLAN: IntentState.CANCELLED,
    Act.ABANDON: IntentState.CANCELLED,
    Act.REOPEN: IntentState.BROADCAST,
    Act.FINALISE: IntentState.FINAL,
}
ATTEMPT_AFTER = {
    Act.SEND: AttemptState.BROADCAST,
    Act.REBROADCAST: AttemptState.BROADCAST,
    Act.MARK_SENT: AttemptState.BROADCAST,
    Act.MARK_DROPPED: AttemptState.DROPPED,
    Act.MARK_MINED: AttemptState.MINED,
}


@settings(max_examples=400)
@given(
    st.sampled_from(IntentState),
    st.lists(
        st.tuples(
            st.sampled_from([one for one in AttemptState if one is not AttemptState.MINED]),
            st.one_of(st.none(), st.sampled_from(SendError)),
        ),
        min_size=1,
        max_size=len(HASHES),
    ),
    OBSERVATIONS,
)
def test_whatever_is_seen_the_next_step_is_a_legal_one(
    state: IntentState, parts: list[tuple[AttemptState, SendError | None]], seen: Observation
) -> None:
    attempts = [
        AttemptView(tx, NONCE, one, refusal)
        for tx, (one, refusal) in zip(HASHES, parts, strict=False)
    ]
    if state is IntentState.PLANNED:
        attempts = []
    if state in (IntentState.MINED, IntentState.CONFIRMED, IntentState.FAILED):
        attempts[0] = replace(attempts[0], state=AttemptState.MINED)
    action = next_action(state, attempts, seen)
    event(f"{state} {action.act}")
    after = AFTER.get(action.act, state)
    assert after is state or (state, after) in INTENT_STEPS
    if action.act in ATTEMPT_AFTER:
        (attempt,) = (one for one in attempts if one.hash == action.hash)
        changed = ATTEMPT_AFTER[action.act]
        assert changed is attempt.state or (attempt.state, changed) in ATTEMPT_STEPS
    if action.act in (Act.BUMP, Act.CANCEL, Act.SIGN):
        assert seen.can_bump or seen.can_cancel or seen.can_sign
        assert state in LIVE
