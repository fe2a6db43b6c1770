"""Runs leased jobs on their workers and writes down how each ended."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from indexer.database import CONNECTION_LOST, Connection, Fence, Pool
from inferd.workers import leases, results, service_stats
from inferd.workers.job import BadInput, Job, SignedResult, WorkerBusy, WorkerFailed
from inferd.workers.leases import FailureKind, Lease
from inferd.workers.logs import job_log
from inferd.workers.outages import through_outages
from inferd.workers.pool import Worker, WorkerPool

_CLOSE_GRACE_S = 3.0
_UNKNOWN_MODEL_MS = 1_000.0
"""Taken for the time of a model that the worker turns out not to serve."""
_FAILURE_GRACE_S = (
    30.0  # a failure that cannot be written for so long is left to the lease's expiry
)


class Dispatcher:
    """One task per lease: compute with the lease as the time limit, then one transaction.

    A computed result is written as long as the request's deadline has not passed, also when the
    database is away meanwhile or the lease has ended.
    """

    def __init__(
        self,
        pool: WorkerPool,
        database: Pool,
        *,
        fence: Fence | None,
        on_change: Callable[[str], None],
    ) -> None:
        """`on_change` is called after each commit that ends a lease or stores a result.

        It is told how: "stored", "not_needed", or a `FailureKind`.
        """
        self._pool = pool
        self._database = database
        self._fence = fence
        self._on_change = on_change
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._computing: set[int] = set()
        self._broken: asyncio.Queue[BaseException] = asyncio.Queue()

    @property
    def running(self) -> int:
        """Leases that are being computed or written."""
        return len(self._tasks)

    def start(self, lease: Lease, job: Job) -> None:
        """Begins at once. Call it right after the commit that granted the lease.

        Raises UnknownWorker.
        """
        worker = self._pool.reserve(lease.worker)
        task = asyncio.create_task(self._serve(lease, job, worker))
        self._tasks[lease.id] = task
        self._computing.add(lease.id)
        task.add_done_callback(lambda ended: self._ended(lease, job, ended))

    async def watch(self) -> NoReturn:
        """Raises what no lease can answer for: the fence's refusal, a bug. For the supervisor."""
        raise await self._broken.get()

    async def close(self) -> None:
        """Stops computing, lets writes under way finish for a moment. Unfinished leases stay
        active: they expire, or `abandon_previous` ends them at the next start."""
        for lease_id in self._computing:
            self._tasks[lease_id].cancel()
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks.values(), timeout=_CLOSE_GRACE_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _serve(self, lease: Lease, job: Job, worker: Worker) -> None:
        log = job_log(job, lease.worker).bind(lease_id=lease.id)
        ends_s = time.monotonic() + lease.duration_s
        outcome = await self._compute(lease, job, worker, log)
        self._stop_counting(lease)
        if isinstance(outcome, SignedResult):
            until_s = max(ends_s, time.monotonic() + job.deadline_s - time.time())
            await self._write_result(lease, job, outcome, until_s, log)
        else:
            until_s = max(ends_s, time.monotonic() + _FAILURE_GRACE_S)
            await self._write_failure(lease, job, *outcome, until_s, log)

    async def _compute(
        self, lease: Lease, job: Job, worker: Worker, log: Any
    ) -> SignedResult | tuple[FailureKind, str]:
        log.info("job_started", model=job.model, input_bytes=len(job.input), attempt=lease.attempt)
        try:
            async with asyncio.timeout(lease.duration_s) as limit:
                return await worker.compute(job)
        except TimeoutError:
            if limit.expired():
                return FailureKind.TIMEOUT, f"no result within {lease.duration_s:.1f} s"
            return FailureKind.FAILED, "the worker's own time limit"
        except BadInput as error:
            return FailureKind.BAD_INPUT, error.reason
        except WorkerBusy as error:
            return FailureKind.BUSY, error.reason
        except WorkerFailed as error:
            return FailureKind.FAILED, error.reason
        except Exception as error:
            # An exception's text may quote the prompt: only its kind and place are shown.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename}:{frame.lineno}"
            log.error("job_crashed", error=type(error).__name__, where=where)
            return FailureKind.FAILED, f"unexpected {type(error).__name__}"

    async def _write_result(
        self, lease: Lease, job: Job, result: SignedResult, until_s: float, log: Any
    ) -> None:
        self._pool.record(lease.worker, success=True)
        ended_s = time.time()

        async def write(connection: Connection) -> tuple[bool, bool]:
            stored = await results.store(connection, result, lease)
            in_time = await leases.complete(connection, lease.id)
            if stored:
                await service_stats.record_success(
                    connection,
                    lease.worker,
                    job,
                    result,
                    prior_ms=self._prior_ms(lease, job),
                    at_s=ended_s,
                )
            return stored, in_time

        try:
            stored, in_time = await self._transaction(write, until_s, log)
        except CONNECTION_LOST as error:
            log.error("result_lost", error=type(error).__name__)
            return
        log.info(
            "result_stored" if stored else "result_not_needed",
            compute_ms=result.compute_ms,
            output_bytes=len(result.output),
            late=not in_time,
        )
        self._on_change("stored" if stored else "not_needed")

    async def _write_failure(
        self, lease: Lease, job: Job, kind: FailureKind, reason: str, until_s: float, log: Any
    ) -> None:
        blamed = kind in (FailureKind.FAILED, FailureKind.TIMEOUT)
        waited_ms = lease.duration_s * 1000.0 if kind is FailureKind.TIMEOUT else None
        ended_s = time.time()

        async def write(connection: Connection) -> None:
            await leases.fail(connection, lease.id, leases.failure_text(kind, reason))
            # Also where a sweep has just expired the lease: the worker was given the time.
            if blamed:
                await service_stats.record_failure(
                    connection,
                    lease.worker,
                    job,
                    prior_ms=self._prior_ms(lease, job),
                    at_s=ended_s,
                    waited_ms=waited_ms,
                )

        if blamed:
            self._pool.record(lease.worker, success=False)
        log.warning("job_failed", kind=str(kind), reason=reason)
        try:
            await self._transaction(write, until_s, log)
        except CONNECTION_LOST as error:
            log.error("failure_not_recorded", error=type(error).__name__)
            return
        self._on_change(str(kind))

    async def _transaction(
        self, write: Callable[[Connection], Awaitable[Any]], until_s: float, log: Any
    ) -> Any:
        async def once() -> Any:
            async with self._database.acquire() as connection, connection.transaction():
                if self._fence is not None:
                    await self._fence(connection)
                return await write(connection)

        return await through_outages(once, log=log, until_s=until_s)

    def _prior_ms(self, lease: Lease, job: Job) -> float:
        backend = self._pool.worker(lease.worker).models.get(job.model_id)
        return _UNKNOWN_MODEL_MS if backend is None else backend.prior_ms

    def _stop_counting(self, lease: Lease) -> None:
        """The slot is free once the computation has ended; the write needs none."""
        if lease.id in self._computing:
            self._computing.remove(lease.id)
            self._pool.release(lease.worker)

    def _ended(self, lease: Lease, job: Job, task: asyncio.Task[None]) -> None:
        self._stop_counting(lease)
        del self._tasks[lease.id]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log = job_log(job, lease.worker).bind(lease_id=lease.id)
            log.error("dispatch_broken", error=type(error).__name__)
            self._broken.put_nowait(error)
