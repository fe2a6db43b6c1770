"""Runs leased jobs on their workers and writes down how each ended."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from indexer.database import CONNECTION_LOST, Fence, Pool, is_unstorable
from inferd.outputs.files import OutputFiles
from inferd.workers import endings
from inferd.workers.endings import Ending, Failure, Written
from inferd.workers.grouping import Grouped
from inferd.workers.job import BadInput, Job, SignedResult, WorkerBusy, WorkerFailed
from inferd.workers.leases import FailureKind, Lease
from inferd.workers.logs import job_log
from inferd.workers.outages import through_outages
from inferd.workers.pool import Worker, WorkerPool

_CLOSE_GRACE_S = 3.0
_MOST_AT_ONCE = 32
"""Endings in one transaction: what is learnt of each takes the event loop some 0.4 ms."""
_UNKNOWN_MODEL_MS = 1_000.0
"""Taken for the time of a model that the worker turns out not to serve."""
_FAILURE_GRACE_S = (
    30.0  # a failure that cannot be written for so long is left to the lease's expiry
)


class Dispatcher:
    """One task per lease: compute with the lease as the time limit, then one transaction, shared
    with the leases that end while the one before is being written.

    A computed result is written as long as the request's deadline has not passed, also when the
    database is away meanwhile or the lease has ended. One that no database takes is a failure.
    """

    def __init__(
        self,
        pool: WorkerPool,
        database: Pool,
        *,
        fence: Fence | None,
        on_change: Callable[[str], None],
        files: OutputFiles | None = None,
    ) -> None:
        """`on_change` is called after each commit that ends a lease or stores a result.

        It is told how: "stored", "not_needed", or a `FailureKind`. Large outputs go to `files`.
        """
        self._pool = pool
        self._database = database
        self._fence = fence
        self._on_change = on_change
        self._files = files
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._computing: set[int] = set()
        self._endings = Grouped(
            self._write_all, most=_MOST_AT_ONCE, apart=lambda ending: ending.lease.key
        )
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
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=_CLOSE_GRACE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await self._endings.close()

    async def _serve(self, lease: Lease, job: Job, worker: Worker) -> None:
        log = job_log(job, lease.worker).bind(lease_id=lease.id)
        ends_s = time.monotonic() + lease.duration_s
        outcome = await self._compute(lease, job, worker, log)
        self._stop_counting(lease)
        ending = Ending(lease, job, outcome, self._prior_ms(lease, job), time.time())
        if isinstance(outcome, SignedResult):
            until_s = max(ends_s, time.monotonic() + job.deadline_s - time.time())
            await self._write_result(ending, outcome, until_s, log)
        else:
            until_s = max(ends_s, time.monotonic() + _FAILURE_GRACE_S)
            await self._write_failure(ending, outcome, until_s, log)

    async def _compute(
        self, lease: Lease, job: Job, worker: Worker, log: Any
    ) -> SignedResult | Failure:
        log.info("job_started", model=job.model, input_bytes=len(job.input), attempt=lease.attempt)
        try:
            async with asyncio.timeout(lease.duration_s) as limit:
                return await worker.compute(job)
        except TimeoutError:
            if limit.expired():
                return Failure(FailureKind.TIMEOUT, f"no result within {lease.duration_s:.1f} s")
            return Failure(FailureKind.FAILED, "the worker's own time limit")
        except BadInput as error:
            return Failure(FailureKind.BAD_INPUT, error.reason)
        except WorkerBusy as error:
            return Failure(FailureKind.BUSY, error.reason)
        except WorkerFailed as error:
            return Failure(FailureKind.FAILED, error.reason)
        except Exception as error:
            # An exception's text may quote the prompt: only its kind and place are shown.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename}:{frame.lineno}"
            log.error("job_crashed", error=type(error).__name__, where=where)
            return Failure(FailureKind.FAILED, f"unexpected {type(error).__name__}")

    async def _write_result(
        self, ending: Ending, result: SignedResult, until_s: float, log: Any
    ) -> None:
        self._pool.record(ending.lease.worker, success=True)
        try:
            written = await self._write(ending, until_s, log)
        except Exception as error:
            if is_unstorable(error):
                # Its text may quote the output.
                failure = Failure(FailureKind.FAILED, "its result cannot be stored")
                ending = replace(ending, outcome=failure)
                await self._write_failure(ending, failure, until_s, log)
                return
            if not isinstance(error, CONNECTION_LOST):
                raise
            log.error("result_lost", error=type(error).__name__)
            return
        log.info(
            "result_stored" if written.stored else "result_not_needed",
            compute_ms=result.compute_ms,
            output_bytes=len(result.output),
            late=not written.in_time,
        )
        self._on_change("stored" if written.stored else "not_needed")

    async def _write_failure(
        self, ending: Ending, failure: Failure, until_s: float, log: Any
    ) -> None:
        if failure.blamed:
            self._pool.record(ending.lease.worker, success=False)
        log.warning("job_failed", kind=str(failure.kind), reason=failure.reason)
        try:
            await self._write(ending, until_s, log)
        except CONNECTION_LOST as error:
            log.error("failure_not_recorded", error=type(error).__name__)
            return
        self._on_change(str(failure.kind))

    async def _write(self, ending: Ending, until_s: float, log: Any) -> Written:
        return await through_outages(lambda: self._endings.do(ending), log=log, until_s=until_s)

    async def _write_all(self, together: Sequence[Ending]) -> list[Written]:
        async with self._database.acquire() as connection, connection.transaction():
            if self._fence is not None:
                await self._fence(connection)
            return await endings.write(connection, together, self._files)

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
