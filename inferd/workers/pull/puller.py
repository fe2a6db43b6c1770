"""The worker's side: takes requests from the broker and has the agent of this process answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, ClassVar, NoReturn, Protocol

import structlog
from celery import Celery
from celery.app.trace import setup_worker_optimizations
from celery.worker import WorkController, state

from indexer.errors import TemporaryError
from indexer.types import Address
from inferd.workers.pull import names
from inferd.workers.pull.apps import TASK_LIMIT_S, pulling
from inferd.workers.pull.broker import Broker, check_broker, refused_by
from inferd.workers.pull.messages import HEADERS, Told

_STOP_WITHIN_S = 2.5
"""Beside what jobs may still take once the agent is told to stop."""

log = structlog.get_logger("agent")


class PullingEnded(TemporaryError):
    """No more jobs are taken from the broker, for a reason that the log tells."""

    code: ClassVar[str] = "pulling_ended"


class Response(Protocol):
    """What an agent's HTTP would send."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Any: ...
    @property
    def body(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Pulled:
    """A request from the broker, as the agent looks at one that came over HTTP."""

    method: str
    raw_path: str
    headers: dict[str, str]
    whole: bytes
    remote: str | None = None

    @property
    def content_length(self) -> int:
        return len(self.whole)

    @property
    def content(self) -> Pulled:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self.whole


class Puller:
    """A Celery worker in a thread of this process."""

    def __init__(
        self,
        broker: Broker,
        worker: Address,
        respond: Callable[[Pulled], Awaitable[Response]],
        *,
        at_once: int,
    ) -> None:
        """`respond` is called in the event loop that this is made in, for `at_once` requests at a
        time."""
        self._broker = broker
        self._worker = worker
        self._respond = respond
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, name="puller", daemon=True)
        self._stopping = False

    async def start(self) -> None:
        """Raises BrokerUnreachable, BrokerRefused and BrokerNotTrusted."""
        await asyncio.to_thread(self._prepare)
        state.should_stop = None
        self._thread.start()

    async def watch(self) -> NoReturn:
        """As long as jobs are taken. Raises PullingEnded."""
        await asyncio.shield(self._ended)
        raise PullingEnded(
            "jobs are not taken from the broker any more",
            help_text="the log says why; start the agent again",
        )

    async def stop(self) -> None:
        """Takes nothing more; what is not answered yet goes back to the broker."""
        self._stopping = True
        state.should_stop = 0
        if self._thread.ident is None:
            return
        try:
            async with asyncio.timeout(_STOP_WITHIN_S):
                await asyncio.shield(self._ended)
        except TimeoutError:
            log.warning("broker_not_left", help="what was taken comes again to whoever pulls next")

    def _prepare(self) -> None:
        for library in ("celery", "kombu"):
            # Below that they tell of every request, with its answer.
            logging.getLogger(library).setLevel(logging.WARNING)
        check_broker(self._broker)
        self._app = pulling(self._broker, self._worker)
        with refused_by(self._broker):
            take_back(self._app)
        self._app.task(name=names.TASK, typing=False, shared=False)(self._exchange)
        name = f"0x{self._worker.hex()}"
        # As Celery's own program does: its threads find the application by it.
        setup_worker_optimizations(self._app, name)
        for other in set(self._app.tasks) - {names.TASK}:
            self._app.tasks.unregister(other)
        self._controller = WorkController(
            app=self._app,
            hostname=name,
            pool="threads",
            concurrency=self._at_once,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )

    def _work(self) -> None:
        try:
            self._controller.start()
        finally:
            with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._tell_end)

    def _tell_end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _exchange(self, method: str, target: str, authorization: str, body: str) -> dict[str, Any]:
        """The task, in a thread of Celery's."""
        request = Pulled(method, target, {"Authorization": authorization}, body.encode())
        answer = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
        return answer.result()

    async def _answer(self, request: Pulled) -> dict[str, Any]:
        async with asyncio.timeout(TASK_LIMIT_S):
            response = await self._respond(request)
        headers = {"Date": formatdate(usegmt=True)}
        headers |= {name: response.headers[name] for name in HEADERS if name in response.headers}
        told = Told(response.status, headers, bytes(response.body or b"").decode())
        return {"status": told.status, "headers": told.headers, "body": told.body}


def take_back(app: Celery) -> None:
    """Puts what a former process of this worker took and did not end back into the queue.

    The broker would do so after a while. But nobody else takes from this queue, and whoever asked
    may still wait.
    """
    with app.connection_for_read() as connection, connection.channel() as channel:
        channel.visibility_timeout = 0
        channel.qos.restore_visible(num=None, interval=1)


@contextlib.asynccontextmanager
async def pulled_from(
    broker: Broker,
    worker: Address,
    respond: Callable[[Pulled], Awaitable[Response]],
    *,
    at_once: int,
) -> AsyncIterator[Puller]:
    """Answers what is in the worker's queue until the end. Raises as `Puller.start` does."""
    if broker.in_the_open:
        log.warning(
            "broker_without_tls",
            broker=broker.shown,
            help="inputs, outputs and the password cross the network as they are: use rediss://",
        )
    puller = Puller(broker, worker, respond, at_once=at_once)
    await puller.start()
    try:
        yield puller
    finally:
        await puller.stop()
