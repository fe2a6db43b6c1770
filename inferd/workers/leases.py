"""Leases: a worker's temporary right to compute a request. All functions run in the caller's
transaction.

    active -> done      the result was stored while the lease held
    active -> failed    the worker said so, or ran out of time; `failure` says why
    active -> expired   nobody said anything in time, or the daemon that granted it is gone

No other move exists. A lease's id only grows, and each request has one active lease at most.

Where the process that grants leases is not the one that has them computed, processes that do claim
them, each lease by one of them: a lease stays with its dispatcher until it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from indexer.database import Connection, plain_text
from indexer.types import Address
from inferd.workers.quorum import Company
from scheduler.model import RequestKey
from scheduler.patience import Patience

_MAX_FAILURE_CHARACTERS = 300


class FailureKind(StrEnum):
    """What a lease's `failure` starts with, before ": "."""

    BAD_INPUT = "bad_input"
    """No worker can ever compute the request."""
    BUSY = "busy"
    """The worker had no room after all. It says nothing about request or worker."""
    ABANDONED = "abandoned"
    """The daemon ended. It says nothing about request or worker."""
    DECLINED = "declined"
    """A worker elsewhere says that no worker can compute it, which others may see otherwise; or its
    output is larger than this node takes."""
    TIMEOUT = "timeout"
    FAILED = "failed"
    LIED = "lied"
    """The answer was not what the worker says it is."""

    @property
    def counts(self) -> bool:
        """Whether it counts as an attempt, and against the worker for this request."""
        return self not in (FailureKind.BUSY, FailureKind.ABANDONED)


class AlreadyLeased(Exception):
    """The request has an active lease."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A request for a worker, and for how long."""

    key: RequestKey
    worker: bytes
    attempt: int
    lease_ms: int


@dataclass(frozen=True, slots=True)
class Lease:
    """One row of node.lease."""

    id: int
    key: RequestKey
    worker: Address
    attempt: int
    leased_at: datetime
    expires_at: datetime

    @property
    def duration_s(self) -> float:
        """Seconds it holds from when it was granted, or taken by who has it computed."""
        return (self.expires_at - self.leased_at).total_seconds()


_COLUMNS = "id, request_id, commitment, worker, attempt, leased_at, expires_at"


def failure_text(kind: FailureKind, reason: str) -> str:
    """What is stored in `failure`."""
    return plain_text(f"{kind}: {reason}")[:_MAX_FAILURE_CHARACTERS]


def failure_words(failure: str | None) -> str | None:
    """The reason in a stored failure."""
    return None if failure is None else failure.partition(": ")[2]


def failure_kind(failure: str | None) -> FailureKind:
    """The kind of a stored failure; a lease that expired without one ran out of time."""
    if failure is None:
        return FailureKind.TIMEOUT
    return FailureKind(failure.partition(": ")[0])


async def grant_all(connection: Connection, grants: Sequence[Grant]) -> list[Lease]:
    """Gives each request to a worker. Raises AlreadyLeased if one of them has an active
    lease; what the others were given is then to be rolled back."""
    if not grants:
        return []
    rows = await connection.fetch(
        f"""
        INSERT INTO node.lease
            (request_id, commitment, worker, attempt, state, leased_at, expires_at)
        SELECT request_id, commitment, worker, attempt, 'active', moment,
               moment + lease_ms * interval '1 millisecond'
        FROM clock_timestamp() AS moment,
             unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::int[], $5::bigint[])
             AS grants (request_id, commitment, worker, attempt, lease_ms)
        ON CONFLICT (request_id, commitment) WHERE state = 'active' DO NOTHING
        RETURNING {_COLUMNS}
        """,  # noqa: S608
        [one.key.id for one in grants],
        [one.key.commitment for one in grants],
        [one.worker for one in grants],
        [one.attempt for one in grants],
        [one.lease_ms for one in grants],
    )
    if len(rows) < len(grants):
        held = {one.key.id for one in grants} - {row["request_id"] for row in rows}
        raise AlreadyLeased(f"request {min(held, default=0)}")
    return [_lease(row) for row in rows]


