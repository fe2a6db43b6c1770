"""A worker inside this process: a key, its models, and its word."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping

from eth_keys.datatypes import PrivateKey

from indexer.database import CONNECTION_LOST
from indexer.errors import OperatorError
from indexer.types import Address, Hash32
from inferd.protocol.request import Commitment, ModelId
from inferd.protocol.result import ResultItem, digest_of, pack_items, unpack_items
from inferd.protocol.typed_data import (
    BadSignature,
    CompactSignature,
    DigestSigner,
    group_digest,
    recover,
)
from inferd.workers.backends.base import Backend
from inferd.workers.backends.memory import ModelMemory
from inferd.workers.job import (
    BadInput,
    Completion,
    Job,
    RefusedToSign,
    SignedResult,
    Spoken,
    WorkerBusy,
    WorkerFailed,
)
from inferd.workers.logs import job_log
from inferd.workers.outages import through_outages
from inferd.workers.results import SignatureLog
from inferd.workers.sealing import Sealing
from scheduler.model import RequestKey

_REMEMBERED = 1_000
"""Signatures that need no check, as this object has just made them: some 0.3 MB."""


class LocalWorker:
    """Computes on back ends of this process and signs what came out.

    It never publishes its name under two digests for one request. It asks its log before it
    computes and again before it signs; what it signs leaves the process only from the log's
    committed row, and that row keeps the first digest for good. So a crash, or a log that is away
    at the wrong moment, leaves at worst a signature that nobody has seen.
    """

    def __init__(
        self,
        name: str,
        key: PrivateKey,
        domain: Hash32,
        models: Mapping[ModelId, Backend],
        *,
        slots: int,
        memory_mb: int,
        signatures: SignatureLog,
        memory: ModelMemory | None = None,
        sealing: Sealing | None = None,
    ) -> None:
        """`domain` is the EIP-712 domain of the deployment's InferenceResults. Without `memory` all
        models have room; without `sealing` it computes no private inputs."""
        self._name = name
        self._signer = DigestSigner(key)
        self._domain = domain
        self._models = dict(models)
        self._slots = slots
        self._memory_mb = memory_mb
        self._signatures = signatures
        self._memory = memory or ModelMemory()
        self._sealing = sealing
        self._address = Address(key.public_key.to_canonical_address())
        self._running = 0
        self._made: dict[CompactSignature, ResultItem] = {}
        """The newest signatures, and what each was put under; the oldest first."""

    @property
    def address(self) -> Address:
        return self._address

    @property
    def name(self) -> str:
        return self._name

    @property
    def models(self) -> Mapping[ModelId, Backend]:
        return self._models

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def memory_mb(self) -> int:
        return self._memory_mb

    async def compute(self, job: Job) -> SignedResult:
        """The worker's one answer to a request: the recorded one, or else a new one.

        Raises WorkerFailed, WorkerBusy or BadInput. Cancelling it ends the computation.
        """
        backend = self._models.get(job.model_id)
        if backend is None:
            raise WorkerFailed(f"{self._name} does not serve this model")
        if self._running >= self._slots:
            raise WorkerBusy(f"all {self._slots} slots are taken")
        self._running += 1
        try:
            log = job_log(job, self._address)
            earlier = await through_outages(lambda: self._recorded(job.key), log=log)
            if isinstance(earlier, SignedResult):
                return earlier
            async with self._loaded(backend):
                # Loading is no part of how long a computation takes: it is reckoned with apart.
                started = time.perf_counter()
                completion = await self._run(backend, job)
                compute_ms = max(1, round(1000 * (time.perf_counter() - started)))
            known = await self._recorded_meanwhile(job.key) or earlier
            if isinstance(known, SignedResult):
                return known
            return self._sign(job.key, completion, compute_ms, known)
        finally:
            self._running -= 1

    async def _run(self, backend: Backend, job: Job) -> Completion:
        if not job.is_private:
            return await backend.run(job)
        if self._sealing is None:
            raise WorkerFailed(f"{self._name} has no key for private inputs")
        plain, reply_to = await self._sealing.opened(job)
        try:
            completion = await backend.run(plain)
        except BadInput:
            # All can read the reason, and the back end's has lengths that padding hides.
            raise BadInput("what is encrypted in it is empty, too long, or not readable") from None
        except WorkerFailed:
            raise WorkerFailed("its model gave no answer to what is encrypted in it") from None
        return await self._sealing.closed(job, reply_to, completion)

    @contextlib.asynccontextmanager
    async def _loaded(self, backend: Backend) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._memory.holding(backend))
            except OperatorError as error:
                raise WorkerFailed(f"its model cannot be loaded: {error.message}") from error
            yield

    async def sign_group(self, items: bytes) -> CompactSignature:
        """Signs packed items, each of which it has signed alone before.

        Raises RefusedToSign for anything else, and what is in CONNECTION_LOST where the log cannot
        be read.
        """
        try:
            wanted = unpack_items(items)
        except ValueError as error:
            raise RefusedToSign(str(error)) from error
        if not wanted:
            raise RefusedToSign("the group is empty")
        keys = [RequestKey(item.request_id, item.commitment) for item in wanted]
        known = await self._signatures.signatures(self._address, keys)
        return await asyncio.to_thread(self._sign_known, items, wanted, known)

    def _sign_known(
        self,
        items: bytes,
        wanted: tuple[ResultItem, ...],
        known: Mapping[RequestKey, tuple[Hash32, CompactSignature]],
    ) -> CompactSignature:
        for item in wanted:
            found = known.get(RequestKey(item.request_id, item.commitment))
            if found is None:
                raise RefusedToSign(f"request {item.request_id} was not computed here")
            digest, signature = found
            if digest != item.digest:
                raise RefusedToSign(f"request {item.request_id} has another digest here")
            # A row alone proves nothing: whoever can write to the database could have added it.
            if not self._is_mine(item, signature):
                raise RefusedToSign(f"request {item.request_id} was recorded with a foreign key")
        return self._signer.sign(group_digest(self._domain, items))

    def _is_mine(self, item: ResultItem, signature: CompactSignature) -> bool:
        if self._made.get(signature) == item:
            return True
        try:
            return recover(group_digest(self._domain, pack_items([item])), signature) == (
                self._address
            )
        except BadSignature:
            return False

    async def _recorded(self, key: RequestKey) -> SignedResult | Spoken | None:
        known = await self._signatures.recorded(self._address, key)
        if known is not None:
            item = ResultItem(key.id, Commitment(key.commitment), known.digest)
            if not self._is_mine(item, known.signature):
                raise WorkerFailed("the recorded result does not carry this worker's signature")
        return known

    async def _recorded_meanwhile(self, key: RequestKey) -> SignedResult | Spoken | None:
        """By another lease on the same request. A computed result must not wait here for a log
        that is away until its lease runs out: what is signed in vain is dropped when it is stored.
        """
        try:
            return await self._recorded(key)
        except CONNECTION_LOST:
            return None

    def _sign(
        self, key: RequestKey, completion: Completion, compute_ms: int, spoken: Spoken | None
    ) -> SignedResult:
        digest = digest_of(completion.output)
        item = ResultItem(key.id, Commitment(key.commitment), digest)
        if spoken is None:
            signature = self._signer.sign(group_digest(self._domain, pack_items([item])))
        elif spoken.digest == digest:
            signature = spoken.signature
        else:
            raise WorkerFailed("it gave another answer before, whose output is not kept any more")
        self._made[signature] = item
        if len(self._made) > _REMEMBERED:
            del self._made[next(iter(self._made))]
        return SignedResult(
            key=key,
            worker=self._address,
            digest=digest,
            output=completion.output,
            media_type=completion.media_type,
            manifest=completion.manifest,
            signature=signature,
            compute_ms=compute_ms,
        )
