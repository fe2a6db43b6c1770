"""Which boundaries of time a step has touched: equal to a moment, or one second beside it."""

from __future__ import annotations

from tests.contracts.abi import Event
from tests.contracts.model.values import HoldSkip, Skip
from tests.contracts.model.world import Model
from tests.contracts.setting import Answer

_LATE = {
    "WindowClosed": "dispute one second late",
    "RulingTooLate": "ruling one second late",
    "RulingStillPossible": "close at rulingUntil",
    "StillBonded": "withdrawal one second early",
    "DeadlineNotInFuture": "deadline now",
}
_EXPECTED_GAPS = {"RulingStillPossible": 0, "StillBonded": -1, "DeadlineNotInFuture": 0}

ALL = {
    *_LATE.values(),
    "fulfilled at the deadline",
    "result one second late",
    "refunded one second after the deadline",
    "refund at the deadline",
    "released one second after the window",
    "release at the end of the window",
    "disputed at the end of the window",
    "ruled at rulingUntil",
    "lapsed one second after rulingUntil",
    "withdrawn at withdrawableAt",
}


def touched(model: Model, answer: Answer) -> list[str]:
    if answer.error is not None:
        name, *moments = answer.error
        gap = moments[1] - moments[0] if name in _LATE else None
        return [_LATE[name]] if gap == _EXPECTED_GAPS.get(name, 1) else []
    return [name for event in answer.events if (name := _of(model, event))]


def _of(model: Model, event: Event) -> str:
    id_ = event.args[0] if event.args else -1
    request, case = model.requests.all.get(id_), model.disputes.all.get(id_)
    late = model.now - request.deadline if request else None
    skipped = event.args[1] if event.name.endswith("Skipped") else None
    released = model.now - case.hold.disputable_until if case else None
    ruled = model.now - case.ruling_until if case else None
    cases = {
        "fulfilled at the deadline": event.name == "InferenceFulfilled" and late == 0,
        "result one second late": event.name == "ResultSkipped"
        and (skipped, late) == (Skip.EXPIRED, 1),
        "refunded one second after the deadline": event.name == "RequestRefunded" and late == 1,
        "refund at the deadline": event.name == "RefundSkipped"
        and (skipped, late) == (Skip.NOT_EXPIRED, 0),
        "released one second after the window": event.name == "PaymentReleased" and released == 1,
        "release at the end of the window": event.name == "ReleaseSkipped"
        and (skipped, released) == (HoldSkip.STILL_DISPUTABLE, 0),
        "disputed at the end of the window": event.name == "DisputeOpened" and released == 0,
        "ruled at rulingUntil": event.name == "DisputeRuled" and ruled == 0,
        "lapsed one second after rulingUntil": event.name == "DisputeLapsed" and ruled == 1,
    }
    return next((name for name, holds in cases.items() if holds), "")
