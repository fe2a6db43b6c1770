"""One job on its worker, or on two: what comes of it, and what it tells of them."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from typing import Any

from indexer.types import Address
from inferd.workers.endings import Failure
from inferd.workers.job import (
    BadInput,
    Declined,
    Job,
    SignedResult,
    WorkerBusy,
    WorkerFailed,
    WorkerLied,
)
from inferd.workers.leases import FailureKind, Lease
from inferd.workers.pool import Elsewhere, Worker, WorkerPool
from inferd.workers.quorum import Company
from inferd.workers.retries import RetryBudget
from scheduler.patience import (
    SLOWEST_SECOND,
    Patience,
    hedge_after_s,
    may_hedge,
    time_out_s,
)

Outcome = SignedResult | Failure

_USUAL_TOKENS = 64
"""Of a request that leaves its length to the worker."""
_OF_LEASE = 0.9
"""Part of a lease within which those beside its worker must have answered."""
_MAY_GO_ON = (FailureKind.TIMEOUT, FailureKind.FAILED)
"""After which the worker may compute on."""
_OF_NO_USE = (FailureKind.LIED, FailureKind.DECLINED)
"""After which the worker may keep an answer that nobody will take."""


class Attempts:
    """Computes leased jobs, and keeps the pool's circuits and limits up to date.

    A worker elsewhere is given two p99s, and where the slack is about to run out a second worker is
    asked within the same lease: the first answer counts, the other one is cancelled.
    """

    def __init__(
        self,
        pool: WorkerPool,
        budget: RetryBudget,
        *,
        proved: Callable[[], float],
        drop: Callable[[Worker, Job], None],
        on_lie: Callable[[Job, Address, Failure], None] = lambda job, worker, failure: None,
    ) -> None:
        """`proved` is how surely a second worker must succeed that is not ours; `drop` tells a
        worker that nobody waits for its answer. `on_lie` is called for each worker that lied, also
        where another one's answer is the outcome."""
        self._pool = pool
        self._budget = budget
        self._proved = proved
        self._drop = drop
        self._on_lie = on_lie

    async def compute(
        self, lease: Lease, job: Job, worker: Worker, expected: Patience | None, log: Any
    ) -> Outcome:
        """`worker` has a slot reserved for it. Cancelling it ends the computation.

        Of a quorum no second one is asked in its place: whoever is free has been asked as well.
        """
        log.info("job_started", model=job.model, input_bytes=len(job.input), attempt=lease.attempt)
        if isinstance(worker, Elsewhere):
            self._budget.first_try()
        if expected is None or not isinstance(worker, Elsewhere):
            return await self._on(worker, job, lease.duration_s, None, log)
        left_s = job.deadline_s - time.time()
        limit_s = time_out_s(expected, lease_s=lease.duration_s, left_s=left_s)
        begun_at_s = time.monotonic()
        first = asyncio.create_task(self._on(worker, job, limit_s, expected, log))
        try:
            after_s = None
            if job.quorum == 1:
                after_s = self._hedge_after_s(worker, job, lease, expected, left_s)
            if after_s is not None:
                await asyncio.wait({first}, timeout=after_s)
                if not first.done():
                    ends_s = begun_at_s + lease.duration_s
                    return await self._hedged(first, worker, ends_s, job, expected, log)
            return await first
        finally:
            await _end(first)

    def company(
        self, lease: Lease, job: Job, expected: Patience | None, wanted: Company
    ) -> list[Address]:
        """Who else is to be asked for a quorum's answer now: those who are soon enough for the
        lease, at p90."""
        slowest = SLOWEST_SECOND
        if expected is not None and expected.p90_ms > 0.0:
            in_lease_ms = 1000.0 * _OF_LEASE * lease.duration_s
            slowest = min(slowest, in_lease_ms / expected.p90_ms)
        return self._pool.company(
            lease.worker,
            job.model_id,
            job.max_tokens or _USUAL_TOKENS,
            wanted.number,
            wanted.excluded,
            proved=self._proved(),
            slowest=slowest,
        )

    async def beside(self, lease: Lease, job: Job, worker: Worker, log: Any) -> Outcome:
        """One of a quorum beside the first; it has a slot reserved for it, and less time than the
        lease, which must not end before what it says is written."""
        outcome = await self._on(worker, job, _OF_LEASE * lease.duration_s, None, log)
        if isinstance(outcome, Failure):
            self._drop_rest(worker, job, outcome)
        return outcome

    async def alone(self, worker: Worker, job: Job, limit_s: float, log: Any) -> Outcome:
        """Of this worker, without a lease: for a check. It has a slot reserved for it."""
        if isinstance(worker, Elsewhere):
            self._budget.first_try()
        return await self._on(worker, job, limit_s, None, log)

    def _hedge_after_s(
        self, worker: Worker, job: Job, lease: Lease, expected: Patience, left_s: float
    ) -> float | None:
        # Nobody else may have the key of a private input, and no two of its outputs are the same.
        if job.is_private or not may_hedge(expected, lease_s=lease.duration_s, left_s=left_s):
            return None
        other = self._second(worker, job)
        if other is None:
            return None
        return hedge_after_s(
            expected,
            lease_s=lease.duration_s,
            left_s=left_s,
            other_p90_ms=expected.p90_ms * other[1],
        )

    def _second(self, first: Worker, job: Job) -> tuple[Address, float] | None:
        tokens = job.max_tokens or _USUAL_TOKENS
        found = self._pool.second(first.address, job.model_id, tokens, proved=self._proved())
        return None if found is None or found[1] > SLOWEST_SECOND else found

    async def _hedged(
        self,
        first: asyncio.Task[Outcome],
        worker: Worker,
        ends_s: float,
        job: Job,
        expected: Patience,
        log: Any,
    ) -> Outcome:
        # Who is free may be another one by now.
        found = self._second(worker, job)
        if found is None or not self._budget.take():
            return await first
        begun_at_s, address = time.monotonic(), found[0]
        other = self._pool.reserve(address)
        log.info("job_hedged", second="0x" + address.hex())
        second = asyncio.create_task(self._on(other, job, ends_s - begun_at_s, expected, log))
        try:
            await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
            for task, rest in ((first, second), (second, first)):
                if task.done() and isinstance(task.result(), SignedResult):
                    loser = other if rest is second else worker
                    self._lost(loser, job, rest, slow=rest is first, begun_at_s=begun_at_s)
                    return task.result()
            # One has failed: the other is all there is.
            of_first, of_second = await asyncio.gather(first, second)
            if isinstance(of_second, SignedResult):
                self._drop_rest(worker, job, of_first)
                return of_second
            self._drop_rest(other, job, of_second)
            return of_first
        finally:
            await _end(second)
            self._pool.release(address)

    def _lost(
        self, loser: Worker, job: Job, task: asyncio.Task[Outcome], *, slow: bool, begun_at_s: float
    ) -> None:
        if task.done():
            self._drop_rest(loser, job, task.result())
            return
        task.cancel()
        self._drop(loser, job)
        if slow:
            self._pool.answered(loser.address, slow=True)
            self._pool.congested(loser.address, begun_at_s=begun_at_s)

    def _drop_rest(self, worker: Worker, job: Job, outcome: Outcome) -> None:
        """What is left at a worker of whose outcome nothing comes: an answer, or a computation that
        goes on though nobody waits for it here."""
        if isinstance(outcome, SignedResult) or outcome.kind in _MAY_GO_ON:
            self._drop(worker, job)

    async def _on(
        self, worker: Worker, job: Job, limit_s: float, expected: Patience | None, log: Any
    ) -> Outcome:
        begun_at_s, address = time.monotonic(), worker.address
        outcome = await _outcome(worker, job, limit_s, log)
        took_ms = 1000.0 * (time.monotonic() - begun_at_s)
        self._tell_pool(address, outcome, begun_at_s, took_ms, expected)
        if isinstance(outcome, Failure) and outcome.kind in _OF_NO_USE:
            self._drop(worker, job)
            if outcome.kind is FailureKind.LIED:
                self._on_lie(job, address, outcome)
        return outcome

    def _tell_pool(
        self,
        address: Address,
        outcome: Outcome,
        begun_at_s: float,
        took_ms: float,
        expected: Patience | None,
    ) -> None:
        if isinstance(outcome, SignedResult):
            slow = expected is not None and took_ms > expected.p99_ms
            self._pool.answered(address, slow=slow)
            if slow:
                self._pool.congested(address, begun_at_s=begun_at_s)
            return
        if outcome.kind is FailureKind.BUSY:
            self._pool.busy(address, begun_at_s=begun_at_s, retry_after_s=outcome.retry_after_s)
        elif outcome.kind is FailureKind.TIMEOUT:
            self._pool.congested(address, begun_at_s=begun_at_s)
        if outcome.blamed:
            self._pool.failed(address)


async def _outcome(worker: Worker, job: Job, limit_s: float, log: Any) -> Outcome:
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await worker.compute(job)
    except TimeoutError:
        if limit.expired():
            reason = f"no result within {limit_s:.1f} s"
            return Failure(FailureKind.TIMEOUT, reason, waited_s=limit_s)
        return Failure(FailureKind.FAILED, "the worker's own time limit")
    except BadInput as error:
        return Failure(FailureKind.BAD_INPUT, error.reason)
    except Declined as error:
        return Failure(FailureKind.DECLINED, error.reason)
    except WorkerBusy as error:
        return Failure(FailureKind.BUSY, error.reason, error.retry_after_s or 0.0)
    except WorkerLied as error:
        return Failure(FailureKind.LIED, error.reason, signed=error.signed)
    except WorkerFailed as error:
        return Failure(FailureKind.FAILED, error.reason)
    except Exception as error:
        # An exception's text may quote the prompt: only its kind and place are shown.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename}:{frame.lineno}"
        log.error("job_crashed", error=type(error).__name__, where=where)
        return Failure(FailureKind.FAILED, f"unexpected {type(error).__name__}")


async def _end(task: asyncio.Task[Outcome]) -> None:
    """Cancelled where it is not done, and waited for either way."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
