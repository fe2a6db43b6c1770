"""What one scheduling round sees, read from the tables in one consistent view."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from indexer.database import Connection
from inferd.protocol.request import Delivery, InputKind
from inferd.settlement.delivery_gas import delivery_gas, undeliverable
from inferd.settlement.intervals import load_block_interval_s
from inferd.settlement.postable import POSTABLE
from inferd.workers.leases import FailureKind, failure_words
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
_INCLUSION_BLOCKS = 2

_UNCOUNTED = "|".join(kind for kind in FailureKind if not kind.counts)

# Computed once more is what has no result that could be posted and is in no transaction. After the
# n-th failure a request rests for 2^(n-1) seconds, or a quarter of its time left: a back end that
# restarts must not use up all attempts within a second.

_PENDING = f"""
    SELECT r.id, r.commitment, r.requester, r.model_id, r.fee_wei, r.created_at_s, r.deadline_s,
           r.batchable, r.max_tokens, length(r.input) AS input_bytes, r.memory_mb, r.delivery,
           r.callback_gas_limit, r.quorum, r.under_terms, r.input_kind,
           coalesce(l.attempts, 0) AS attempts, l.tried, l.bad_input
    FROM chain.request r
    LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE state <> 'active' AND counts) AS attempts,
               array_agg(DISTINCT worker) FILTER (WHERE counts) AS tried,
               max(ended_at) FILTER (WHERE state <> 'active' AND counts) AS failed_at,
               min(failure) FILTER (WHERE failure LIKE '{FailureKind.BAD_INPUT}: %') AS bad_input,
               bool_or(state = 'active') AS leased
        FROM (SELECT *, coalesce(failure, '') !~ '^({_UNCOUNTED}): ' AS counts
              FROM node.lease WHERE request_id = r.id AND commitment = r.commitment) attempt
    ) l ON true
    WHERE r.status = 'pending'
      AND l.leased IS NOT TRUE
      AND NOT EXISTS (SELECT FROM node.result n
                      WHERE n.request_id = r.id AND n.commitment = r.commitment AND {POSTABLE})
      AND NOT EXISTS (SELECT FROM node.tx_item i
                      WHERE i.request_id = r.id AND i.commitment = r.commitment AND i.live)
      AND NOT EXISTS (SELECT FROM node.refusal
                      WHERE request_id = r.id AND commitment = r.commitment
                        AND deadline_s = r.deadline_s)
      AND (l.failed_at IS NULL OR l.bad_input IS NOT NULL OR l.failed_at <= clock_timestamp()
           - interval '1 second' * least(power(2, l.attempts - 1),
                                         greatest(0, r.deadline_s - $1) / 4.0))
    ORDER BY r.id
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """The parts of a snapshot that do not come from the tables."""

    workers: tuple[WorkerView, ...]
    gas: GasModel
    rules: Rules
    now_s: float
    max_gas: int
    """Of a transaction of this operator."""


async def load_snapshot(connection: Connection, inputs: RoundInputs) -> Snapshot | None:
    """The caller's transaction should be REPEATABLE READ; None before the first indexed block."""
    cursor = await connection.fetchrow(
        "SELECT block_number, block_hash, timestamp_s, base_fee_wei, gas_limit FROM chain.cursor"
    )
    if cursor is None:
        return None
    interval_s = await load_block_interval_s(connection)
    rows = await connection.fetch(_PENDING, cursor["timestamp_s"])
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
        requests=tuple(_request(row, min(inputs.max_gas, cursor["gas_limit"])) for row in rows),
        workers=inputs.workers,
        gas=inputs.gas,
        rules=_on_blocks(inputs.rules, interval_s),
        recent_fees_wei=tuple(sorted(row["fee_wei"] for row in fees)),
    )


def _on_blocks(rules: Rules, interval_s: float) -> Rules:
    """What is ready between two blocks is decided on at once, and mined in the next; one more
    block is for the wait in company. Less than that before its deadline nothing is begun."""
    inclusion_s = max(rules.inclusion_s, _INCLUSION_BLOCKS * interval_s)
    return replace(rules, inclusion_s=inclusion_s, block_interval_s=interval_s)


def unsupported(quorum: int, input_kind: int, *, under_terms: bool) -> str | None:
    """What of a request this node cannot do, in words."""
    if under_terms:
        return "models with a verifier or a dispute window are not served by this node"
    if quorum != 1:
        return f"a quorum of {quorum} workers is not served by this node"
    if input_kind != InputKind.INLINE:
        return "inputs by URI are not served by this node"
    return None


def _request(row: Any, max_gas: int) -> PendingRequest:
    delivery = (
        Delivery(row["delivery"]),
        row["callback_gas_limit"],
        row["input_bytes"],
        row["max_tokens"],
    )
    lacking = unsupported(row["quorum"], row["input_kind"], under_terms=row["under_terms"])
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
        bad_input=failure_words(row["bad_input"]),
        tried=frozenset(WorkerId(worker) for worker in row["tried"] or ()),
        unsupported=lacking or undeliverable(*delivery, max_gas),
        delivery_gas=delivery_gas(*delivery),
        tokens_mean=float(row["max_tokens"]),
    )
