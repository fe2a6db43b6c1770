"""Takes leases that a scheduler in another process has granted, and has them computed here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import structlog

from indexer.database import Connection, Fence, Pool
from inferd.node.jobs import load_jobs
from inferd.node.wakeup import Wakeup
from inferd.workers import leases
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job
from inferd.workers.leases import Lease
from inferd.workers.pool import WorkerPool
from inferd.workers.quorum import Company
from scheduler.patience import Patience

_AT_ONCE = 32
"""Leases in one transaction; other dispatchers come in between."""
_NOTHING_TO_BEGIN = "its model is not known here, or the request is gone"

log = structlog.get_logger("node")


class Claims:
    """One dispatcher of several on the same tables: no lease is taken by two of them."""

    def __init__(
        self,
        db: Pool,
        workers: WorkerPool,
        dispatcher: Dispatcher,
        names: Mapping[bytes, str],
        *,
        process: str,
        fence: Fence,
        bell: Wakeup,
        look: Callable[[Connection], Awaitable[None]],
    ) -> None:
        """`process` is the id that is written with what is taken; `bell` is rung by each grant.
        `look` adds to `names` what other processes tell."""
        self._db = db
        self._workers = workers
        self._dispatcher = dispatcher
        self._names = names
        self._process = process
        self._fence = fence
        self._bell = bell
        self._look = look

    async def run(self) -> None:
        """For ever. What the fence raises, and errors of the database, propagate."""
        while True:
            await self._bell.wait()
            while await self.take():
                pass

    async def take(self) -> bool:
        """Once; whether there may be more."""
        usable = self._workers.usable()
        if not usable:
            return False
        async with self._db.acquire() as connection, connection.transaction():
            await self._fence(connection)
            claimed = await leases.claim(connection, self._process, usable, _AT_ONCE)
            ids = [lease.key.id for lease, _, _ in claimed]
            jobs = await load_jobs(connection, ids, self._names) if claimed else {}
            if len(jobs) < len(claimed):
                # Another dispatcher may know a worker's new model sooner.
                await self._look(connection)
                jobs = await load_jobs(connection, ids, self._names)
            taken: list[tuple[Lease, Job, Patience | None, Company | None]] = [
                (lease, jobs[lease.key], expected, company)
                for lease, expected, company in claimed
                if lease.key in jobs
            ]
            # A reorganisation has taken their requests since the round, or nobody names the models.
            lost = [lease.id for lease, _, _ in claimed if lease.key not in jobs]
            if lost:
                await leases.give_back(connection, lost, _NOTHING_TO_BEGIN)
        for lease, job, expected, company in taken:
            self._dispatcher.start(lease, job, expected, company)
        return len(claimed) == _AT_ONCE
