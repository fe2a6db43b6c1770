"""What a row of chain.request says of what was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferd.protocol.request import Delivery, InputKind, ModelId, RequestParams


def params_of(row: Mapping[str, Any]) -> RequestParams:
    """The parameters that open the request's commitment."""
    return RequestParams(
        model_id=ModelId(row["model_id"]),
        max_tokens=row["max_tokens"],
        # The commitment binds the deadline as submitted, whatever a cancellation made of it.
        deadline_s=row["submitted_deadline_s"],
        memory_mb=row["memory_mb"],
        input=row["input"],
        callback_gas_limit=row["callback_gas_limit"],
        quorum=row["quorum"],
        batchable=row["batchable"],
        delivery=Delivery(row["delivery"]),
        input_kind=InputKind(row["input_kind"]),
    )
