"""A worker on another machine that does what a test says, over real HTTP; the real one is
inferd.workers.service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from eth_keys.datatypes import PrivateKey

from indexer.types import Address, Hash32
from inferd.net.guarded import GuardedClient
from inferd.net.reach import OWN_MACHINE_AND_NETWORKS
from inferd.protocol.request import model_id
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import DigestSigner, domain_separator, group_digest
from inferd.protocol.worker_api import (
    Heartbeat,
    JobDone,
    JobGone,
    JobId,
    JobRequest,
    JobRunning,
    ModelHealth,
    SignAnswer,
    SignRequest,
    as_hex,
    decode,
    encode,
)
from inferd.protocol.worker_api_signing import (
    ANSWER_HEADER,
    answer_signature,
    check_signature,
    parse_authorization,
    sign_heartbeat,
    worker_domain,
)
from inferd.workers.remote.client import Operator, WorkerClient
from inferd.workers.remote.worker import Announced, RemoteOffer, RemoteWorker
from inferd.workers.retries import RetryBudget
from tests.workers.support import MODEL

RESULTS = Address(b"\x11" * 20)
RESULTS_DOMAIN = domain_separator(31337, RESULTS)
API_DOMAIN = worker_domain(31337, RESULTS)
OPERATOR_KEY = PrivateKey(b"\x41" * 32)
OPERATOR = Operator(
    Address(OPERATOR_KEY.public_key.to_canonical_address()),
    DigestSigner(OPERATOR_KEY),
    API_DOMAIN,
    RESULTS_DOMAIN,
)

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""None lets the request through to the worker."""


def wrong_key(job: JobId, output: bytes) -> JobDone:
    return signed(job, output, PrivateKey(b"\x99" * 32))


def signed(job: JobId, output: bytes, key: PrivateKey, domain: Hash32 = RESULTS_DOMAIN) -> JobDone:
    item = ResultItem(job.request_id, job.commitment, digest_of(output))
    signature = DigestSigner(key).sign(group_digest(domain, pack_items([item])))
    return JobDone(
        as_hex(item.digest), output, "text/plain", {"model": MODEL}, as_hex(signature), 5
    )


