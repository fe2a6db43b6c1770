"""A worker on another machine, as the pool sees it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from indexer.backoff import Backoff
from indexer.types import Address, Hash32
from inferd.net.guarded import Answer, ExchangeError, Forbidden, TooLarge, TooSlow, Unreachable
from inferd.protocol.private import EncryptionKey
from inferd.protocol.request import ModelId
from inferd.protocol.typed_data import CompactSignature
from inferd.protocol.worker_api import (
    JOBS,
    MAX_MANIFEST_BYTES,
    MAX_WAIT_MS,
    SIGN,
    BadMessage,
    JobDone,
    JobRequest,
    SignAnswer,
    SignRequest,
    as_hex,
    decode,
    decode_answer,
    encode,
    of_hex,
)
from inferd.workers.job import (
    Declined,
    Job,
    RefusedToSign,
    SignedResult,
    WorkerBusy,
    WorkerFailed,
    WorkerLied,
)
from inferd.workers.logs import job_log
from inferd.workers.pool import Elsewhere
from inferd.workers.remote.answers import checked_result, job_id
from inferd.workers.remote.client import WorkerClient, refusal_words, retry_after_s
from inferd.workers.retries import RetryBudget

_POLL_S = 20.0
"""How long one question for an answer waits at the worker."""
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_EARLY_S = 0.5
"""A worker that says "running" sooner than this is not asked again at once."""
_DROP_TRIES = 3
_FRAME_BYTES = 4 * 1024
_PASSING = (Unreachable, TooSlow)
"""Troubles after which the same question may be answered."""


@dataclass(frozen=True, slots=True)
class RemoteOffer:
    """A model as its worker's heartbeat has it; an `Offer` of the pool."""

    name: str
    prior_ms: float
    loaded: bool
    load_ms: float
    tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Announced:
    """What registry and heartbeats say of a worker at the moment."""

    models: Mapping[ModelId, RemoteOffer] = field(default_factory=dict)
    slots: int = 0
    memory_mb: int = 0
    encryption_keys: tuple[EncryptionKey, ...] = ()
    """To which private inputs may be encrypted; what it says itself."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What came to a call, and the call's nonce."""

    answer: Answer
    nonce: Hash32


