"""What a round decided, as rows: copied in, a column at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from indexer.database import Connection
from inferd.settlement.decisions import DECISION_COLUMNS
from scheduler.decision import NUMBER_NAMES, Plan
from scheduler.rows import DecisionRows

_COLUMNS = ("round_id", "kind", *DECISION_COLUMNS)


@dataclass(frozen=True, slots=True)
class RoundRows:
    """The rows of one round, but for its number."""

    decisions: Sequence[tuple[Any, ...]]
    """Of node.decision, without round_id."""
    refusals: Sequence[tuple[int, bytes, int, str]]
    """Of node.refusal, without the block."""


def round_rows(plan: Plan) -> RoundRows:
    """Rows of what was assigned, of what was refused, and of what is kept for another reason than
    in the round before."""
    kept, refused = plan.kept, plan.refused
    news = kept if kept.news is None or kept.news.all() else kept.take(kept.news.nonzero()[0])
    decisions = chain(_rows("assign", plan.assigned), _rows("keep", news), _rows("refuse", refused))
    refusals = [
        (one.key.id, one.key.commitment, one.deadline_s, reason)
        for one, reason in zip(refused.requests.tolist(), refused.column("reason"), strict=True)
    ]
    return RoundRows(list(decisions), refusals)


async def write_round(
    connection: Connection, plan: Plan, rows: RoundRows, *, pending: int, duration_us: int
) -> None:
    """Within the caller's transaction."""
    block = plan.block
    round_id: int = await connection.fetchval(
        """
        INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, policy_version,
                                pending, assigned, kept, refused, duration_us)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id
        """,
        block.number,
        block.hash,
        block.base_fee_wei,
        plan.policy,
        plan.policy_version,
        pending,
        len(plan.assigned),
        len(plan.kept),
        len(plan.refused),
        duration_us,
    )
    await connection.copy_records_to_table(
        "decision",
        schema_name="node",
        columns=_COLUMNS,
        records=((round_id, *row) for row in rows.decisions),
    )
    if rows.refusals:
        ids, commitments, deadlines_s, reasons = zip(*rows.refusals, strict=True)
        await connection.execute(
            """
            INSERT INTO node.refusal (request_id, commitment, deadline_s, reason, block_number)
            SELECT *, $5 FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::text[])
            ON CONFLICT (request_id, commitment) DO UPDATE
                SET deadline_s = excluded.deadline_s, reason = excluded.reason,
                    block_number = excluded.block_number, decided_at = now()
            """,
            ids,
            commitments,
            deadlines_s,
            reasons,
            block.number,
        )


def _rows(kind: str, decisions: DecisionRows) -> zip[tuple[Any, ...]]:
    requests = decisions.requests.tolist()
    return zip(
        repeat(kind, len(requests)),
        [one.key.id for one in requests],
        [one.key.commitment for one in requests],
        *(decisions.column(name) for name in ("reason", "worker", "score", "lease_ms")),
        *(decisions.column(name) for name in NUMBER_NAMES),
        strict=True,
    )
