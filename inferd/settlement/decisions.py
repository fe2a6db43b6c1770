"""Decisions as node.decision stores them: which columns, and back again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.audit import leaf
from scheduler.decision import NUMBER_NAMES, Decision
from scheduler.model import Block, Numbers, Reason, RequestKey, WorkerId

_AMOUNTS = frozenset(name for name in NUMBER_NAMES if name.endswith("_wei"))

DECISION_COLUMNS: tuple[str, ...] = (
    "request_id",
    "commitment",
    "reason",
    "worker",
    "score",
    "lease_ms",
    *NUMBER_NAMES,
)
"""What a decision is made of, in a row of node.decision."""

SELECT_DECISION = ", ".join(f'd."{name}"' for name in DECISION_COLUMNS)
"""SQL: those columns of a row `d`."""


def decision_of(row: Mapping[str, Any]) -> Decision:
    """The decision that a row tells of."""
    worker = row["worker"]
    numbers: dict[str, Any] = {
        name: int(value) if name in _AMOUNTS else value
        for name in NUMBER_NAMES
        if (value := row[name]) is not None
    }
    return Decision(
        RequestKey(row["request_id"], row["commitment"]),
        Reason(row["reason"]),
        None if worker is None else WorkerId(worker),
        row["score"],
        row["lease_ms"],
        Numbers(**numbers),
    )


def leaf_of(row: Mapping[str, Any]) -> bytes:
    """The leaf of a decision, of whose round the row has block_number, block_hash and policy."""
    stored: bytes | None = row["leaf"]
    if stored is not None:
        return stored
    block = Block(row["block_number"], row["block_hash"], 0, 0, 0)
    return leaf(decision_of(row), block, row["policy"])
