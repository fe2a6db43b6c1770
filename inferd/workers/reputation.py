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
from inferd.workers.endings import Ending, Failure, Written
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
    """A worker that gets no work as the operator, or a check, says."""

    worker: Address
    reason: str
    suspended_by: str
    at: datetime
    distrusted: bool
    """Whether what it has computed is not posted either."""


async def record(
    connection: Connection, endings: Sequence[Ending], written: Sequence[Written]
) -> None:
    """Counts endings, as `endings.write` has just written them in the same transaction.

    A transaction that is repeated, since its answer was lost, counts nothing twice: a result counts
    as it ends its lease or is stored, a failure once for each lease.
    """
    counts: Counter[tuple[Address, ModelId, str]] = Counter()
    failed: list[tuple[Ending, Address, Failure]] = []
    for ending, outcome in zip(endings, written, strict=True):
        if not outcome.anew:
            continue
        failed += [(ending, *lie) for lie in ending.lies]
        if not isinstance(ending.outcome, SignedResult):
            if ending.outcome.blamed:
                failed.append((ending, ending.by, ending.outcome))
        elif outcome.in_time:
            counts[ending.by, ending.job.model_id, "good"] += 1
        elif outcome.stored:
            counts[ending.by, ending.job.model_id, "late"] += 1
    if failed:
        new = await _note_failures(connection, failed)
        for ending, worker, failure in failed:
            if (ending.lease.id, worker) in new:
                counts[worker, ending.job.model_id, _COLUMN_OF[failure.kind]] += 1
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
    """Deletes all but the newest of each worker, and the lies of the last day."""
    await connection.execute(
        """
        DELETE FROM node.worker_failure WHERE (lease_id, worker) IN (
            SELECT lease_id, worker FROM (
                SELECT lease_id, worker, failure, at,
                       row_number() OVER (PARTITION BY worker ORDER BY at DESC) AS number
                FROM node.worker_failure) numbered
            WHERE number > $1
              AND NOT (failure LIKE 'lied: %' AND at > now() - interval '1 day'))
        """,
        KEPT_FAILURES,
    )


async def suspend(
    connection: Connection, worker: Address, reason: str, by: str, *, distrusted: bool = False
) -> None:
    """No new work for it. The newest reason counts; who is `distrusted` once, whose unposted
    results stay unposted, is so until it is given work again."""
    await connection.execute(
        """
        INSERT INTO node.worker_suspension AS s (worker, reason, suspended_by, distrusted)
        VALUES ($1, $2, $3, $4)
        ON CONFLICT (worker) DO UPDATE SET reason = $2, suspended_by = $3, at = now(),
                                           distrusted = s.distrusted OR $4
        """,
        worker,
        plain_text(reason)[:_MAX_REASON_CHARACTERS],
        plain_text(by)[:_MAX_REASON_CHARACTERS],
        distrusted,
    )


async def resume(connection: Connection, worker: Address) -> bool:
    """Whether it was suspended. What was found against it before counts no more towards the next
    suspension."""
    found = await connection.fetchval(
        """
        WITH pardoned AS (
            INSERT INTO node.worker_pardon (worker) VALUES ($1)
            ON CONFLICT (worker) DO UPDATE SET at = clock_timestamp())
        DELETE FROM node.worker_suspension WHERE worker = $1 RETURNING true
        """,
        worker,
    )
    return found is not None


async def lies_of_late(connection: Connection, worker: Address, within_s: float) -> int:
    """Answers that were not what they said, since then and since it was last given work again."""
    found: int = await connection.fetchval(
        """
        SELECT count(*) FROM node.worker_failure f
        WHERE worker = $1 AND failure LIKE 'lied: %' AND at > now() - $2 * interval '1 second'
          AND NOT EXISTS (SELECT FROM node.worker_pardon p WHERE p.worker = $1 AND p.at >= f.at)
        """,
        worker,
        within_s,
    )
    return found


async def count_lie(connection: Connection, worker: Address, model_id: ModelId) -> None:
    """One more, which no lease tells of."""
    await _add(connection, Counter({(worker, model_id, "lies"): 1}))


async def note(
    connection: Connection, worker: Address, model_id: ModelId, request_id: int, failure: Failure
) -> None:
    """A failure outside of a lease, in a check or after the lease's end, if the worker is to blame
    for it. One for each request, under its negated id in the lease's place."""
    if not failure.blamed:
        return
    new = await connection.fetchval(
        """
        INSERT INTO node.worker_failure (lease_id, worker, model_id, request_id, failure)
        VALUES (-$1::bigint, $2, $3, $1, $4)
        ON CONFLICT (lease_id, worker) DO NOTHING RETURNING true
        """,
        request_id,
        worker,
        model_id,
        leases.failure_text(failure.kind, failure.reason),
    )
    if new:
        await _add(connection, Counter({(worker, model_id, _COLUMN_OF[failure.kind]): 1}))


async def suspensions(connection: Connection) -> dict[Address, Suspension]:
    """All of them, by worker."""
    rows = await connection.fetch(
        "SELECT worker, reason, suspended_by, at, distrusted FROM node.worker_suspension"
    )
    return {Address(row["worker"]): Suspension(**row) for row in rows}


async def distrusted(connection: Connection) -> set[Address]:
    """Whose answers count for nothing, until the operator gives them work again."""
    rows = await connection.fetch("SELECT worker FROM node.worker_suspension WHERE distrusted")
    return {Address(row["worker"]) for row in rows}


async def _note_failures(
    connection: Connection, failed: Sequence[tuple[Ending, Address, Failure]]
) -> set[tuple[int, Address]]:
    """The leases among them, with the worker, that had not failed yet."""
    rows: list[Any] = await connection.fetch(
        """
        INSERT INTO node.worker_failure (lease_id, worker, model_id, request_id, failure)
        SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::text[])
        ON CONFLICT (lease_id, worker) DO NOTHING RETURNING lease_id, worker
        """,
        [ending.lease.id for ending, _, _ in failed],
        [worker for _, worker, _ in failed],
        [ending.job.model_id for ending, _, _ in failed],
        [ending.job.request_id for ending, _, _ in failed],
        [leases.failure_text(failure.kind, failure.reason) for _, _, failure in failed],
    )
    return {(row["lease_id"], Address(row["worker"])) for row in rows}


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
