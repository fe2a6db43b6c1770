"""An agent over real HTTP on loopback, and operators who sign what they ask."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address

from indexer.types import Address, Contracts, Hash32
from inferd.protocol.request import Commitment
from inferd.protocol.typed_data import DigestSigner, domain_separator
from inferd.protocol.worker_api import (
    JOBS,
    ErrorBody,
    JobAnswer,
    JobId,
    JobRequest,
    as_hex,
    decode,
    decode_answer,
    encode,
)
from inferd.protocol.worker_api_signing import (
    OperatorRequest,
    authorization,
    body_hash,
    worker_domain,
)
from inferd.workers.backends.base import Backend
from inferd.workers.backends.opening import Stock
from inferd.workers.sealing import Sealing
from inferd.workers.service.agent import Agent, Post, opened_log, serving
from inferd.workers.service.settings import AgentSettings
from tests.workers.support import MODEL

_AT = [Address(bytes([number]) * 20) for number in range(1, 6)]
CONTRACTS = Contracts(31337, 0, *_AT)
RESULTS_DOMAIN = domain_separator(31337, CONTRACTS.results)
API_DOMAIN = worker_domain(31337, CONTRACTS.results)
WORKER_KEY = PrivateKey(b"\x31" * 32)
WORKER = Address(WORKER_KEY.public_key.to_canonical_address())


@dataclass
class Operator:
    """Signs requests as one key, and sends them; tests spoil what they want."""

    url: str
    key: PrivateKey = field(default_factory=lambda: PrivateKey(b"\x41" * 32))
    session: aiohttp.ClientSession | None = None
    worker: Address = WORKER
    domain: Hash32 = API_DOMAIN

    @property
    def address(self) -> Address:
        return Address(self.key.public_key.to_canonical_address())

    def header(
        self,
        method: str,
        target: str,
        body: bytes,
        *,
        nonce: bytes | None = None,
        expires_in_s: float = 60,
        worker: Address | None = None,
        domain: Hash32 | None = None,
    ) -> str:
        asked = OperatorRequest(
            method,
            target,
            body_hash(body),
            worker or self.worker,
            Hash32(nonce or secrets.token_bytes(32)),
            int(time.time() + expires_in_s),
        )
        signature = DigestSigner(self.key).sign(asked.digest(domain or self.domain))
        return authorization(asked, self.address, signature)

    async def send(
        self, method: str, target: str, body: bytes = b"", *, header: str | None = None
    ) -> tuple[int, bytes, Any]:
        """Status, body and headers."""
        assert self.session is not None
        header = self.header(method, target, body) if header is None else header
        async with self.session.request(
            method, self.url + target, data=body or None, headers={"Authorization": header}
        ) as response:
            return response.status, await response.read(), response.headers

    async def ask(self, job: JobRequest) -> JobAnswer | ErrorBody:
        return read(await self.send("POST", JOBS, encode(job)))

    async def look(self, job: JobId, wait_ms: int = 0) -> JobAnswer | ErrorBody:
        return read(await self.send("GET", f"{job.path}?wait_ms={wait_ms}"))

    async def drop(self, job: JobId) -> int:
        return (await self.send("DELETE", job.path))[0]


def read(answer: tuple[int, bytes, Any]) -> JobAnswer | ErrorBody:
    status, body, _ = answer
    return decode_answer(body) if status in {200, 202} else decode(body, ErrorBody)


def a_request(
    number: int = 1,
    given: bytes = b"hello",
    *,
    attempt: int = 1,
    wait_ms: int = 20_000,
    deadline_in_s: float = 600,
    model: str = MODEL,
) -> JobRequest:
    return JobRequest(
        str(number),
        as_hex(Commitment(number.to_bytes(20, "big"))),
        attempt,
        model,
        given,
        0,
        int(time.time() + deadline_in_s),
        wait_ms,
    )


def settings(*operators: Operator, **changes: Any) -> AgentSettings:
    trusted = operators or (Operator(""),)
    values: dict[str, Any] = {
        "port": 0,
        "metrics_port": 0,
        "operators": tuple(to_checksum_address(one.address) for one in trusted),
    }
    return AgentSettings(**values | changes)


@contextlib.asynccontextmanager
async def an_agent(
    folder: Path,
    backend: Backend | Stock,
    *operators: Operator,
    slots: int = 2,
    sealing: Sealing | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[Agent, Operator]]:
    """One that serves, and its first operator with a connection."""
    post = Post("text", WORKER_KEY, CONTRACTS, slots, 1000)
    log = opened_log(post, folder)
    stock = backend if isinstance(backend, Stock) else Stock((backend,))
    operators = operators or (Operator(""),)
    try:
        async with (
            serving(
                post,
                stock,
                settings(*operators, **changes),
                log,
                folder=post.folder(folder),
                tokens_per_s={one.name: 50.0 for one in stock.backends},
                sealing=sealing,
            ) as agent,
            aiohttp.ClientSession() as session,
        ):
            for operator in operators:
                operator.url, operator.session = agent.url, session
            yield agent, operators[0]
    finally:
        await log.close()
