"""The jobs of an agent: each request is computed once, whoever asks and how often.

A computation belongs to a request on its branch of the chain, not to who asked: a second attempt,
or a second operator, joins the one that runs. Nothing is held of a job that is over but the log's
row, and for failures a few words.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

from indexer.types import Address, Hash32
from inferd.protocol.private import is_private
from inferd.protocol.request import model_id
from inferd.protocol.typed_data import CompactSignature
from inferd.protocol.worker_api import (
    ErrorCode,
    JobAnswer,
    JobDone,
    JobId,
    JobRequest,
    JobRunning,
    as_hex,
    of_hex,
)
from inferd.workers.job import (
    BadInput,
    Job,
    JobError,
    SignedResult,
    WorkerBusy,
    WorkerFailed,
)
from inferd.workers.logs import job_log
from inferd.workers.service.log import MOST_ASKERS, Asker, SignatureFile, Signed, asker_of
from inferd.workers.service.metrics import COMPUTE_SECONDS, JOBS
from scheduler.model import RequestKey

_FAILURES_KEPT = 4096
_BUSY_RETRY_S = 1.0


class Computes(Protocol):
    """What the agent wants of a `LocalWorker`."""

    @property
    def address(self) -> Address: ...

    async def compute(self, job: Job) -> SignedResult: ...

    async def sign_group(self, items: bytes) -> CompactSignature: ...


class Unanswered(Exception):
    """Why a job has no answer. The text holds nothing of the input."""

    def __init__(
        self, code: ErrorCode, message: str, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


@dataclass(eq=False)
class _Computation:
    job: Job
    content: Hash32
    askers: set[Asker]
    task: asyncio.Task[SignedResult] = field(init=False)


@dataclass(frozen=True, slots=True)
class _Failure:
    """Not the exception: that would hold on to the input by its traceback."""

    content: Hash32
    code: ErrorCode
    message: str


class Jobs:
    """At most `slots` are computed and `queue` wait, in the order in which they came."""

    def __init__(
        self,
        worker: Computes,
        log: SignatureFile,
        *,
        slots: int,
        queue: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since the epoch: deadlines are times of the chain's blocks."""
        self._worker = worker
        self._log = log
        self._capacity = slots + queue
        self._slots = asyncio.Semaphore(slots)
        self._clock = clock
        self._computations: dict[RequestKey, _Computation] = {}
        self._failures: OrderedDict[tuple[Asker, RequestKey], _Failure] = OrderedDict()
        self._running = 0
        self._stopping = False

    @property
    def running(self) -> int:
        """Jobs that have a slot."""
        return self._running

    @property
    def queued(self) -> int:
        """Jobs that wait for one."""
        return max(0, len(self._computations) - self._running)

    @property
    def stopping(self) -> bool:
        """True once no new job is taken."""
        return self._stopping

    async def submit(self, operator: Address, request: JobRequest) -> None:
        """Begins the job, or joins what runs of its request; nothing where it is done or failed.

        Raises Unanswered: conflict, busy, or failed where the deadline has passed.
        """
        job, content = _job(request), content_hash(request)
        asker, key = asker_of(operator, request.id)
        failure = self._failures.get((asker, key))
        if failure is not None and failure.content != content:
            raise _conflict()
        if failure is not None or self._joined(asker, key, content):
            return
        recorded = await self._log.content_of(key)
        if recorded not in {None, content}:
            raise _conflict()
        try:
            if recorded is not None and await self._log.add_asker(asker, key):
                return
        except WorkerBusy as error:
            raise _busy(error.reason) from None
        # The log was read meanwhile: another request may have begun it.
        if self._joined(asker, key, content):
            return
        if self._stopping:
            raise _busy("the worker is stopping")
        if len(self._computations) >= self._capacity:
            raise _busy("slots and queue are full")
        if job.deadline_s <= self._clock():
            raise Unanswered(ErrorCode.FAILED, "the request's deadline has passed")
        computation = _Computation(job, content, {asker})
        computation.task = asyncio.create_task(self._compute(computation))
        computation.task.add_done_callback(lambda _: self._ended(key, computation))
        self._computations[key] = computation

    async def answer(self, operator: Address, job: JobId, wait_s: float) -> JobAnswer:
        """What there is of a job that was asked for, after at most `wait_s`.

        Raises Unanswered: what the job came to, or unknown_job.
        """
        asker, key = asker_of(operator, job)
        computation = self._computations.get(key)
        if computation is not None and asker in computation.askers:
            await asyncio.wait({computation.task}, timeout=wait_s)
            if not computation.task.done():
                return JobRunning()
            # Between the end of the task and its callback the failure is not noted yet.
            return _done(self._outcome(computation.task))
        failure = self._failures.get((asker, key))
        if failure is not None:
            raise Unanswered(failure.code, failure.message)
        result = await self._log.answer_to(asker, key)
        if result is None:
            raise Unanswered(ErrorCode.UNKNOWN_JOB, "no such job is known")
        return _done(result)

    async def drop(self, operator: Address, job: JobId) -> None:
        """This operator wants no answer any more, or has it. Idempotent."""
        asker, key = asker_of(operator, job)
        self._failures.pop((asker, key), None)
        computation = self._computations.get(key)
        if computation is not None:
            computation.askers.discard(asker)
            if not computation.askers:
                # Not to be joined any more: who asks now starts anew.
                del self._computations[key]
                computation.task.cancel()
        await self._log.acknowledge(asker, key)

    def stop_taking(self) -> None:
        """From now on new jobs are told that the worker is busy."""
        self._stopping = True

    async def drain(self, within_s: float) -> None:
        """Takes no new jobs; what does not end in time is given back as busy."""
        self.stop_taking()
        tasks = [computation.task for computation in self._computations.values()]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=within_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _compute(self, computation: _Computation) -> SignedResult:
        job = computation.job
        log = job_log(job, self._worker.address)
        async with self._slots:
            self._running += 1
            limit = asyncio.timeout(job.deadline_s - self._clock())
            try:
                started = time.perf_counter()
                async with limit:
                    result = await self._worker.compute(job)
                COMPUTE_SECONDS.observe(time.perf_counter() - started)
            except JobError:
                raise
            except Exception as error:
                if limit.expired():
                    raise WorkerFailed("no answer before the request's deadline") from None
                # An exception's text may quote the prompt: only its kind and place are shown.
                frame = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{frame.filename}:{frame.lineno}"
                log.error("job_crashed", error=type(error).__name__, where=where)
                raise WorkerFailed(f"unexpected {type(error).__name__}") from None
            finally:
                self._running -= 1
        return await self._keep(computation, result)

    async def _keep(self, computation: _Computation, result: SignedResult) -> SignedResult:
        """The worker's word on the request, committed."""
        signed = Signed(result, computation.content, tuple(computation.askers))
        kept = await self._log.record(signed)
        if not isinstance(kept, SignedResult):
            raise WorkerFailed("it gave another answer to this request before")
        for asker in computation.askers.difference(signed.askers):
            # Joined while the row was being written.
            await self._log.add_asker(asker, kept.key)
        return kept

    def _joined(self, asker: Asker, key: RequestKey, content: Hash32) -> bool:
        computation = self._computations.get(key)
        if computation is None:
            return False
        if computation.content != content:
            raise _conflict()
        if asker not in computation.askers and len(computation.askers) >= MOST_ASKERS:
            raise _busy("too many wait for this request already")
        computation.askers.add(asker)
        return True

    def _outcome(self, task: asyncio.Task[SignedResult]) -> SignedResult:
        """Raises Unanswered."""
        if task.cancelled():
            if self._stopping:
                raise _busy("the worker stopped before it had an answer")
            raise Unanswered(ErrorCode.UNKNOWN_JOB, "the job was cancelled")
        error = task.exception()
        match error:
            case None:
                return task.result()
            case BadInput():
                raise Unanswered(ErrorCode.BAD_INPUT, error.reason)
            case WorkerBusy():
                raise _busy(error.reason)
            case JobError():
                raise Unanswered(ErrorCode.FAILED, error.reason)
        raise Unanswered(ErrorCode.FAILED, f"unexpected {type(error).__name__}")

    def _ended(self, key: RequestKey, computation: _Computation) -> None:
        if self._computations.get(key) is computation:
            del self._computations[key]
        log = job_log(computation.job, self._worker.address)
        try:
            result = self._outcome(computation.task)
        except Unanswered as failure:
            JOBS.labels(str(failure.code)).inc()
            log.warning("job_failed", code=str(failure.code), reason=failure.message)
            if failure.code in {ErrorCode.FAILED, ErrorCode.BAD_INPUT}:
                for asker in computation.askers:
                    self._failures[asker, key] = _Failure(
                        computation.content, failure.code, failure.message
                    )
                while len(self._failures) > _FAILURES_KEPT:
                    self._failures.popitem(last=False)
        else:
            JOBS.labels("done").inc()
            log.info("job_done", compute_ms=result.compute_ms, output_bytes=len(result.output))


