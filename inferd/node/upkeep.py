"""What is periodic: overdue leases, old rows, gauges of the accounts. The hot loop is woken by
blocks instead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection

from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from indexer.database import Fence, Pool
from indexer.types import Address
from inferd.inputs import rows as inputs
from inferd.node import account_metrics, recorded, tenants
from inferd.node.metrics import RESULTS
from inferd.node.retention import Retention
from inferd.outputs.files import OutputFiles
from inferd.outputs.sweep import drop_outputs, sweep_files
from inferd.workers import leases, length_stats, reputation
from scheduler.allowance import Limits

_LEASE_SWEEP_S = 1.0
_RETENTION_S = 600.0
_ACCOUNTS_S = 60.0
_KEEP_ROUNDS = "30 days"
_KEEP_REQUESTERS_DAYS = 30


class Upkeep:
    """Runs the periodic jobs; the first error ends the task, and the supervisor judges it."""

    def __init__(
        self,
        db: Pool,
        fence: Fence,
        *,
        outputs: OutputFiles,
        settled_days: int,
        output_days: int,
        input_hours: int,
        snapshot_hours: int,
        snapshot_bytes: int,
        own_accounts: Callable[[], Collection[Address]],
        limits: Callable[[], Limits],
        on_expiry: Callable[[], None],
    ) -> None:
        self._retention = Retention(db, fence, settled_days=settled_days)
        self._db = db
        self._fence = fence
        self._outputs = outputs
        self._output_days = output_days
        self._input_hours = input_hours
        self._snapshot_hours = snapshot_hours
        self._snapshot_bytes = snapshot_bytes
        self._own_accounts = own_accounts
        self._limits = limits
        self._on_expiry = on_expiry

    async def run(self) -> None:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        scheduler = AsyncIOScheduler(
            timezone="UTC",
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 30},
        )

        def on_error(event: JobExecutionEvent) -> None:
            if not failed.done():
                failed.set_exception(event.exception)

        scheduler.add_listener(on_error, EVENT_JOB_ERROR)
        jobs: tuple[tuple[Callable[[], Awaitable[None]], float], ...] = (
            (self.expire_leases, _LEASE_SWEEP_S),
            (self.forget_old_rounds, _RETENTION_S),
            (self.forget_snapshots, _RETENTION_S),
            (self.forget_requesters, _RETENTION_S),
            (self.forget_failures, _RETENTION_S),
            (self.forget_inputs, _RETENTION_S),
            (self.forget_outputs, _RETENTION_S),
            (self._retention.run, _RETENTION_S),
            (self.measure_accounts, _ACCOUNTS_S),
        )
        for job, every_s in jobs:
            scheduler.add_job(job, "interval", seconds=every_s)
        scheduler.start()
        try:
            await failed
        finally:
            scheduler.shutdown(wait=False)

    async def expire_leases(self) -> None:
        """Takes requests back from workers that took too long."""
        async with self._db.acquire() as connection, connection.transaction():
            await self._fence(connection)
            expired = await leases.expire_overdue(connection)
        if expired:
            RESULTS.labels("expired").inc(len(expired))
            self._on_expiry()

    async def forget_old_rounds(self) -> None:
        """Deletes anchored decisions after the retention time, and rounds left without any.

        All decisions of a transaction go together: what is left of a tree proves nothing.
        """
        async with self._db.acquire() as connection, connection.transaction():
            await self._fence(connection)
            await connection.execute(
                f"""
                WITH old AS (
                    SELECT DISTINCT d.intent_id FROM node.round r
                    JOIN node.decision d ON d.round_id = r.id
                    WHERE r.created_at < now() - interval '{_KEEP_ROUNDS}'
                      AND d.intent_id IS NOT NULL)
                DELETE FROM node.decision WHERE intent_id IN (
                    SELECT intent_id FROM old WHERE NOT EXISTS (
                        SELECT FROM node.decision young
                        JOIN node.round r ON r.id = young.round_id
                        WHERE young.intent_id = old.intent_id
                          AND r.created_at >= now() - interval '{_KEEP_ROUNDS}'))
                """  # noqa: S608 - a constant
            )
            await connection.execute(
                f"""
                DELETE FROM node.round r
                WHERE r.created_at < now() - interval '{_KEEP_ROUNDS}'
                  AND NOT EXISTS (SELECT FROM node.decision WHERE round_id = r.id)
                """  # noqa: S608 - a constant
            )

    async def forget_snapshots(self) -> None:
        """Deletes what rounds saw, after its time."""
        async with self._db.acquire() as connection, connection.transaction():
            await self._fence(connection)
            await recorded.forget(connection, self._snapshot_hours, self._snapshot_bytes)

    async def forget_requesters(self) -> None:
        """Deletes what was learnt of requesters that have not been seen for long, and what they had
        taken once it has come back."""
        async with self._db.acquire() as connection, connection.transaction():
            await self._fence(connection)
            await length_stats.forget(connection, _KEEP_REQUESTERS_DAYS)
            await tenants.forget(connection, self._limits(), time.time())

    async def forget_failures(self) -> None:
        """Keeps the newest failures of each worker."""
        async with self._db.acquire() as connection, connection.transaction():
            await self._fence(connection)
            await reputation.forget_failures(connection)

    async def forget_inputs(self) -> None:
        """Deletes fetched content that nobody waits for."""
        async with self._db.acquire() as connection, connection.transaction():
            await self._fence(connection)
            await inputs.forget(connection, self._input_hours * 3600)

    async def forget_outputs(self) -> None:
        """Deletes outputs after their time, and files that belong to no result."""
        await drop_outputs(self._db, self._fence, after_days=self._output_days)
        await sweep_files(self._db, self._outputs)

    async def measure_accounts(self) -> None:
        """Brings the gauges of fees and gas up to date."""
        async with self._db.acquire() as connection:
            await account_metrics.measure(connection, self._own_accounts())
