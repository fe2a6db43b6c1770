"""Answers whose lease has run out: they are still of use where no other worker gives one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from inferd.workers.job import Job, JobError, SignedResult, WorkerLied
from inferd.workers.leases import Lease
from inferd.workers.logs import job_log
from inferd.workers.pool import Elsewhere, Worker
from scheduler.model import RequestKey

_MOST = 256
"""Waited for at a time; the oldest are given up."""


@dataclass(frozen=True, slots=True)
class _Wait:
    lease: Lease
    job: Job
    worker: Worker
    task: asyncio.Task[None]


class LateAnswers:
    """One task for each, until its request's deadline, or another answer to it is stored."""

    def __init__(
        self,
        came: Callable[[Lease, Job, SignedResult], Awaitable[None]],
        lied: Callable[[Lease, Job, WorkerLied], Awaitable[None]],
    ) -> None:
        self._came = came
        self._lied = lied
        self._waits: dict[int, _Wait] = {}
        """By lease, the oldest first."""

    @property
    def waiting(self) -> int:
        return len(self._waits)

    def wait_for(self, lease: Lease, job: Job, worker: Worker) -> None:
        """Nothing happens where the worker keeps no answers."""
        if not isinstance(worker, Elsewhere):
            return
        if len(self._waits) >= _MOST:
            self._waits.pop(next(iter(self._waits))).task.cancel()
        task = asyncio.create_task(self._wait(lease, job, worker))
        self._waits[lease.id] = _Wait(lease, job, worker, task)

    def give_up(self, stored: Lease) -> list[tuple[Worker, Job]]:
        """That lease's request has its answer: ends the waits for others to it, and returns them.

        The wait that brought it is none of them.
        """
        key: RequestKey = stored.key
        others = [
            wait
            for wait in self._waits.values()
            if wait.lease.key == key and wait.lease.id != stored.id
        ]
        for wait in others:
            wait.task.cancel()
        return [(wait.worker, wait.job) for wait in others]

    async def close(self) -> None:
        """Ends all of them; no worker is told."""
        tasks = [wait.task for wait in self._waits.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _wait(self, lease: Lease, job: Job, worker: Elsewhere) -> None:
        try:
            left_s = job.deadline_s - time.time()
            async with asyncio.timeout(max(0.0, left_s)):
                result = await worker.late(job)
            await self._came(lease, job, result)
        except WorkerLied as error:
            await self._lied(lease, job, error)
        except (JobError, TimeoutError) as error:
            log = job_log(job, lease.worker)
            log.info("late_answer_given_up", lease_id=lease.id, error=type(error).__name__)
        except Exception as error:
            # Its text may quote the output.
            log = job_log(job, lease.worker)
            log.error("job_crashed", lease_id=lease.id, error=type(error).__name__)
        finally:
            self._waits.pop(lease.id, None)
