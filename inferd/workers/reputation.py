"""What each worker's leases came to, counted for each model and kept for good; and suspensions.

Estimates of speed and reliability (`service_stats`) forget, so that a worker can change. These
counts do not: they are what an operator looks at, and what explains the estimates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from indexer.database import Connection, plain_text
from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.workers import leases
from inferd.workers.endings import Ending, Written
from inferd.workers.job import SignedResult
from inferd.workers.leases import FailureKind

KEPT_FAILURES = 50
"""Of each worker, the newest."""
_MAX_REASON_CHARACTERS = 300
_COLUMN_OF = {
    FailureKind.FAILED: "failed",
    FailureKind.TIMEOUT: "timeouts",
    FailureKind.LIED: "lies",
}
_COLUMNS = ("good", "late", "failed", "timeouts", "lies")


@dataclass(frozen=True, slots=True)
class Reputation:
    """One worker's leases of one model."""

    worker: Address
    model_id: ModelId
    good: int
    late: int
    failed: int
    timeouts: int
    lies: int
    first_at: datetime


@dataclass(frozen=True, slots=True)
class PastFailure:
    """One that counted against a worker."""

    model_id: ModelId
    request_id: int
    failure: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Suspension:
    """A worker that gets no work as the operator says."""

    worker: Address
    reason: str
    suspended_by: str
    at: datetime


async def record(
    connection: Connection, endings: Sequence[Ending], written: Sequence[Written]
) -> None:
    """Counts endings, as `endings.write` has just written them in the same transaction.

    A transaction that is repeated, since its answer was lost, counts nothing twice: a result counts
    as it ends its lease or is stored, a failure once for each lease.
    """
    counts: Counter[tuple[Address, ModelId, str]] = Counter()
    failed: list[Ending] = []
    for ending, outcome in zip(endings, written, strict=True):
        if not outcome.anew:
            continue
        if not isinstance(ending.outcome, SignedResult):
            if ending.outcome.blamed:
                failed.append(ending)
        elif outcome.in_time:
            counts[ending.by, ending.job.model_id, "good"] += 1
        elif outcome.stored:
            counts[ending.by, ending.job.model_id, "late"] += 1
    if failed:
        new = await _note_failures(connection, failed)
        for ending in failed:
            if ending.lease.id in new and not isinstance(ending.outcome, SignedResult):
                column = _COLUMN_OF[ending.outcome.kind]
                counts[ending.by, ending.job.model_id, column] += 1
    if counts:
        await _add(connection, counts)


async def load(connection: Connection, worker: Address | None = None) -> list[Reputation]:
    """Of one worker, or of all."""
    rows = await connection.fetch(
        """
        SELECT worker, model_id, good, late, failed, timeouts, lies, first_at FROM node.reputation
        WHERE $1::bytea IS NULL OR worker = $1 ORDER BY worker, model_id
        """,
        worker,
    )
    return [Reputation(**row) for row in rows]


async def last_failures(connection: Connection, worker: Address, limit: int) -> list[PastFailure]:
    """The newest first."""
    rows = await connection.fetch(
        "SELECT model_id, request_id, failure, at FROM node.worker_failure WHERE worker = $1"
        " ORDER BY at DESC, lease_id DESC LIMIT $2",
        worker,
        limit,
    )
    return [PastFailure(**row) for row in rows]


async def forget_failures(connection: Connection) -> None:
    """Deletes all but the newest of each worker."""
    await connection.execute(
        """
        DELETE FROM node.worker_failure WHERE lease_id IN (
            SELECT lease_id FROM (
                SELECT lease_id, row_number() OVER (PARTITION BY worker ORDER BY at DESC) AS number
                FROM node.worker_failure) numbered
            WHERE number > $1)
        """,
        KEPT_FAILURES,
    )


async def suspend(connection: Connection, worker: Address, reason: str, by: str) -> None:
    """No new work for it. The newest reason counts."""
    await connection.execute(
        """
        INSERT INTO node.worker_suspension (worker, reason, suspended_by) VALUES ($1, $2, $3)
        ON CONFLICT (worker) DO UPDATE SET reason = $2, suspended_by = $3, at = now()
        """,
        worker,
        plain_text(reason)[:_MAX_REASON_CHARACTERS],
        plain_text(by)[:_MAX_REASON_CHARACTERS],
    )


async def resume(connection: Connection, worker: Address) -> bool:
    """Whether it was suspended."""
    found = await connection.fetchval(
        "DELETE FROM node.worker_suspension WHERE worker = $1 RETURNING true", worker
    )
    return found is not None


async def suspensions(connection: Connection) -> dict[Address, Suspension]:
    """All of them, by worker."""
    rows = await connection.fetch(
        "SELECT worker, reason, suspended_by, at FROM node.worker_suspension"
    )
    return {Address(row["worker"]): Suspension(**row) for row in rows}


async def _note_failures(connection: Connection, failed: Sequence[Ending]) -> set[int]:
    """The leases among them that had not failed yet."""
    rows: list[Any] = await connection.fetch(
        """
        INSERT INTO node.worker_failure (lease_id, worker, model_id, request_id, failure)
        SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::text[])
        ON CONFLICT (lease_id) DO NOTHING RETURNING lease_id
        """,
        [one.lease.id for one in failed],
        [one.by for one in failed],
        [one.job.model_id for one in failed],
        [one.job.request_id for one in failed],
        [one.failure or leases.failure_text(FailureKind.FAILED, "") for one in failed],
    )
    return {row["lease_id"] for row in rows}


async def _add(connection: Connection, counts: Counter[tuple[Address, ModelId, str]]) -> None:
    # In one order for all, so that no two transactions wait for each other.
    keys = sorted({(worker, model) for worker, model, _ in counts})
    await connection.execute(
        """
        INSERT INTO node.reputation AS r (worker, model_id, good, late, failed, timeouts, lies)
        SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[],
                             $6::bigint[], $7::bigint[])
        ON CONFLICT (worker, model_id) DO UPDATE SET
            good = r.good + excluded.good, late = r.late + excluded.late,
            failed = r.failed + excluded.failed, timeouts = r.timeouts + excluded.timeouts,
            lies = r.lies + excluded.lies, updated_at = now()
        """,
        [worker for worker, _ in keys],
        [model for _, model in keys],
        *([counts[*key, column] for key in keys] for column in _COLUMNS),
    )
