"""Every reason code with its one next action: `inferd why`, the API and the docs read them here."""

from __future__ import annotations

from inferd.node.api_models import CallbackState, CheckState, RequestState, RequestView, WhyView
from scheduler.model import Reason

NEXT_ACTIONS: dict[str, str] = {
    RequestState.PENDING: "Wait for the next block.",
    RequestState.ASSIGNED: "Wait for the worker; when it fails, another gets the request.",
    RequestState.COMPUTED: "Wait: it is posted when a batch is worth its gas or a deadline nears.",
    RequestState.POSTING: "Wait for the transaction to be mined and confirmed.",
    RequestState.SETTLED: "Read the answer with `inferd result`.",
    RequestState.EXPIRED: "Wait for the refund, or run `inferd refund`; anyone may.",
    RequestState.REFUNDED: "Take the credited fee out with `inferd withdraw`.",
    Reason.NO_FREE_SLOT: "Wait for a slot; the owner can add workers or slots.",
    Reason.NO_AVAILABLE_WORKER: "Wait until a worker that serves the model is back.",
    Reason.GAS_TOO_DEAR_NOW: "Wait for cheaper gas, or add to the fee with `inferd raise-fee`.",
    Reason.TENANT_IN_FLIGHT: "Wait until one of the requester's other requests is answered.",
    Reason.TENANT_RATE: "Wait; the owner can raise the requester's allowance.",
    Reason.PROBATION_CAP: "Wait for another worker, or until the new ones have proved themselves.",
    Reason.BUDGET_SPENT: "Wait; the owner can raise the budget.",
    Reason.QUORUM_SHORT: "Wait for workers of more owners, or ask again with a smaller quorum.",
    Reason.INPUT_AWAITED: "Wait; where the last try failed, make the content reachable.",
    Reason.POSTING_BEHIND: "Wait until results are posted; what is in their way, `status` names.",
    Reason.DEADLINE_INFEASIBLE: "Wait for the refund, and ask again with a later deadline.",
    Reason.MODEL_UNKNOWN: "Ask for a model that `inferd workers` shows; in private for one of the "
    "worker that has the key, or of the node's own. The fee is refunded later.",
    Reason.MEMORY_TOO_LARGE: "Ask again with less memory; this one is refunded later.",
    Reason.UNSUPPORTED: "Ask again without what the sentence names; this one is refunded later.",
    Reason.ATTEMPTS_EXHAUSTED: "Wait for the refund; the workers' logs say why they failed.",
    Reason.NO_AGREEMENT: "Wait for the refund; ask for a smaller quorum, or a model whose answers "
    "are the same on all machines.",
    Reason.BAD_INPUT: "Correct the input and ask again; this one is refunded after its deadline.",
    Reason.INPUT_UNAVAILABLE: "Make the content reachable and ask again; this one is refunded.",
}

_SENTENCES: dict[RequestState, str] = {
    RequestState.PENDING: "The request is on chain and no scheduling round has looked at it yet.",
    RequestState.ASSIGNED: "Worker {worker} computes it (attempt {attempts}).",
    RequestState.COMPUTED: "Its signed result is stored and waits for a post.",
    RequestState.POSTING: "Its result is in transaction {tx_hash}, which is not confirmed yet.",
    RequestState.SETTLED: "It was settled by transaction {tx_hash} in block {settled_block}.",
    RequestState.EXPIRED: "Its deadline has passed without a result.",
    RequestState.REFUNDED: "Its fee was credited back by transaction {tx_hash}.",
}

_UNTIL_AGREED = frozenset(
    {
        RequestState.PENDING,
        RequestState.WAITING,
        RequestState.ASSIGNED,
        RequestState.REFUSED,
        RequestState.EXPIRED,
    }
)

_CHECKS: dict[CheckState, str] = {
    CheckState.HELD: "Before that another worker computes it once more.",
    CheckState.UNDECIDED: "Workers contradict each other about it, and none of them is posted.",
}
_CHECK_ACTIONS: dict[CheckState, str] = {
    CheckState.HELD: "Wait: it is posted when that is done, or has taken too long.",
    CheckState.UNDECIDED: "Wait for another worker's answer, or for the refund; the owner can"
    " offer the model itself: its own worker's answer decides.",
}
_CALLBACKS: dict[CallbackState, str] = {
    CallbackState.OWED: "The contract that asked has not been called with the output yet.",
    CallbackState.DELIVERED: "The contract that asked was called with the output.",
    CallbackState.FAILED: "The contract that asked was called and failed with {callback_failure}.",
}
_CALLBACK_ACTIONS: dict[CallbackState, str] = {
    CallbackState.OWED: "Wait for the delivery, or run `inferd deliver`; anyone may.",
    CallbackState.FAILED: "Mend the contract and call it again with `inferd deliver`; anyone may.",
}


def why(view: RequestView, posting: str = "", delivering: str = "") -> WhyView:
    """One plain sentence on where a request is, and what can be done.

    `posting` is the newest posting decision in words, which a computed result waits for;
    `delivering` says why callbacks wait, where some do.
    """
    named = view.sentence is not None and view.state in {
        RequestState.WAITING,
        RequestState.REFUSED,
        RequestState.EXPIRED,
    }
    reason = view.reason if named and view.reason else str(view.state)
    sentence = (
        view.sentence if named and view.sentence else _SENTENCES[view.state].format(**dict(view))
    )
    if view.check is not None:
        sentence = f"{sentence} {_CHECKS[view.check]}"
    elif view.state is RequestState.COMPUTED and posting:
        sentence = f"{sentence} {posting}"
    next_action = NEXT_ACTIONS[
        RequestState.EXPIRED if view.state is RequestState.EXPIRED else reason
    ]
    if view.quorum > 1 and view.state in _UNTIL_AGREED:
        sentence += (
            f" Of the {view.quorum} workers of different owners whose answer it wants alike,"
            f" {view.agreeing} agree ({view.answers} answered)."
        )
    if view.check is not None:
        next_action = _CHECK_ACTIONS[view.check]
    if view.callback is not None:
        sentence = f"{sentence} {_CALLBACKS[view.callback].format(**dict(view))}"
        next_action = _CALLBACK_ACTIONS.get(view.callback, next_action)
    if view.callback is CallbackState.OWED and delivering:
        sentence = f"{sentence} {delivering}"
    return WhyView(
        id=view.id,
        state=view.state,
        reason=reason,
        sentence=sentence,
        next_action=next_action,
        numbers=view.numbers,
    )
