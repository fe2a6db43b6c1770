"""Whatever is observed, `next_action` takes no step that the database would refuse."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from indexer.rpc.refusals import SendError
from inferd.settlement.state import (
    ATTEMPT_STEPS,
    INTENT_STEPS,
    LIVE,
    Act,
    AttemptState,
    AttemptView,
    IntentState,
    Observation,
    ReceiptView,
    next_action,
)
from tests.settlement.intent_model import NONCE

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
