"""What a round decided, as rows: copied in, a column at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

from indexer.database import Connection
from inferd.node import recorded as snapshots
from inferd.node.recorded import Recorded
from inferd.policies.journal import Entry
from inferd.settlement.decisions import DECISION_COLUMNS
from scheduler.decision import Plan
from scheduler.experiment import arms_of, commitment_bytes
from scheduler.rows import DecisionRows

_COPIED_AT_ONCE = 500
_COLUMNS = ("round_id", "kind", *DECISION_COLUMNS, "arm")


@dataclass(frozen=True, slots=True)
class RoundRows:
    """What of a plan is written: what was assigned, what was refused, and what is kept for another
    reason than in the round before."""

    parts: tuple[tuple[str, DecisionRows], ...]
    """By the word for it in node.decision."""
    arms: Sequence[int]
    """Of what was assigned: the arm of the experiment that each request is in."""

    def __len__(self) -> int:
        return sum(len(decisions) for _, decisions in self.parts)

    def records(self, round_id: int) -> Iterator[tuple[Any, ...]]:
        """Rows of node.decision, one at a time: as many tuples at once would keep the garbage
        collector busy."""
        return chain.from_iterable(
            _records(round_id, kind, decisions, self.arms if kind == "assign" else None)
            for kind, decisions in self.parts
        )


def round_rows(plan: Plan, entry: Entry | None = None) -> RoundRows:
    """With all columns made; `entry` is what the round goes by. Without one there is one arm."""
    kept = plan.kept
    news = kept if kept.news is None or kept.news.all() else kept.take(kept.news.nonzero()[0])
    number, shares = (0, (1,)) if entry is None else (entry.id, entry.choice.shares)
    rows = RoundRows(
        (("assign", plan.assigned), ("keep", news), ("refuse", plan.refused)),
        arms_of(commitment_bytes(plan.assigned.column("commitment")), number, shares).tolist(),
    )
    for _, decisions in rows.parts:
        for name in DECISION_COLUMNS:
            decisions.column(name)
    return rows


async def write_round(
    connection: Connection,
    plan: Plan,
    rows: RoundRows,
    *,
    policy_id: int,
    fallback: str | None,
    recorded: Recorded | None,
    pending: int,
    duration_us: int,
) -> None:
    """Within the caller's transaction. `policy_id` is the row of node.policy that the round went
    by, `fallback` why it was replaced; `recorded` is None where the round is not recorded."""
    block = plan.block
    round_id: int = await connection.fetchval(
        """
        INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, policy_version,
                                pending, assigned, kept, refused, duration_us, policy_id,
                                fallback, snapshot_digest)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING id
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
        policy_id,
        fallback,
        None if recorded is None else recorded.digest,
    )
    if recorded is not None:
        await snapshots.write(connection, round_id, recorded)
    records = rows.records(round_id)
    # A copy of many rows would not let the event loop do anything else.
    while part := list(islice(records, _COPIED_AT_ONCE)):
        await connection.copy_records_to_table(
            "decision", schema_name="node", columns=_COLUMNS, records=part
        )
    refused = plan.refused.requests.tolist()
    if refused:
        await connection.execute(
            """
            INSERT INTO node.refusal (request_id, commitment, deadline_s, reason, block_number)
            SELECT *, $5 FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::text[])
            ON CONFLICT (request_id, commitment) DO UPDATE
                SET deadline_s = excluded.deadline_s, reason = excluded.reason,
                    block_number = excluded.block_number, decided_at = now()
            """,
            [one.key.id for one in refused],
            [one.key.commitment for one in refused],
            [one.deadline_s for one in refused],
            plan.refused.column("reason"),
            block.number,
        )


def _records(
    round_id: int, kind: str, decisions: DecisionRows, arms: Sequence[int] | None
) -> Iterator[tuple[Any, ...]]:
    return zip(
        repeat(round_id, len(decisions)),
        repeat(kind, len(decisions)),
        *(decisions.column(name) for name in DECISION_COLUMNS),
        repeat(None, len(decisions)) if arms is None else arms,
        strict=True,
    )
