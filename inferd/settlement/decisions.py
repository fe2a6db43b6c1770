"""Decisions as node.decision stores them: which columns, and back again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.audit import Origin, leaf
from scheduler.decision import NUMBER_NAMES, Decision
from scheduler.model import Numbers, Reason, RequestKey, WorkerId

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

ORIGIN_COLUMNS: tuple[str, ...] = (
    "block_number",
    "block_hash",
    "base_fee_wei",
    "policy",
    "policy_version",
    "snapshot_digest",
)
"""Where a round's decisions come from, in its row of node.round."""

SELECT_DECISION = ", ".join(
    (
        *(f'd."{name}"' for name in DECISION_COLUMNS),
        *(f'r."{name}"' for name in ORIGIN_COLUMNS),
    )
)
"""SQL: those columns of a row `d` and its round `r`."""


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


def origin_of(row: Mapping[str, Any]) -> Origin:
    """Where the decision of a row comes from."""
    return Origin(
        row["block_number"],
        row["block_hash"],
        int(row["base_fee_wei"]),
        row["policy"],
        row["policy_version"],
        row["snapshot_digest"],
    )


def rebuilt_leaf(row: Mapping[str, Any]) -> bytes:
    """The leaf of what a row of `SELECT_DECISION` says now."""
    return leaf(decision_of(row), origin_of(row))


def leaf_of(row: Mapping[str, Any]) -> bytes:
    """The leaf to anchor: the one the row was given when it was anchored before, if it was."""
    stored: bytes | None = row["leaf"]
    return rebuilt_leaf(row) if stored is None else stored
