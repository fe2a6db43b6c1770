"""How leases ended: results, leases and what is learnt, many in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from indexer.database import Connection
from inferd.outputs.files import OutputFiles
from inferd.workers import leases, results, service_stats
from inferd.workers.job import Job, SignedResult
from inferd.workers.leases import FailureKind, Lease
from inferd.workers.service_stats import Experience


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result."""

    kind: FailureKind
    reason: str

    @property
    def blamed(self) -> bool:
        """Whether it counts against the worker."""
        return self.kind in (FailureKind.FAILED, FailureKind.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of one lease."""

    lease: Lease
    job: Job
    outcome: SignedResult | Failure
    prior_ms: float
    """What the back end takes for a request by its own guess."""
    ended_s: float
    """When, in seconds since the epoch."""

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
            waited_ms = self.lease.duration_s * 1000.0
        return Experience(
            self.lease.worker,
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


async def write(
    connection: Connection, endings: Sequence[Ending], files: OutputFiles | None = None
) -> list[Written]:
    """In the caller's transaction; `files` is for large outputs. No two may be of one request:
    whether a late result is wanted depends on what the others of its request have left."""
    active = await leases.lock_active(connection, [ending.lease.id for ending in endings])
    given = [
        (ending.outcome, ending.lease.id, ending.lease.id in active)
        for ending in endings
        if isinstance(ending.outcome, SignedResult)
    ]
    stored = await results.store(connection, given, files)
    await leases.end(connection, [(ending.lease.id, ending.failure) for ending in endings])
    experiences = (ending.experience(stored=ending.lease.key in stored) for ending in endings)
    await service_stats.record(connection, [one for one in experiences if one is not None])
    return [
        Written(
            isinstance(ending.outcome, SignedResult) and ending.lease.key in stored,
            ending.lease.id in active,
        )
        for ending in endings
    ]
