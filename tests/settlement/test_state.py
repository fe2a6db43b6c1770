"""`next_action`, case by case."""

from __future__ import annotations

from dataclasses import replace

from indexer.rpc.refusals import SendError
from inferd.settlement.state import (
    CLOSED,
    Act,
    Action,
    AttemptState,
    AttemptView,
    IntentState,
    Observation,
    ReceiptView,
    next_action,
)
from tests.settlement.intent_model import NONCE, K


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