class RemoteWorker(Elsewhere):
    """Asks for the same job until it has an answer, which the worker keeps: an answer that was lost
    on the way costs a second question and no second computation. It believes nothing unchecked, and
    calls nothing a lie that the worker did not sign: who is between can change answers.

    Cancelling a computation cancels nothing at the worker; `drop` does.
    """

    def __init__(
        self,
        client: WorkerClient,
        budget: RetryBudget,
        *,
        max_output_bytes: int,
        dice: random.Random | None = None,
    ) -> None:
        """`budget` is shared by all workers of a pool."""
        self.client = client
        self.announced = Announced()
        self._budget = budget
        self._max_output_bytes = max_output_bytes
        self._dice = dice

    @property
    def address(self) -> Address:
        return self.client.worker

    @property
    def name(self) -> str:
        return "0x" + self.address.hex()

    @property
    def models(self) -> Mapping[ModelId, RemoteOffer]:
        return self.announced.models

    @property
    def slots(self) -> int:
        return self.announced.slots

    @property
    def memory_mb(self) -> int:
        return self.announced.memory_mb

    async def compute(self, job: Job) -> SignedResult:
        """Raises WorkerFailed, WorkerLied, WorkerBusy or Declined."""
        offer = self.models.get(job.model_id)
        was_loaded = offer is not None and offer.loaded
        begun_s = time.monotonic()
        pauses = self._pauses()
        ask, taken = True, False
        while True:
            asked_s = time.monotonic()
            try:
                said = await (self._ask(job) if ask else self._poll(job))
                if said.answer.status == 404 and not ask:
                    raise Unreachable("it has forgotten the job")
                _check_passage(said.answer, taken=taken)
                done = self._done(said)
            except _PASSING as error:
                # It may never have heard of the job, so it is asked as the first time.
                ask = True
                if not self._budget.take():
                    raise WorkerFailed(f"{error.reason}; too much is asked again already") from None
                await asyncio.sleep(pauses.next_s())
                continue
            except ExchangeError as error:
                raise _failed(error) from None
            if done is not None:
                return self._checked(done, said, job, begun_s, was_loaded=was_loaded)
            ask, taken = False, True
            if time.monotonic() - asked_s < _EARLY_S:
                await asyncio.sleep(pauses.next_s())

    async def late(self, job: Job) -> SignedResult:
        """Only asks for what is computed or being computed: never begins it anew."""
        begun_s = time.monotonic()
        pauses = self._pauses()
        while True:
            try:
                said = await self._poll(job)
                _check_passage(said.answer, taken=True)
                done = self._done(said)
            except _PASSING:
                done = None
            except ExchangeError as error:
                raise _failed(error) from None
            if done is not None:
                return self._checked(done, said, job, begun_s, was_loaded=False)
            await asyncio.sleep(pauses.next_s())

    async def drop(self, job: Job) -> None:
        pauses = self._pauses()
        reason = ""
        for _ in range(_DROP_TRIES):
            try:
                answer = await self.client.call("DELETE", job_id(job).path)
            except ExchangeError as error:
                reason = error.reason
            else:
                if answer.status < 500:
                    return
                reason = refusal_words(answer)
            await asyncio.sleep(pauses.next_s())
        job_log(job, self.address).info("worker_not_told", reason=reason)

    async def sign_group(self, items: bytes) -> CompactSignature:
        """Raises RefusedToSign or WorkerFailed; the signature is checked by whoever asks."""
        body = encode(SignRequest(items=items))
        try:
            try:
                answer = await self.client.call("POST", SIGN, body)
            except _PASSING:
                answer = await self.client.call("POST", SIGN, body)
        except ExchangeError as error:
            raise _failed(error) from None
        if answer.status != 200:
            raise RefusedToSign(refusal_words(answer))
        try:
            return CompactSignature(of_hex(decode(answer.body, SignAnswer).signature))
        except BadMessage:
            raise WorkerFailed("its signature cannot be read") from None

    async def _ask(self, job: Job) -> _Said:
        request = JobRequest(
            request_id=str(job.request_id),
            commitment=as_hex(job.commitment),
            attempt=job.attempt,
            model=job.model,
            input=job.input,
            max_tokens=job.max_tokens,
            deadline_s=job.deadline_s,
            wait_ms=_wait_ms(job),
            requester=as_hex(job.requester),
        )
        return await self._call("POST", JOBS, encode(request), wait_ms=request.wait_ms)

    async def _poll(self, job: Job) -> _Said:
        wait_ms = _wait_ms(job)
        target = f"{job_id(job).path}?wait_ms={wait_ms}"
        return await self._call("GET", target, wait_ms=wait_ms)

    async def _call(self, method: str, target: str, body: bytes = b"", *, wait_ms: int) -> _Said:
        most = self._max_output_bytes * 4 // 3 + MAX_MANIFEST_BYTES + _FRAME_BYTES
        nonce = Hash32(secrets.token_bytes(32))
        answer = await self.client.call(
            method, target, body, wait_s=wait_ms / 1000, max_bytes=most, nonce=nonce
        )
        return _Said(answer, nonce)

    def _done(self, said: _Said) -> JobDone | None:
        """None while it runs."""
        answer = said.answer
        match answer.status:
            case 200 | 202:
                with self._proved(said):
                    try:
                        read = decode_answer(answer.body)
                    except BadMessage:
                        raise WorkerLied("its answer cannot be read") from None
                return read if isinstance(read, JobDone) else None
            case 503 | 429:
                raise WorkerBusy(refusal_words(answer), retry_after_s=retry_after_s(answer))
            case 422 | 413:
                raise Declined(refusal_words(answer))
            case _:
                raise WorkerFailed(refusal_words(answer))

    def _checked(
        self, done: JobDone, said: _Said, job: Job, begun_s: float, *, was_loaded: bool
    ) -> SignedResult:
        offer = self.models.get(job.model_id)
        with self._proved(said):
            return checked_result(
                done,
                job,
                self.address,
                self.client.operator.results_domain,
                max_output_bytes=self._max_output_bytes,
                elapsed_ms=1000 * (time.monotonic() - begun_s),
                was_loaded=was_loaded,
                tokens_per_s=0.0 if offer is None else offer.tokens_per_s,
            )

    @contextlib.contextmanager
    def _proved(self, said: _Said) -> Iterator[None]:
        """What is found within is a lie only where the worker signed all that it is found in."""
        try:
            yield
        except WorkerLied as lie:
            if not self.client.vouched_for(said.answer, said.nonce):
                raise WorkerFailed(lie.reason) from None
            raise

    def _pauses(self) -> Backoff:
        return Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, dice=self._dice)

    def __repr__(self) -> str:
        return f"RemoteWorker({self.name})"


def _check_passage(answer: Answer, *, taken: bool) -> None:
    """Raises Unreachable where the answer says nothing of the job: it comes from a gateway before
    the worker, or, where the worker has `taken` the job, from its limit on questions."""
    if answer.status in {502, 504} or (answer.status == 429 and taken):
        raise Unreachable(refusal_words(answer))


def _wait_ms(job: Job) -> int:
    left_ms: Any = 1000 * (job.deadline_s - time.time())
    return int(min(MAX_WAIT_MS, max(0, min(1000 * _POLL_S, left_ms))))


def _failed(error: ExchangeError) -> WorkerFailed | Declined:
    if isinstance(error, TooLarge):
        return Declined(error.reason)  # How much this node takes, no worker was told.
    if isinstance(error, Forbidden):
        return WorkerFailed(f"its endpoint may not be called: {error.reason}")
    return WorkerFailed(error.reason)