async def expect(
    connection: Connection, expected: Sequence[tuple[int, Patience | None, Company | None]]
) -> None:
    """Writes with these leases what their round reckoned with, and who is to be asked beside, for
    who claims them."""
    await connection.execute(
        """
        UPDATE node.lease l
        SET p90_ms = told.p90_ms, p99_ms = told.p99_ms, inclusion_s = told.inclusion_s,
            beside = told.beside, excluded = told.excluded
        FROM unnest($1::bigint[], $2::float8[], $3::float8[], $4::float8[], $5::smallint[],
                    $6::bytea[])
            AS told (id, p90_ms, p99_ms, inclusion_s, beside, excluded)
        WHERE l.id = told.id
        """,
        [lease_id for lease_id, _, _ in expected],
        [patience and patience.p90_ms for _, patience, _ in expected],
        [patience and patience.p99_ms for _, patience, _ in expected],
        [patience and patience.inclusion_s for _, patience, _ in expected],
        [company and company.number for _, _, company in expected],
        [company and b"".join(sorted(company.excluded)) for _, _, company in expected],
    )


async def claim(
    connection: Connection, dispatcher: str, workers: Sequence[bytes], limit: int
) -> list[tuple[Lease, Patience | None, Company | None]]:
    """Takes up to so many active leases of these workers that nobody has taken, oldest first, each
    with what its round reckoned with and who is to be asked beside; they count from now, so that
    what is taken late is not computed beyond its time. What another one is just taking is passed
    over."""
    rows = await connection.fetch(
        """
        UPDATE node.lease SET dispatcher = $1
        WHERE id IN (SELECT id FROM node.lease
                     WHERE state = 'active' AND dispatcher IS NULL AND worker = ANY($2::bytea[])
                       AND expires_at > clock_timestamp()
                     ORDER BY id LIMIT $3
                     FOR UPDATE SKIP LOCKED)
        RETURNING id, request_id, commitment, worker, attempt, expires_at,
                  clock_timestamp() AS leased_at, p90_ms, p99_ms, inclusion_s, beside, excluded
        """,
        dispatcher,
        workers,
        limit,
    )
    claimed = [
        (
            _lease(row),
            None
            if row["p90_ms"] is None
            else Patience(row["p90_ms"], row["p99_ms"], row["inclusion_s"]),
            None if row["beside"] is None else Company(row["beside"], _addresses(row["excluded"])),
        )
        for row in rows
    ]
    return sorted(claimed, key=lambda one: one[0].id)


@dataclass(frozen=True, slots=True)
class Held:
    """A lease as its worker's word finds it: a result or a failure, or first a failure for being
    late and then the result."""

    state: str
    told: bool
    """Whether a word of it was written before."""

    def in_time(self, *, result: bool) -> bool:
        """Whether it held until that word came, now or when it was written before."""
        return self.state in ("active", "done" if result else "failed")

    def repeats(self, *, result: bool) -> bool:
        """Whether that word was written before: the commit was not answered, and its writer comes
        again. A result that is late may have been, which only the stored results can tell."""
        return self.told and not (result and self.state != "done")


async def lock(connection: Connection, ids: Sequence[int]) -> dict[int, Held]:
    """These leases by their ids; all of them stay as they are until the transaction's end."""
    rows = await connection.fetch(
        "SELECT id, state, told FROM node.lease WHERE id = ANY($1::bigint[])"
        " ORDER BY id FOR UPDATE",
        ids,
    )
    return {row["id"]: Held(row["state"], row["told"]) for row in rows}


async def end(connection: Connection, endings: Sequence[tuple[int, str | None]]) -> set[int]:
    """Writes what workers said of these leases: those that are active end as done, or as failed
    where there is a failure, made by `failure_text`; the others stay as they ended.

    Returns those that were active.
    """
    if not endings:
        return set()
    rows = await connection.fetch(
        """
        UPDATE node.lease l
        SET state = CASE WHEN ended.failure IS NULL THEN 'done' ELSE 'failed' END,
            failure = ended.failure, ended_at = clock_timestamp(), told = true
        FROM unnest($1::bigint[], $2::text[]) AS ended (id, failure)
        WHERE l.id = ended.id AND l.state = 'active' RETURNING l.id
        """,
        [lease_id for lease_id, _ in endings],
        [failure for _, failure in endings],
    )
    active = {row["id"] for row in rows}
    if len(active) < len(endings):
        await connection.execute(
            "UPDATE node.lease SET told = true WHERE id = ANY($1::bigint[]) AND NOT told",
            [lease_id for lease_id, _ in endings],
        )
    return active


