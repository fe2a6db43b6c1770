"""What `inferd settlement list` shows: intents under way, what was given up, and what is over."""

from __future__ import annotations

from dataclasses import dataclass

from asyncpg import Record

from indexer.database import Connection
from indexer.types import Address
from inferd.settlement.state import LIVE_SQL

_COLUMNS = """
    SELECT i.id, i.sender, i.kind, i.state, i.reason, i.outcome, i.diagnosis,
           i.cancel_asked_at IS NOT NULL AS cancel_asked,
           extract(epoch FROM now() - i.created_at)::float8 AS age_s,
           a.nonce, a.hash, a.max_fee_wei, a.priority_fee_wei, a.error, cost.wei AS cost_wei,
           a.attempts, items.ids, items.given_up
    FROM node.tx_intent i
    LEFT JOIN LATERAL (
        SELECT nonce, hash, max_fee_wei, priority_fee_wei, error, count(*) OVER () AS attempts
        FROM node.tx_attempt WHERE intent_id = i.id
        ORDER BY state = 'mined' DESC, max_fee_wei DESC, created_at DESC LIMIT 1
    ) a ON true
    CROSS JOIN LATERAL (
        SELECT sum(gas_used * effective_gas_price_wei + data_fee_wei) AS wei FROM node.tx_attempt
        WHERE intent_id = i.id
    ) cost
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(request_id ORDER BY request_id), '{}') AS ids,
               coalesce(array_agg(request_id ORDER BY request_id)
                        FILTER (WHERE outcome = 'abandoned'), '{}') AS given_up
        FROM node.tx_item WHERE intent_id = i.id
    ) items
"""
_LIVE = f"{_COLUMNS} WHERE i.{LIVE_SQL} ORDER BY i.sender, a.nonce NULLS LAST, i.id"
_GIVEN_UP = f"""
    {_COLUMNS} WHERE i.id IN (SELECT intent_id FROM node.tx_item WHERE outcome = 'abandoned')
    ORDER BY i.id DESC LIMIT $1
"""  # noqa: S608 - constants
_OVER = f"""
    {_COLUMNS} WHERE i.closed_at IS NOT NULL ORDER BY i.closed_at DESC, i.id DESC LIMIT $1
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One intent. Amounts are wei."""

    id: int
    sender: Address
    """Whose key signs it."""
    kind: str
    state: str
    reason: str
    """Why it was made."""
    outcome: str | None
    diagnosis: str | None
    """Why its transaction failed."""
    cancel_asked: bool
    age_s: float
    nonce: int | None
    tx_hash: bytes | None
    """Of the transaction that was mined, or the dearest one."""
    max_fee_wei: int | None
    priority_fee_wei: int | None
    cost_wei: int | None
    """What was paid for gas; None while nothing was mined."""
    error: str | None
    """The endpoint's last answer that was no success."""
    attempts: int
    request_ids: tuple[int, ...]
    given_up: tuple[int, ...]
    """Those of them that are tried no more."""


@dataclass(frozen=True, slots=True)
class Overview:
    live: tuple[Line, ...]
    given_up: tuple[Line, ...]
    over: tuple[Line, ...]


async def load_overview(connection: Connection, limit: int) -> Overview:
    """All that is under way; of the others the newest `limit`. Database errors propagate."""
    return Overview(
        live=tuple(map(_line, await connection.fetch(_LIVE))),
        given_up=tuple(map(_line, await connection.fetch(_GIVEN_UP, limit))),
        over=tuple(map(_line, await connection.fetch(_OVER, limit))),
    )


def _line(row: Record) -> Line:
    def wei(name: str) -> int | None:
        return None if row[name] is None else int(row[name])

    return Line(
        id=row["id"],
        sender=row["sender"],
        kind=row["kind"],
        state=row["state"],
        reason=row["reason"],
        outcome=row["outcome"],
        diagnosis=row["diagnosis"],
        cancel_asked=row["cancel_asked"],
        age_s=row["age_s"],
        nonce=row["nonce"],
        tx_hash=row["hash"],
        max_fee_wei=wei("max_fee_wei"),
        priority_fee_wei=wei("priority_fee_wei"),
        cost_wei=wei("cost_wei"),
        error=row["error"],
        attempts=row["attempts"] or 0,
        request_ids=tuple(row["ids"]),
        given_up=tuple(row["given_up"]),
    )
