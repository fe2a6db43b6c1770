"""A request's decisions with all that proves them, read from the tables; nothing is judged here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from indexer.database import Connection
from inferd.node.api_models import DecisionsView, DecisionView
from inferd.settlement.decisions import SELECT_DECISION, decision_of
from scheduler.audit import merkle_proof

_SELECT = f"""
    SELECT d.id, d.round_id, d.kind, d.leaf, d.leaf_version, d.intent_id, {SELECT_DECISION},
           (SELECT a.hash FROM node.tx_attempt a
            WHERE a.intent_id = d.intent_id AND a.state = 'mined' LIMIT 1) AS tx_hash
    FROM chain.request q
    JOIN node.decision d ON d.request_id = q.id AND d.commitment = q.commitment
    JOIN node.round r ON r.id = d.round_id
    WHERE q.id = $1 ORDER BY d.id
"""  # noqa: S608 - constants


async def load_decisions_of(connection: Connection, request_id: int) -> DecisionsView:
    """All decisions on the request, the oldest first; those of a forgotten request are gone."""
    rows = await connection.fetch(_SELECT, request_id)
    intents = list({row["intent_id"] for row in rows if row["intent_id"] is not None})
    siblings: dict[int, list[bytes]] = {intent: [] for intent in intents}
    for row in await connection.fetch(
        "SELECT intent_id, leaf FROM node.decision WHERE intent_id = ANY($1) AND leaf IS NOT NULL",
        intents,
    ):
        siblings[row["intent_id"]].append(row["leaf"])
    # A tree has thousands of leaves, and one request can be in many trees.
    decisions = await asyncio.to_thread(_views, rows, siblings)
    return DecisionsView(id=request_id, decisions=decisions)


async def load_recorded(connection: Connection, round_id: int) -> bytes | None:
    """What the round saw, compressed; None where it was not recorded, or is deleted."""
    found: bytes | None = await connection.fetchval(
        "SELECT encoding FROM node.round_snapshot WHERE round_id = $1", round_id
    )
    return found


def _views(
    rows: Sequence[Mapping[str, Any]], siblings: Mapping[int, list[bytes]]
) -> list[DecisionView]:
    return [_view(row, siblings.get(row["intent_id"], [])) for row in rows]


def _view(row: Mapping[str, Any], leaves: list[bytes]) -> DecisionView:
    decision = decision_of(row)
    leaf = row["leaf"]
    proof = merkle_proof(leaves, leaf) if leaf is not None and leaf in leaves else None
    return DecisionView(
        round_id=row["round_id"],
        kind=row["kind"],
        commitment=_hex(decision.key.commitment),
        reason=str(decision.reason),
        worker=_optional_hex(decision.worker),
        score=decision.score,
        lease_ms=decision.lease_ms,
        inputs={
            name: str(value) if name.endswith("_wei") else value
            for name, value in decision.inputs.items()
        },
        block_number=row["block_number"],
        block_hash=_hex(row["block_hash"]),
        base_fee_wei=str(row["base_fee_wei"]),
        policy=row["policy"],
        policy_version=row["policy_version"],
        snapshot_digest=_optional_hex(row["snapshot_digest"]),
        leaf=_optional_hex(leaf),
        leaf_version=row["leaf_version"],
        proof=None if proof is None else [_hex(step) for step in proof],
        tx_hash=_optional_hex(row["tx_hash"]),
    )


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def _optional_hex(value: bytes | None) -> str | None:
    return None if value is None else _hex(value)
