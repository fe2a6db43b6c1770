"""Every reason and problem a person can meet has a sentence and a next action."""

from __future__ import annotations

import pytest

from inferd.node.api_models import CallbackState, RequestState, RequestView
from inferd.node.health import PROBLEMS, problem
from inferd.node.why import NEXT_ACTIONS, why
from inferd.settlement.settings import PausedReason
from scheduler.model import Reason


def view(
    state: RequestState, reason: str | None = None, sentence: str | None = None
) -> RequestView:
    return RequestView(
        id=7,
        commitment="0x",
        requester="0x",
        model="m",
        fee_wei="1",
        deadline_s=2,
        submitted_at_s=1,
        created_block=1,
        created_tx="0x",
        cancel_requested=False,
        state=state,
        reason=reason,
        sentence=sentence,
        attempts=1,
        worker="0xabc",
        waited_blocks=0,
        batch_size=None,
        tx_hash="0xdef",
        settled_block=3,
        digest=None,
    )


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.ASSIGNED])
def test_each_reason_has_a_next_action(reason: Reason) -> None:
    for state in (RequestState.WAITING, RequestState.REFUSED):
        told = why(view(state, str(reason), "Because."))
        assert told.reason == reason
        assert told.sentence == "Because."
        assert told.next_action == NEXT_ACTIONS[reason]


@pytest.mark.parametrize(
    "state", [s for s in RequestState if s not in {RequestState.WAITING, RequestState.REFUSED}]
)
def test_each_state_has_a_sentence(state: RequestState) -> None:
    told = why(view(state))
    assert told.sentence.endswith(".")
    assert "{" not in told.sentence
    assert told.next_action


def test_an_expired_refusal_keeps_its_reason() -> None:
    told = why(view(RequestState.EXPIRED, "model_unknown", "Nobody serves it."))
    assert (told.reason, told.sentence) == ("model_unknown", "Nobody serves it.")
    assert told.next_action == NEXT_ACTIONS[RequestState.EXPIRED]


@pytest.mark.parametrize("state", CallbackState)
def test_what_a_callback_waits_for_is_said_while_it_is_owed(state: CallbackState) -> None:
    settled = view(RequestState.SETTLED).model_copy(update={"callback": state})
    told = why(settled, delivering="1 callback not made: gas is dear.")
    assert told.sentence.endswith("gas is dear.") == (state is CallbackState.OWED)


@pytest.mark.parametrize("code", PROBLEMS)
def test_each_problem_reads_well(code: str) -> None:
    told = problem(code, "detail")
    assert told.sentence.endswith(".")
    assert told.next_action.endswith(".")


def test_each_reported_pause_is_a_known_problem() -> None:
    assert {PausedReason.INSUFFICIENT_FUNDS, PausedReason.GAS_PRICE_OVER_CAP} <= set(PROBLEMS)
