"""A worker agent as a whole: its log, its worker, its two listeners; and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import structlog
from aiohttp import web
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address

from indexer.errors import OperatorError
from indexer.types import Address, Contracts
from inferd.protocol.request import model_id
from inferd.protocol.typed_data import DigestSigner, domain_separator
from inferd.protocol.worker_api import PULL
from inferd.protocol.worker_api_signing import worker_domain
from inferd.workers.backends.base import Backend
from inferd.workers.backends.opening import Stock
from inferd.workers.job import WorkerFailed
from inferd.workers.local import LocalWorker
from inferd.workers.sealing import Sealing
from inferd.workers.service import metrics
from inferd.workers.service.app import Api, api_server, metrics_page
from inferd.workers.service.auth import Gate, Trust
from inferd.workers.service.heartbeat import Pulse, signed_keys
from inferd.workers.service.jobs import Jobs
from inferd.workers.service.listening import listening, tls_of
from inferd.workers.service.log import SignatureFile, open_log
from inferd.workers.service.settings import AgentSettings

if TYPE_CHECKING:
    from inferd.workers.pull.broker import Broker
    from inferd.workers.pull.puller import Puller

DRAIN_S = 6.0
"""How long running jobs may still take once the agent is told to stop."""
_SWEEP_EVERY_S = 60.0
_PULLED_BESIDE = 16
"""Requests that are answered at a time beside those which wait for a computation."""

log = structlog.get_logger("agent")


class NoOperators(OperatorError):
    """The agent would answer nobody."""

    code: ClassVar[str] = "no_operators"


class AgentFileUnwritable(OperatorError):
    """The agent cannot say in its folder where it listens."""

    code: ClassVar[str] = "agent_file_unwritable"


@dataclass(frozen=True, slots=True)
class Post:
    """Who works, where: what an agent is for."""

    name: str
    key: PrivateKey = field(repr=False)
    contracts: Contracts
    slots: int
    memory_mb: int

    @property
    def address(self) -> Address:
        return Address(self.key.public_key.to_canonical_address())

    def folder(self, data_dir: Path) -> Path:
        """Where its log of signatures is."""
        return data_dir / f"worker-0x{self.address.hex()}"


@dataclass(frozen=True, slots=True)
class Agent:
    """One that serves."""

    url: str
    metrics_url: str
    jobs: Jobs
    upkeep: asyncio.Task[None]
    """Runs as long as the agent serves; its failure is a fault of the agent."""


@dataclass(frozen=True, slots=True)
class Service:
    """What answers operators, however their requests come in."""

    api: Api
    jobs: Jobs


def service_of(
    post: Post,
    stock: Stock,
    settings: AgentSettings,
    signatures: SignatureFile,
    *,
    tokens_per_s: Mapping[str, float],
    sealing: Sealing | None = None,
) -> Service:
    """An agent without its listeners. `tokens_per_s` is by the models' names; without `sealing` it
    computes no private inputs. Whoever ends it drains its jobs. Raises NoOperators.
    """
    if not settings.operators:
        raise NoOperators(
            "the agent trusts no operator, so nobody could ask it",
            help_text="name their addresses: `operators` in [agent], or `--operator`",
        )
    contracts = post.contracts
    api_domain = worker_domain(contracts.chain_id, contracts.results)
    worker = LocalWorker(
        post.name,
        post.key,
        domain_separator(contracts.chain_id, contracts.results),
        {model_id(backend.name): backend for backend in stock.backends},
        slots=post.slots,
        memory_mb=post.memory_mb,
        signatures=signatures,
        memory=stock.memory,
        sealing=sealing,
    )
    jobs = Jobs(worker, signatures, slots=post.slots, queue=settings.queue)
    signer = DigestSigner(post.key)
    pulse = Pulse(
        jobs,
        stock.backends,
        slots=post.slots,
        tokens_per_s=tokens_per_s,
        keys=() if sealing is None else signed_keys(sealing, signer, contracts),
        signer=signer,
        domain=api_domain,
    )
    trust = Trust(
        post.address,
        api_domain,
        settings.trusted,
        window_s=settings.request_window_s,
        skew_s=settings.clock_skew_s,
    )
    api = Api(
        worker,
        jobs,
        pulse,
        Gate(trust, rate_per_s=settings.rate_per_s, burst=settings.rate_burst),
        max_body_bytes=settings.max_body_bytes,
        body_timeout_s=settings.body_timeout_s,
    )
    metrics.SLOTS.set(post.slots)
    metrics.RUNNING.set_function(lambda: jobs.running)
    metrics.QUEUED.set_function(lambda: jobs.queued)
    metrics.WAITING_FOR_MEMORY.set_function(lambda: stock.memory.waiting)
    for backend in stock.backends:
        metrics.MODEL_LOADED.labels(backend.name).set_function(partial(_is_loaded, backend))
    return Service(api, jobs)


@contextlib.asynccontextmanager
async def serving(
    post: Post,
    stock: Stock,
    settings: AgentSettings,
    signatures: SignatureFile,
    *,
    folder: Path,
    tokens_per_s: Mapping[str, float],
    sealing: Sealing | None = None,
    broker: Broker | None = None,
) -> AsyncIterator[Agent]:
    """Answers operators until the end, then gives running jobs `DRAIN_S` and the rest back.

    It takes their requests from the broker, where there is one, and else listens; `folder` gets
    agent.json, which says where. Raises NoOperators, BadCertificate, AgentAddressTaken,
    AgentFileUnwritable and what is wrong with a broker.
    """
    service = service_of(
        post, stock, settings, signatures, tokens_per_s=tokens_per_s, sealing=sealing
    )
    jobs = service.jobs
    page = web.Server(metrics_page, access_log=None)
    async with contextlib.AsyncExitStack() as stack:
        puller = None
        if broker is None:
            url = await stack.enter_async_context(_reached(service.api, settings))
        else:
            from inferd.workers.pull.puller import pulled_from  # noqa: PLC0415 - needs an extra

            at_once = post.slots + settings.queue + _PULLED_BESIDE
            puller = await stack.enter_async_context(
                pulled_from(broker, post.address, service.api.respond, at_once=at_once)
            )
            url = PULL
        stack.push_async_callback(jobs.drain, DRAIN_S)
        metrics_url = await stack.enter_async_context(
            listening(page, settings.metrics_host, settings.metrics_port, 16, None)
        )
        upkeep = asyncio.create_task(_upkeep(signatures, settings.retention_hours * 3600, puller))
        stack.callback(upkeep.cancel)
        agent = Agent(url, metrics_url, jobs, upkeep)
        stack.enter_context(_announced(agent, post, folder))
        log.info("serving_worker", worker=to_checksum_address(post.address), url=agent.url)
        try:
            yield agent
        finally:
            log.info("stopping", running=jobs.running, queued=jobs.queued)


def _is_loaded(backend: Backend) -> float:
    return float(backend.loaded)


def opened_log(post: Post, data_dir: Path) -> SignatureFile:
    """The log of this worker for this deployment. Raises SignatureLogInUse and Unusable."""
    domain = domain_separator(post.contracts.chain_id, post.contracts.results)
    return open_log(post.folder(data_dir), post.address, domain)


def _reached(api: Api, settings: AgentSettings) -> AbstractAsyncContextManager[str]:
    """Gives the URL under which it listens."""
    tls = tls_of(settings)
    return listening(api_server(api), settings.host, settings.port, settings.max_connections, tls)


async def _upkeep(signatures: SignatureFile, keep_s: float, puller: Puller | None) -> None:
    work: list[Coroutine[Any, Any, NoReturn]] = [_sweep(signatures, keep_s)]
    if puller is not None:
        work.append(puller.watch())
    await asyncio.gather(*work)


async def _sweep(signatures: SignatureFile, keep_s: float) -> NoReturn:
    while True:
        try:
            dropped = await signatures.drop_outputs(before_s=time.time() - keep_s)
            count, size = await signatures.counts()
        except WorkerFailed as error:
            log.error("signature_log_fails", error=error.reason)
        else:
            metrics.KEPT_OUTPUTS.set(count)
            metrics.KEPT_OUTPUT_BYTES.set(size)
            if dropped:
                log.warning("outputs_dropped", outputs=dropped, reason="nobody acknowledged them")
        await asyncio.sleep(_SWEEP_EVERY_S)


@contextlib.contextmanager
def _announced(agent: Agent, post: Post, folder: Path) -> Iterator[None]:
    place = folder / "agent.json"
    whole = place.with_suffix(".new")
    body = {
        "url": agent.url,
        "metrics_url": agent.metrics_url,
        "worker": to_checksum_address(post.address),
        "pid": os.getpid(),
    }
    try:
        whole.write_text(json.dumps(body) + "\n")
        whole.replace(place)
    except OSError as error:
        with contextlib.suppress(OSError):
            whole.unlink(missing_ok=True)
        raise AgentFileUnwritable(
            f"{place} cannot be written: {error.strerror}",
            help_text="mend the disk or the folder's permissions, or choose another `data_dir`",
        ) from error
    try:
        yield
    finally:
        # The end is in order though the disk is not.
        with contextlib.suppress(OSError):
            place.unlink()
