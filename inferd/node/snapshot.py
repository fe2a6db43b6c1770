"""What one scheduling round sees, read from the tables in one consistent view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from indexer.database import Connection
from inferd.protocol.request import Delivery, InputKind
from scheduler.model import (
    Block,
    GasModel,
    ModelId,
    PendingRequest,
    RequestKey,
    Rules,
    Snapshot,
    TenantId,
    WorkerId,
    WorkerView,
)

_RECENT_FEES = 256

_PENDING = """
    SELECT r.id, r.commitment, r.requester, r.model_id, r.fee_wei, r.created_at_s, r.deadline_s,
           r.batchable, r.max_tokens, length(r.input) AS input_bytes, r.memory_mb, r.delivery,
           r.quorum, r.input_kind, coalesce(l.attempts, 0) AS attempts, l.tried, l.bad_input
    FROM chain.request r
    LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE state <> 'active' AND counts) AS attempts,
               array_agg(DISTINCT worker) FILTER (WHERE counts) AS tried,
               min(failure) FILTER (WHERE failure LIKE 'bad_input: %') AS bad_input,
               bool_or(state = 'active') AS leased
        FROM (SELECT *, coalesce(failure, '') !~ '^(busy|abandoned): ' AS counts
              FROM node.lease WHERE request_id = r.id AND commitment = r.commitment) attempt
    ) l ON true
    WHERE r.status = 'pending'
      AND l.leased IS NOT TRUE
      AND NOT EXISTS (SELECT FROM node.result
                      WHERE request_id = r.id AND commitment = r.commitment)
      AND NOT EXISTS (SELECT FROM node.refusal
                      WHERE request_id = r.id AND commitment = r.commitment)
    ORDER BY r.id
"""


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """The parts of a snapshot that do not come from the tables."""

    workers: tuple[WorkerView, ...]
    gas: GasModel
    rules: Rules
    now_s: float


async def load_snapshot(connection: Connection, inputs: RoundInputs) -> Snapshot | None:
    """The caller's transaction should be REPEATABLE READ; None before the first indexed block."""
    cursor = await connection.fetchrow(
        "SELECT block_number, block_hash, timestamp_s, base_fee_wei, gas_limit FROM chain.cursor"
    )
    if cursor is None:
        return None
    rows = await connection.fetch(_PENDING)
    fees = await connection.fetch(
        "SELECT fee_wei FROM chain.request ORDER BY id DESC LIMIT $1", _RECENT_FEES
    )
    return Snapshot(
        block=Block(
            number=cursor["block_number"],
            hash=cursor["block_hash"],
            timestamp_s=cursor["timestamp_s"],
            base_fee_wei=cursor["base_fee_wei"],
            gas_limit=cursor["gas_limit"],
        ),
        now_s=inputs.now_s,
        requests=tuple(_request(row) for row in rows),
        workers=inputs.workers,
        gas=inputs.gas,
        rules=inputs.rules,
        recent_fees_wei=tuple(sorted(row["fee_wei"] for row in fees)),
    )


def unsupported(delivery: int, quorum: int, input_kind: int) -> str | None:
    """What of a request this node cannot do, in words."""
    if delivery != Delivery.EVENT:
        return f"delivery {Delivery(delivery).name} is not served by this node"
    if quorum != 1:
        return f"a quorum of {quorum} workers is not served by this node"
    if input_kind != InputKind.INLINE:
        return "inputs by URI are not served by this node"
    return None


def _request(row: Any) -> PendingRequest:
    return PendingRequest(
        key=RequestKey(row["id"], row["commitment"]),
        tenant=TenantId(row["requester"]),
        model=ModelId(row["model_id"]),
        fee_wei=row["fee_wei"],
        submitted_at_s=row["created_at_s"],
        deadline_s=row["deadline_s"],
        max_tokens=row["max_tokens"],
        input_bytes=row["input_bytes"],
        memory_mb=row["memory_mb"],
        attempts=row["attempts"],
        batchable=row["batchable"],
        bad_input=_after_colon(row["bad_input"]),
        tried=frozenset(WorkerId(worker) for worker in row["tried"] or ()),
        unsupported=unsupported(row["delivery"], row["quorum"], row["input_kind"]),
    )


def _after_colon(failure: str | None) -> str | None:
    """A lease's failure is stored as "kind: words"."""
    return None if failure is None else failure.partition(": ")[2]
