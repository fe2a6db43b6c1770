"""Runs leased jobs on their workers and writes down how each ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from indexer.database import CONNECTION_LOST, Fence, Pool, is_unstorable
from indexer.types import Address
from inferd.outputs.files import OutputFiles, OutputUnwritable
from inferd.outputs.unwritten import Unwritten
from inferd.workers import endings, quorum_minority, reputation
from inferd.workers.attempts import Attempts, Outcome
from inferd.workers.checks.inspection import Inspection
from inferd.workers.endings import Ending, Failure, Written
from inferd.workers.grouping import Grouped
from inferd.workers.job import Job, SignedResult, WorkerLied
from inferd.workers.late import LateAnswers
from inferd.workers.leases import FailureKind, Lease
from inferd.workers.logs import job_log
from inferd.workers.outages import through_outages
from inferd.workers.pool import Elsewhere, UnknownWorker, Worker, WorkerPool
from inferd.workers.quorum import Company
from inferd.workers.retries import RetryBudget
from scheduler.model import RequestKey
from scheduler.patience import Patience

_CLOSE_GRACE_S = 3.0
_MOST_AT_ONCE = 32
"""Endings in one transaction: what is learnt of each takes the event loop some 0.4 ms."""
_MOST_DROPS = 1_000
"""Answers that workers are being told of at a time; beyond, they drop them after their own time."""
_UNKNOWN_MODEL_MS = 1_000.0
"""Taken for the time of a model that the worker turns out not to serve."""
_FAILURE_GRACE_S = (
    30.0  # a failure that cannot be written for so long is left to the lease's expiry
)


class Dispatcher:
    """One task per lease: compute with the lease as the time limit, then one transaction, shared
    with the leases that end while the one before is being written.

    A computed result is written as long as the request's deadline has not passed, also when the
    database is away meanwhile, its disk is full or the lease has ended. One that no database takes
    is a failure; so is one for which neither disk nor memory has room, and it costs no attempt.
    A worker elsewhere that is late is asked on, since its answer is still of use where no other
    worker gives one; it is told when its answer is stored, or nobody waits for it any more.

    What others answer for a quorum is written as it comes, the first worker's when all have ended:
    as long as one of them computes, the lease holds, and its request goes to nobody else.
    """

    def __init__(
        self,
        pool: WorkerPool,
        database: Pool,
        *,
        fence: Fence | None,
        on_change: Callable[[str], None],
        budget: RetryBudget | None = None,
        proved: Callable[[], float] = lambda: 1.0,
        files: OutputFiles | None = None,
        inspection: Inspection | None = None,
    ) -> None:
        """`on_change` is called after each commit that ends a lease or stores a result.

        It is told how: "stored", "not_needed", or a `FailureKind`. `budget` is shared with whoever
        else asks workers again; `proved` is how surely a worker that is not ours must succeed to be
        asked as a second one. Large outputs go to `files`. `inspection` sees all that is written.
        """
        self._pool = pool
        self._database = database
        self._fence = fence
        self._on_change = on_change
        self._attempts = Attempts(
            pool, budget or RetryBudget(), proved=proved, drop=self._drop, on_lie=self._note_lie
        )
        self._files = files
        self.unwritten = Unwritten()
        self._inspection = inspection
        self._lies: dict[tuple[RequestKey, int], list[tuple[Address, Failure]]] = {}
        """Of leases under way, by request and attempt."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._computing: dict[int, Address] = {}
        """The workers of leases, by the leases' ids."""
        self._company: set[asyncio.Task[None]] = set()
        self._computing_beside: set[tuple[int, Address]] = set()
        self._late = LateAnswers(self._came_late, self._lied_late)
        self._drops: set[asyncio.Task[None]] = set()
        self._endings = Grouped(
            self._write_all, most=_MOST_AT_ONCE, apart=lambda ending: ending.lease.key
        )
        self._broken: asyncio.Queue[BaseException] = asyncio.Queue()

    @property
    def running(self) -> int:
        """Leases that are being computed or written."""
        return len(self._tasks)

    @property
    def leased(self) -> Mapping[Address, int]:
        """What of a worker's computations are those of leases granted to it."""
        return Counter(self._computing.values())

    @property
    def waiting_late(self) -> int:
        """Answers that are waited for though their lease has ended."""
        return self._late.waiting

    def start(
        self,
        lease: Lease,
        job: Job,
        expected: Patience | None = None,
        company: Company | None = None,
    ) -> None:
        """Begins at once. Call it right after the commit that granted the lease; `expected` is what
        its round reckoned with, `company` who else is to be asked.

        A worker that has left since the round fails the lease, at no cost to itself.
        """
        job = replace(job, attempt=lease.attempt)
        try:
            worker = self._pool.reserve(lease.worker)
        except UnknownWorker:
            serving = self._serve_nobody(lease, job)
        else:
            self._computing[lease.id] = lease.worker
            serving = self._serve(lease, job, worker, expected, company)
        task = asyncio.create_task(serving)
        self._tasks[lease.id] = task
        task.add_done_callback(lambda ended: self._ended(lease, job, ended))

    @contextlib.asynccontextmanager
    async def asked(self, address: Address, job: Job, limit_s: float) -> AsyncIterator[Outcome]:
        """What comes of asking this worker beside all leases, for a check: the pool learns from it
        as from any. After the block, if it ends well, the worker is told that nobody waits for its
        answer. Raises UnknownWorker."""
        worker = self._pool.reserve(address)
        try:
            outcome = await self._attempts.alone(worker, job, limit_s, job_log(job, address))
        finally:
            self._pool.release(address)
            self._lies.pop((job.key, job.attempt), None)
        yield outcome
        self._drop(worker, job)

    async def watch(self) -> NoReturn:
        """Raises what no lease can answer for: the fence's refusal, a bug. For the supervisor."""
        raise await self._broken.get()

    async def close(self) -> None:
        """Stops computing, lets writes under way finish for a moment. Unfinished leases stay
        active: they expire, or `abandon_previous` ends them at the next start. Workers elsewhere
        are not told: whoever works next asks the same of them, and finds it computed."""
        for lease_id in self._computing:
            self._tasks[lease_id].cancel()
        for beside in self._company:
            beside.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=_CLOSE_GRACE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        # Not before: a lease that runs out at its end would be waited for without end.
        await self._late.close()
        for drop in self._drops:
            drop.cancel()
        if self._drops:
            await asyncio.wait(self._drops)
        await self._endings.close()

    async def _serve(
        self,
        lease: Lease,
        job: Job,
        worker: Worker,
        expected: Patience | None,
        company: Company | None,
    ) -> None:
        log = job_log(job, lease.worker).bind(lease_id=lease.id)
        ends_s = time.monotonic() + lease.duration_s
        asked = [] if company is None else self._ask_beside(lease, job, expected, company)
        outcome = await self._attempts.compute(lease, job, worker, expected, log)
        self._stop_counting(lease)
        by = outcome.worker if isinstance(outcome, SignedResult) else lease.worker
        ending = Ending(
            lease,
            job,
            outcome,
            self._prior_ms(job, by),
            time.time(),
            lies=self._other_lies(job, outcome),
        )
        if asked:
            await asyncio.wait(asked)
        if isinstance(outcome, SignedResult):
            until_s = max(ends_s, time.monotonic() + job.deadline_s - time.time())
            await self._write_result(ending, outcome, until_s, log)
            return
        if outcome.kind is FailureKind.TIMEOUT and isinstance(worker, Elsewhere):
            self._late.wait_for(lease, job, worker)
        until_s = max(ends_s, time.monotonic() + _FAILURE_GRACE_S)
        await self._write_failure(ending, outcome, until_s, log)

    def _ask_beside(
        self, lease: Lease, job: Job, expected: Patience | None, company: Company
    ) -> list[asyncio.Task[None]]:
        """Not before all leases of a round have their slots: a task begins after that."""
        tasks = []
        for address in self._attempts.company(lease, job, expected, company):
            worker = self._pool.reserve(address)
            self._computing_beside.add((lease.id, address))
            task = asyncio.create_task(self._serve_beside(lease, job, worker))
            self._company.add(task)
            task.add_done_callback(partial(self._ended_beside, lease, address))
            tasks.append(task)
        return tasks

    async def _serve_beside(self, lease: Lease, job: Job, worker: Worker) -> None:
        log = job_log(job, worker.address).bind(lease_id=lease.id)
        log.info("job_started_beside", first="0x" + lease.worker.hex())
        outcome = await self._attempts.beside(lease, job, worker, log)
        self._stop_counting_beside(lease, worker.address)
        by = worker.address
        ending = Ending(lease, job, outcome, self._prior_ms(job, by), time.time(), beside=by)
        until_s = time.monotonic() + job.deadline_s - time.time()
        if isinstance(outcome, SignedResult):
            await self._write_result(ending, outcome, until_s, log)
        else:
            until_s = min(until_s, time.monotonic() + _FAILURE_GRACE_S)
            await self._write_failure(ending, outcome, until_s, log)

    def _ended_beside(self, lease: Lease, worker: Address, task: asyncio.Task[None]) -> None:
        self._stop_counting_beside(lease, worker)
        self._company.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._broken.put_nowait(error)

    def _stop_counting_beside(self, lease: Lease, worker: Address) -> None:
        if (lease.id, worker) in self._computing_beside:
            self._computing_beside.remove((lease.id, worker))
            self._pool.release(worker)

    async def _serve_nobody(self, lease: Lease, job: Job) -> None:
        log = job_log(job, lease.worker).bind(lease_id=lease.id)
        failure = Failure(FailureKind.BUSY, "the worker has left the pool")
        ending = Ending(lease, job, failure, _UNKNOWN_MODEL_MS, time.time())
        await self._write_failure(ending, failure, time.monotonic() + _FAILURE_GRACE_S, log)

    async def _came_late(self, lease: Lease, job: Job, result: SignedResult) -> None:
        log = job_log(job, result.worker).bind(lease_id=lease.id)
        ending = Ending(lease, job, result, self._prior_ms(job, result.worker), time.time())
        until_s = time.monotonic() + job.deadline_s - time.time()
        try:
            await self._write_result(ending, result, until_s, log)
        except Exception as error:
            log.error("dispatch_broken", error=type(error).__name__)
            self._broken.put_nowait(error)

    async def _lied_late(self, lease: Lease, job: Job, lie: WorkerLied) -> None:
        """The lease has failed already: what it tells of the worker is written by itself."""
        log = job_log(job, lease.worker).bind(lease_id=lease.id)
        log.warning("late_answer_lied", reason=lie.reason)
        self._pool.failed(lease.worker)
        failure = Failure(FailureKind.LIED, lie.reason, signed=lie.signed)
        try:
            async with self._database.acquire() as connection, connection.transaction():
                if self._fence is not None:
                    await self._fence(connection)
                await reputation.note(
                    connection, lease.worker, job.model_id, job.request_id, failure
                )
                if self._inspection is not None:
                    await self._inspection.look_at_lie(connection, job, lease.worker, failure)
        except CONNECTION_LOST as error:
            log.error("failure_not_recorded", error=type(error).__name__)
        except Exception as error:
            log.error("dispatch_broken", error=type(error).__name__)
            self._broken.put_nowait(error)

    async def _write_result(
        self, ending: Ending, result: SignedResult, until_s: float, log: Any
    ) -> None:
        try:
            written = await self.unwritten.keep_trying(
                lambda: self._write(ending, until_s, log),
                size_bytes=len(result.output),
                until_s=until_s,
                log=log,
            )
        except Exception as error:
            if is_unstorable(error):
                # Its text may quote the output.
                failure = Failure(FailureKind.FAILED, "its result cannot be stored")
                ending = replace(ending, outcome=failure)
                self._pool.failed(result.worker)
                await self._write_failure(ending, failure, until_s, log)
                return
            if isinstance(error, OutputUnwritable):
                reason = f"its output cannot be written: {error.reason}"
                failure = Failure(FailureKind.BUSY, reason)
                await self._write_failure(replace(ending, outcome=failure), failure, until_s, log)
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
        if result.worker in self._pool:
            self._drop(self._pool.worker(result.worker), ending.job)
        if written.stored and ending.job.quorum == 1:
            for worker, job in self._late.give_up(ending.lease):
                self._drop(worker, job)
        self._on_change("stored" if written.stored else "not_needed")

    async def _write_failure(
        self, ending: Ending, failure: Failure, until_s: float, log: Any
    ) -> None:
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
            written = await endings.write(connection, together, self._files)
            await reputation.record(connection, together, written)
            if self._inspection is not None:
                await self._inspection.look(connection, together, written)
                await quorum_minority.look(
                    connection, together, written, self._inspection, self._files
                )
            return written

    def _note_lie(self, job: Job, worker: Address, failure: Failure) -> None:
        self._lies.setdefault((job.key, job.attempt), []).append((worker, failure))

    def _other_lies(self, job: Job, outcome: Outcome) -> tuple[tuple[Address, Failure], ...]:
        lies = self._lies.pop((job.key, job.attempt), [])
        return tuple(lie for lie in lies if lie[1] is not outcome)

    def _drop(self, worker: Worker, job: Job) -> None:
        """Tells a worker elsewhere that nobody waits for its answer any more."""
        if not isinstance(worker, Elsewhere) or len(self._drops) >= _MOST_DROPS:
            return
        task = asyncio.create_task(worker.drop(job))
        self._drops.add(task)
        task.add_done_callback(self._drops.discard)

    def _prior_ms(self, job: Job, address: Address) -> float:
        if address not in self._pool:
            return _UNKNOWN_MODEL_MS
        offer = self._pool.worker(address).models.get(job.model_id)
        return _UNKNOWN_MODEL_MS if offer is None else offer.prior_ms

    def _stop_counting(self, lease: Lease) -> None:
        """The slot is free once the computation has ended; the write needs none."""
        if self._computing.pop(lease.id, None) is not None:
            self._pool.release(lease.worker)

    def _ended(self, lease: Lease, job: Job, task: asyncio.Task[None]) -> None:
        self._stop_counting(lease)
        self._lies.pop((job.key, job.attempt), None)
        del self._tasks[lease.id]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log = job_log(job, lease.worker).bind(lease_id=lease.id)
            log.error("dispatch_broken", error=type(error).__name__)
            self._broken.put_nowait(error)
