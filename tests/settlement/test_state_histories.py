"""`next_action` against a model of chain, pool and outbox that does whatever hypothesis wants."""

from __future__ import annotations

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from indexer.rpc.refusals import SendError
from inferd.settlement.state import LIVE, Act, IntentState
from tests.settlement.intent_model import FINAL, Model

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
