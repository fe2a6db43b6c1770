"""A worker that pulls from a real broker, and the operator who asks it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferd.protocol.typed_data import DigestSigner
from inferd.protocol.worker_api import PULL
from inferd.workers.backends.base import Backend
from inferd.workers.backends.opening import Stock
from inferd.workers.pull.broker import Broker
from inferd.workers.pull.client import PullClient
from inferd.workers.remote.client import Operator as Who
from inferd.workers.remote.client import WorkerClient
from inferd.workers.remote.worker import RemoteWorker
from inferd.workers.retries import RetryBudget
from inferd.workers.service.agent import Agent, Post, opened_log, serving
from tests.settlement.certificates import Certificates
from tests.workers.pull.redis_server import RedisServer
from tests.workers.service.support import (
    API_DOMAIN,
    CONTRACTS,
    RESULTS_DOMAIN,
    WORKER,
    WORKER_KEY,
    Operator,
    settings,
)


@contextlib.asynccontextmanager
async def a_puller(
    redis: RedisServer,
    folder: Path,
    backend: Backend,
    *,
    slots: int = 2,
    broker: Broker | None = None,
    **changes: Any,
) -> AsyncIterator[Agent]:
    """An agent that pulls as the broker's user for this worker."""
    post = Post("text", WORKER_KEY, CONTRACTS, slots, 1000)
    log = opened_log(post, folder)
    try:
        async with serving(
            post,
            Stock((backend,)),
            settings(**changes),
            log,
            folder=post.folder(folder),
            tokens_per_s={backend.name: 50.0},
            broker=broker or Broker(redis.admit(WORKER)),
        ) as agent:
            yield agent
    finally:
        await log.close()


@dataclass
class Asker:
    """An operator's side."""

    pull: PullClient
    client: WorkerClient
    worker: RemoteWorker

    def next_number(self) -> int:
        """Of its requests; each is one greater than the last."""
        return next(self.pull._numbers)


@contextlib.asynccontextmanager
async def tls_before(redis: RedisServer, files: Certificates) -> AsyncIterator[int]:
    """The port of a TLS endpoint before it: the binaries of packages are built without TLS."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", redis.port)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(carry(reader, outer), carry(inner, writer))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server, files.server_key)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@contextlib.asynccontextmanager
async def an_asker(
    redis: RedisServer,
    *,
    timeout_s: float = 10.0,
    max_output_bytes: int = 4_000_000,
    broker: Broker | None = None,
) -> AsyncIterator[Asker]:
    operator = Operator("")
    who = Who(operator.address, DigestSigner(operator.key), API_DOMAIN, RESULTS_DOMAIN)
    pull = PullClient(broker or Broker(redis.operator_url()))
    client = WorkerClient(pull.of(WORKER), PULL, WORKER, who, timeout_s=timeout_s)
    try:
        yield Asker(
            pull,
            client,
            RemoteWorker(client, RetryBudget(), max_output_bytes=max_output_bytes),
        )
    finally:
        await pull.close()