async def expire_overdue(connection: Connection) -> list[Lease]:
    """Ends the active leases whose time is up, and returns them.

    Those whose end is just being written are passed over: it would be waited for, and in another
    order than the writer's.
    """
    rows = await connection.fetch(
        f"""
        UPDATE node.lease SET state = 'expired', ended_at = clock_timestamp()
        WHERE id IN (SELECT id FROM node.lease
                     WHERE state = 'active' AND expires_at <= clock_timestamp()
                     FOR UPDATE SKIP LOCKED)
        RETURNING {_COLUMNS}
        """  # noqa: S608
    )
    return sorted(map(_lease, rows), key=lambda lease: lease.id)


async def abandon_previous(connection: Connection) -> list[Lease]:
    """Ends every active lease, as none of them is computed any more, and returns them.

    For a daemon that has just become the leader, before it grants its first.
    """
    rows = await connection.fetch(
        f"""
        UPDATE node.lease SET state = 'expired', ended_at = clock_timestamp(), failure = $1
        WHERE state = 'active'
        RETURNING {_COLUMNS}
        """,  # noqa: S608
        failure_text(FailureKind.ABANDONED, "the daemon that granted it ended"),
    )
    return sorted(map(_lease, rows), key=lambda lease: lease.id)


async def dispatchers(connection: Connection) -> set[str]:
    """Those that have taken leases which are active."""
    rows = await connection.fetch(
        "SELECT DISTINCT dispatcher FROM node.lease"
        " WHERE state = 'active' AND dispatcher IS NOT NULL"
    )
    return {row["dispatcher"] for row in rows}


async def abandon_claimed(connection: Connection, gone: Sequence[str]) -> list[Lease]:
    """Ends the active leases that these dispatchers have taken, and returns them."""
    if not gone:
        return []
    rows = await connection.fetch(
        f"""
        UPDATE node.lease SET state = 'expired', ended_at = clock_timestamp(), failure = $1
        WHERE state = 'active' AND dispatcher = ANY($2::text[])
        RETURNING {_COLUMNS}
        """,  # noqa: S608
        failure_text(FailureKind.ABANDONED, "the process that dispatched it ended"),
        gone,
    )
    return sorted(map(_lease, rows), key=lambda lease: lease.id)


async def abandon_unclaimed(connection: Connection, after_s: float) -> list[Lease]:
    """Ends the active leases that no dispatcher has taken for so long, and returns them: their
    workers are out of reach since the round, or no process dispatches."""
    rows = await connection.fetch(
        f"""
        UPDATE node.lease SET state = 'expired', ended_at = clock_timestamp(), failure = $1
        WHERE id IN (SELECT id FROM node.lease
                     WHERE state = 'active' AND dispatcher IS NULL
                       AND leased_at < clock_timestamp() - $2 * interval '1 second'
                     FOR UPDATE SKIP LOCKED)
        RETURNING {_COLUMNS}
        """,  # noqa: S608
        failure_text(FailureKind.ABANDONED, "no process took it"),
        after_s,
    )
    return sorted(map(_lease, rows), key=lambda lease: lease.id)


async def give_back(connection: Connection, ids: Sequence[int], why: str) -> None:
    """Ends leases that were taken, and of which nothing can be begun."""
    await connection.execute(
        "UPDATE node.lease SET state = 'expired', ended_at = clock_timestamp(), failure = $1"
        " WHERE id = ANY($2::bigint[]) AND state = 'active'",
        failure_text(FailureKind.ABANDONED, why),
        ids,
    )


async def count_active(connection: Connection) -> dict[bytes, int]:
    """Active leases by worker."""
    rows = await connection.fetch(
        "SELECT worker, count(*) AS leases FROM node.lease WHERE state = 'active' GROUP BY worker"
    )
    return {row["worker"]: row["leases"] for row in rows}


async def active(connection: Connection) -> list[Lease]:
    """All active leases, oldest first, overdue ones included."""
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM node.lease WHERE state = 'active' ORDER BY id"  # noqa: S608
    )
    return [_lease(row) for row in rows]


def _addresses(packed: bytes) -> frozenset[Address]:
    return frozenset(Address(packed[start : start + 20]) for start in range(0, len(packed), 20))


def _lease(row: Any) -> Lease:
    return Lease(
        id=row["id"],
        key=RequestKey(row["request_id"], row["commitment"]),
        worker=Address(row["worker"]),
        attempt=row["attempt"],
        leased_at=row["leased_at"],
        expires_at=row["expires_at"],
    )