def content_hash(request: JobRequest) -> Hash32:
    """What is computed. Not the deadline, which a requester can shorten meanwhile; of a private
    input whom it is for, since it opens for nobody else."""
    given = [request.model.encode(), request.input, request.max_tokens.to_bytes(4, "big")]
    if is_private(request.input):
        given.append(of_hex(request.requester))
    return Hash32(sha256(b"".join(sha256(part).digest() for part in given)).digest())


def _job(request: JobRequest) -> Job:
    name = request.id
    return Job(
        request_id=name.request_id,
        commitment=name.commitment,
        model_id=model_id(request.model),
        model=request.model,
        input=request.input,
        max_tokens=request.max_tokens,
        deadline_s=request.deadline_s,
        requester=Address(of_hex(request.requester)),
    )


def _done(result: SignedResult) -> JobDone:
    return JobDone(
        digest=as_hex(result.digest),
        output=result.output,
        media_type=result.media_type,
        manifest=dict(result.manifest),
        signature=as_hex(result.signature),
        compute_ms=result.compute_ms,
    )


def _busy(message: str) -> Unanswered:
    return Unanswered(ErrorCode.BUSY, message, retry_after_s=_BUSY_RETRY_S)


def _conflict() -> Unanswered:
    return Unanswered(
        ErrorCode.CONFLICT, "the same request was asked with another model, input or length"
    )
