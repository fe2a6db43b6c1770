"""Scripted back ends, workers with known keys, and rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from eth_keys.datatypes import PrivateKey

from indexer.database import Connection, Pool
from indexer.types import Address, Hash32
from inferd.protocol.request import Commitment, ModelId, model_id
from inferd.protocol.typed_data import domain_separator
from inferd.workers import leases, length_stats
from inferd.workers.backends.base import Backend
from inferd.workers.job import Completion, Job
from inferd.workers.leases import Grant, Lease
from inferd.workers.local import LocalWorker
from inferd.workers.results import ResultLog, SignatureLog
from inferd.workers.sealing import Sealing
from scheduler.model import RequestKey

DOMAIN: Hash32 = domain_separator(31337, Address(b"\x11" * 20))
MODEL = "test-model"


async def echo(job: Job) -> bytes:
    return b"answer to " + job.input


@dataclass
class Scripted:
    """A back end that does what the test says."""

    answer: Callable[[Job], Awaitable[bytes]] = echo
    name: str = MODEL
    prior_ms: float = 100.0
    max_output_bytes: int = 1_000_000
    calls: list[Job] = field(default_factory=list)
    loaded: bool = True
    load_ms: float = 0.0
    unloaded: int = 0
    started: int = 0
    closed: int = 0

    async def start(self) -> None:
        self.started += 1
        self.loaded = True

    async def unload(self) -> None:
        self.unloaded += 1
        self.loaded = False

    async def run(self, job: Job) -> Completion:
        self.calls.append(job)
        return Completion(await self.answer(job), "text/plain", {"model": self.name})

    async def close(self) -> None:
        self.closed += 1


def a_job(
    number: int = 1,
    text: bytes = b"hello",
    *,
    model: str = MODEL,
    max_tokens: int = 0,
    deadline_in_s: float = 600,
) -> Job:
    return Job(
        request_id=number,
        commitment=Commitment(number.to_bytes(20, "big")),
        model_id=model_id(model),
        model=model,
        input=text,
        max_tokens=max_tokens,
        deadline_s=int(time.time() + deadline_in_s),
    )


def a_worker(
    pool: Pool | None,
    backend: Backend,
    *,
    seed: int = 1,
    slots: int = 4,
    signatures: SignatureLog | None = None,
    sealing: Sealing | None = None,
) -> LocalWorker:
    log = signatures
    if log is None:
        assert pool is not None
        log = ResultLog(pool)
    return LocalWorker(
        f"worker-{seed}",
        PrivateKey(seed.to_bytes(32, "big")),
        DOMAIN,
        {ModelId(model_id(backend.name)): backend},
        slots=slots,
        memory_mb=1000,
        signatures=log,
        sealing=sealing,
    )


async def lease_for(
    connection: Connection | Pool,
    job: Job,
    worker: Address,
    *,
    attempt: int = 1,
    lease_ms: int = 10_000,
) -> Lease:
    grants = [Grant(RequestKey(job.request_id, job.commitment), worker, attempt, lease_ms)]
    (lease,) = await leases.grant_all(connection, grants)  # type: ignore[arg-type]
    return lease


async def expire(connection: Connection | Pool, lease: Lease) -> None:
    """As a sweep does when its time is up."""
    await connection.execute(
        "UPDATE node.lease SET state = 'expired', ended_at = clock_timestamp() WHERE id = $1",
        lease.id,
    )


async def learn_length(
    connection: Connection | Pool, model: ModelId, tenant: Address, tokens: int, max_tokens: int
) -> None:
    held = await length_stats.hold(connection, [(model, tenant)])  # type: ignore[arg-type]
    held.add(model, tenant, tokens, max_tokens)
    await held.store(connection)  # type: ignore[arg-type]


async def until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)
