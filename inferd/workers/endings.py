"""How leases ended: results, leases and what is learnt, many in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from indexer.database import Connection
from indexer.types import Address
from inferd.outputs.files import OutputFiles
from inferd.workers import leases, results, service_stats
from inferd.workers.job import Job, SignedResult
from inferd.workers.leases import FailureKind, Held, Lease
from inferd.workers.service_stats import Experience


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result."""

    kind: FailureKind
    reason: str
    retry_after_s: float = 0.0
    """When a busy worker wants to be asked again; 0 = it does not say."""
    waited_s: float = 0.0
    """How long one that ran out of time was waited for: less than its lease where it is elsewhere,
    since it is given two p99s."""
    signed: SignedResult | None = None
    """What a lie was signed with, where that holds: it is evidence."""

    @property
    def blamed(self) -> bool:
        """Whether it counts against the worker."""
        return self.kind in (FailureKind.FAILED, FailureKind.TIMEOUT, FailureKind.LIED)


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of one lease, or of one worker that a quorum's lease asked beside its own."""

    lease: Lease
    job: Job
    outcome: SignedResult | Failure
    prior_ms: float
    """What the back end takes for a request by its own guess."""
    ended_s: float
    """When, in seconds since the epoch."""
    beside: Address | None = None
    """Who was asked beside the lease's worker; then the lease does not end by it."""
    lies: tuple[tuple[Address, Failure], ...] = ()
    """Of workers that were asked within the lease and lied, beside the outcome."""

    @property
    def by(self) -> Address:
        """Whose it is: that of a hedged request may come from another worker than the lease's."""
        if isinstance(self.outcome, SignedResult):
            return self.outcome.worker
        return self.beside or self.lease.worker

    @property
    def has_result(self) -> bool:
        return isinstance(self.outcome, SignedResult)

    @property
    def failure(self) -> str | None:
        """As it is stored; None where there is a result."""
        if isinstance(self.outcome, SignedResult):
            return None
        return leases.failure_text(self.outcome.kind, self.outcome.reason)

    def experience(self, *, stored: bool) -> Experience | None:
        """What it tells of the worker; nothing where its result was not needed or it is not to
        blame.

        Also where a sweep has just expired the lease: the worker was given the time.
        """
        waited_ms = None
        if isinstance(self.outcome, SignedResult):
            if not stored:
                return None
        elif not self.outcome.blamed:
            return None
        elif self.outcome.kind is FailureKind.TIMEOUT:
            waited_ms = self.outcome.waited_s * 1000.0
        return Experience(
            self.by,
            self.job,
            self.outcome if isinstance(self.outcome, SignedResult) else None,
            prior_ms=self.prior_ms,
            at_s=self.ended_s,
            waited_ms=waited_ms,
        )


@dataclass(frozen=True, slots=True)
class Written:
    """What became of an ending."""

    stored: bool
    """Whether it had a result that was wanted."""
    in_time: bool
    """Whether its lease still held."""
    anew: bool
    """Whether it counts: it was not written before, by a commit whose answer was lost."""


_GONE = Held("expired", told=False)
"""A lease that was deleted with its request, long after its time."""


async def write(
    connection: Connection, endings: Sequence[Ending], files: OutputFiles | None = None
) -> list[Written]:
    """In the caller's transaction; `files` is for large outputs. No two may be of one request:
    whether a late result is wanted depends on what the others of its request have left.

    What was written before, by a commit whose answer was lost, is answered as it was then and
    counts no second time. A lease that failed for being late takes its result as well. Each answer
    that a quorum lacks is wanted, also after its lease.
    """
    locked = await leases.lock(connection, [ending.lease.id for ending in endings])
    held = {ending.lease.id: locked.get(ending.lease.id, _GONE) for ending in endings}
    failed = [(one.lease.id, one.by) for one in endings if one.beside and not one.has_result]
    noted = await _noted(connection, failed) if failed else set()
    fresh = [
        one
        for one in endings
        if ((one.lease.id, one.by) not in noted)
        and (one.beside or not held[one.lease.id].repeats(result=one.has_result))
    ]
    new = await results.store(
        connection,
        [
            (
                ending.outcome,
                ending.lease.id,
                ending.job.quorum > 1 or held[ending.lease.id].in_time(result=True),
            )
            for ending in fresh
            if isinstance(ending.outcome, SignedResult)
        ],
        files,
    )
    ended = [(ending.lease.id, ending.failure) for ending in fresh if not ending.beside]
    await leases.end(connection, ended)
    experiences = (ending.experience(stored=ending.lease.key in new) for ending in fresh)
    await service_stats.record(connection, [one for one in experiences if one is not None])
    before = [
        (one.lease, one.by)
        for one in endings
        if one.has_result and (one.beside or held[one.lease.id].told)
    ]
    old = await results.stored_by(connection, before) if before else set()
    counted = {ending.lease.id for ending in fresh if ending.lease.key not in old - new}
    return [
        Written(
            stored=ending.has_result and ending.lease.key in new | old,
            in_time=held[ending.lease.id].in_time(result=ending.has_result),
            anew=ending.lease.id in counted,
        )
        for ending in endings
    ]


async def _noted(
    connection: Connection, failed: Sequence[tuple[int, Address]]
) -> set[tuple[int, Address]]:
    """Those leases, with the worker, of which a failure was counted before."""
    rows = await connection.fetch(
        """
        SELECT lease_id, worker FROM unnest($1::bigint[], $2::bytea[]) AS asked (lease_id, worker)
        JOIN node.worker_failure USING (lease_id, worker)
        """,
        [lease_id for lease_id, _ in failed],
        [worker for _, worker in failed],
    )
    return {(row["lease_id"], Address(row["worker"])) for row in rows}
