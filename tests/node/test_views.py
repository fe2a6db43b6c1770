"""The state a request is shown in, from what the tables hold of it."""

from __future__ import annotations

from typing import Any

import pytest

from inferd.node.api_models import RequestState
from inferd.node.views import state_of


def row(**changes: Any) -> dict[str, Any]:
    return {
        "status": "pending",
        "live_kind": None,
        "head_timestamp_s": 100,
        "deadline_s": 200,
        "result_digest": None,
        "refusal_reason": None,
        "lease_worker": None,
        "decision_kind": None,
    } | changes


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, RequestState.PENDING),
        ({"decision_kind": "keep"}, RequestState.WAITING),
        ({"decision_kind": "assign"}, RequestState.WAITING),
        ({"lease_worker": b"w"}, RequestState.ASSIGNED),
        ({"result_digest": b"d"}, RequestState.COMPUTED),
        ({"result_digest": b"d", "live_kind": "post"}, RequestState.POSTING),
        ({"refusal_reason": "model_unknown"}, RequestState.REFUSED),
        ({"head_timestamp_s": 200}, RequestState.PENDING),
        ({"head_timestamp_s": 201}, RequestState.EXPIRED),
        ({"head_timestamp_s": 201, "live_kind": "refund"}, RequestState.EXPIRED),
        ({"head_timestamp_s": 201, "live_kind": "post"}, RequestState.POSTING),
        ({"head_timestamp_s": 201, "refusal_reason": "expired"}, RequestState.EXPIRED),
        ({"status": "fulfilled", "live_kind": "post"}, RequestState.SETTLED),
        ({"status": "refunded", "refusal_reason": "expired"}, RequestState.REFUNDED),
    ],
)
def test_state(changes: dict[str, Any], state: RequestState) -> None:
    assert state_of(row(**changes)) is state
