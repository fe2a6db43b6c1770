"""What all checks in the background have at hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from indexer.database import Connection, Fence, Pool
from indexer.types import Address
from inferd.outputs.files import OutputFiles
from inferd.protocol.request import ModelId
from inferd.workers import reputation
from inferd.workers.attempts import Outcome as Asked
from inferd.workers.checks import counts
from inferd.workers.checks.counts import Outcome
from inferd.workers.checks.evidence import Kind
from inferd.workers.checks.inspection import Inspection
from inferd.workers.endings import Failure
from inferd.workers.job import Job
from inferd.workers.leases import FailureKind
from inferd.workers.pool import WorkerPool

LEAST_WAIT_S, LONGEST_WAIT_S = 2.0, 300.0
"""For one worker's answer."""


class Ask(Protocol):
    """Asks one worker beside all leases: `Dispatcher.asked`."""

    def __call__(
        self, address: Address, job: Job, limit_s: float, /
    ) -> AbstractAsyncContextManager[Asked]: ...


@dataclass(frozen=True, slots=True)
class Desk:
    """One session's."""

    pool: WorkerPool
    database: Pool
    inspection: Inspection
    ask: Ask
    fence: Fence | None
    files: OutputFiles | None
    on_change: Callable[[], None]
    """Called when a result may be posted, or a request be computed anew."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Two checks of the same workers would wait for each other's rows."""

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Connection]:
        """A transaction of the leader's, one at a time."""
        async with self._turn, self.database.acquire() as connection, connection.transaction():
            if self.fence is not None:
                await self.fence(connection)
            yield connection

    async def count(
        self,
        connection: Connection,
        worker: Address,
        model: ModelId,
        kind: Kind,
        outcome: Outcome,
    ) -> None:
        """One check more that ended so."""
        await counts.count(connection, worker, model, kind, outcome)
        self.inspection.on_outcome(kind, outcome)

    async def note(
        self, connection: Connection, job: Job, worker: Address, failure: Failure
    ) -> None:
        """That a worker gave no answer."""
        await reputation.note(connection, worker, job.model_id, job.request_id, failure)
        if failure.kind is FailureKind.LIED:
            await self.inspection.look_at_lie(connection, job, worker, failure)