@dataclass
class ScriptedWorker:
    """Answers well, unless a fault is set."""

    key: PrivateKey = field(default_factory=lambda: PrivateKey(b"\x31" * 32))
    slots: int = 4
    skew_ms: int = 0
    stopping: bool = False
    model: str = MODEL
    results_domain: Hash32 = RESULTS_DOMAIN
    api_domain: Hash32 = API_DOMAIN
    asked: list[JobId] = field(default_factory=list)
    computed: list[JobId] = field(default_factory=list)
    dropped: list[JobId] = field(default_factory=list)
    polled: list[JobId] = field(default_factory=list)
    signed: int = 0
    beats: int = 0
    kept: dict[JobId, JobDone] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    """Each for one call of a job's path, in turn."""
    gate: asyncio.Event | None = None
    """Answers wait for it."""
    beat_fault: Fault | None = None
    mangle: Callable[[JobId, JobDone], JobDone] = lambda job, done: done
    vouches: bool = True
    """Signs its answers as a whole, whatever they are."""
    tasks: dict[JobId, asyncio.Task[None]] = field(default_factory=dict)
    url: str = ""

    @property
    def address(self) -> Address:
        return Address(self.key.public_key.to_canonical_address())

    async def handle(self, request: web.Request) -> web.StreamResponse:
        credentials = parse_authorization(request.headers["Authorization"])
        check_signature(
            credentials, request.method, request.raw_path, self.address, self.api_domain
        )
        if request.path == "/v1/health":
            return await self._beat(request, credentials.nonce)
        if request.path == "/v1/sign":
            self.signed += 1
            items = decode(await request.read(), SignRequest).items
            signature = DigestSigner(self.key).sign(group_digest(self.results_domain, items))
            return _json(SignAnswer(as_hex(signature)))
        if self.faults:
            response = await self.faults.pop(0)(request)
            if response is not None:
                return response
        if request.method == "POST":
            asked = decode(await request.read(), JobRequest)
            self.asked.append(asked.id)
            if asked.id not in self.kept and asked.id not in self.tasks:
                self.tasks[asked.id] = asyncio.create_task(self._compute(asked))
            return await self._answer(asked.id, asked.wait_ms, credentials.nonce)
        job = JobId.parse(request.path.rpartition("/")[2])
        if request.method == "DELETE":
            self.dropped.append(job)
            if job in self.tasks:
                self.tasks.pop(job).cancel()
            self.kept.pop(job, None)
            return _json(JobGone())
        self.polled.append(job)
        return await self._answer(job, int(request.query.get("wait_ms", "0")), credentials.nonce)

    async def _compute(self, asked: JobRequest) -> None:
        if self.gate is not None:
            await self.gate.wait()
        self.computed.append(asked.id)
        self.kept[asked.id] = signed(
            asked.id, b"answer to " + asked.input, self.key, self.results_domain
        )

    async def _answer(self, job: JobId, wait_ms: int, nonce: Hash32) -> web.Response:
        if job in self.tasks:
            await asyncio.wait({self.tasks[job]}, timeout=wait_ms / 1000)
        if job in self.kept:
            said = _json(self.mangle(job, self.kept[job]))
            assert isinstance(said.body, bytes)
            if self.vouches:
                signer = DigestSigner(self.key)
                said.headers[ANSWER_HEADER] = answer_signature(
                    signer, self.api_domain, nonce, said.body
                )
            return said
        if job in self.tasks:
            return _json(JobRunning(), 202)
        return web.json_response({"code": "unknown_job", "message": "no"}, status=404)

    async def _beat(self, request: web.Request, nonce: Hash32) -> web.StreamResponse:
        self.beats += 1
        if self.beat_fault is not None:
            response = await self.beat_fault(request)
            if response is not None:
                return response
        heartbeat = Heartbeat(
            at_ms=int(time.time() * 1000) + self.skew_ms,
            nonce=as_hex(nonce),
            slots=self.slots,
            running=0,
            queued=0,
            free_memory_mb=1000,
            models=[ModelHealth(self.model, True, 0.0, 50.0, 100.0)],
            version="test",
            stopping=self.stopping,
        )
        return _json(sign_heartbeat(DigestSigner(self.key), self.api_domain, heartbeat))


@asynccontextmanager
async def listening(worker: ScriptedWorker) -> AsyncIterator[ScriptedWorker]:
    app = web.Application(client_max_size=10**8)
    app.router.add_route("*", "/{tail:.*}", worker.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    worker.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield worker
    finally:
        for task in worker.tasks.values():
            task.cancel()
        await runner.cleanup()


@asynccontextmanager
async def remote(
    scripted: ScriptedWorker,
    *,
    timeout_s: float = 20.0,
    max_output_bytes: int = 10_000,
    budget: RetryBudget | None = None,
    listens: bool = True,
) -> AsyncIterator[RemoteWorker]:
    """As the pool has it, with its heartbeat taken for granted."""
    async with GuardedClient(OWN_MACHINE_AND_NETWORKS) as http:
        client = WorkerClient(http, scripted.url, scripted.address, OPERATOR, timeout_s=timeout_s)
        worker = RemoteWorker(client, budget or RetryBudget(), max_output_bytes=max_output_bytes)
        offer = RemoteOffer(MODEL, 50.0, loaded=True, load_ms=0.0)
        worker.announced = Announced({model_id(MODEL): offer}, scripted.slots, 1000)
        yield worker


def _json(message: object, status: int = 200) -> web.Response:
    body = encode(message)  # type: ignore[arg-type]
    return web.Response(body=body, status=status, content_type="application/json")
