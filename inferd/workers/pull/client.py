"""The operator's side: signed requests to workers go through the broker, and answers come back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import structlog
from kombu.exceptions import KombuError
from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from indexer.backoff import Backoff
from indexer.types import Address
from inferd.net.guarded import Answer, Forbidden, Limits, TooSlow, Unreachable
from inferd.protocol.worker_api import PULL
from inferd.workers.pull import names
from inferd.workers.pull.apps import asking, queue_of
from inferd.workers.pull.broker import Broker, client_options
from inferd.workers.pull.messages import arguments, read_answer

_EXPIRES_S = 90
"""After which a request in the queue is thrown away unread: its signature is good for 30 s by the
worker's clock, which may be off by 60 s."""
_SENDERS = 4
"""Threads that send. Celery's client is synchronous, and each send is one exchange with the
broker."""
_QUIET_S = 5.0
"""After which a silent connection is asked whether it is there."""
_BROKEN = (exceptions.RedisError, OSError)
_MOST_QUEUED = 1_000
"""Requests in one queue; older ones go, as nobody waits for them any more."""
_NO_BROKER = "the broker cannot be used"

log = structlog.get_logger("workers")


class PullClient:
    """One for all workers that pull. `close` it at the end."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._app = asking(broker)
        self._redis = Redis.from_url(broker.url, **client_options(broker))
        self._asker = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._threads = ThreadPoolExecutor(_SENDERS, thread_name_prefix="pull")
        self._listening = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    def of(self, worker: Address) -> _Worker:
        """How this one is called."""
        return _Worker(self, worker)

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
            self._reader = None
        # A thread waits for the broker for some seconds at most, and nobody for the thread.
        self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._app.close)
        await self._redis.aclose()

    async def exchange(self, worker: Address, kwargs: Mapping[str, Any], limits: Limits) -> Answer:
        """One request and its answer. Raises an ExchangeError."""
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        task = f"{self._asker}-{next(self._numbers)}"
        key = names.answer(worker, task)
        future = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            await self._send(worker, task, kwargs, limits.connect_s)
            within_s = limits.head_s + limits.body_s
            try:
                async with asyncio.timeout(within_s):
                    message = await future
            except TimeoutError:
                await self._shorten(worker)
                raise TooSlow(f"no answer within {within_s:g} s") from None
        finally:
            del self._waiting[key]
        return read_answer(message, limits.max_bytes)

    async def _send(
        self, worker: Address, task: str, kwargs: Mapping[str, Any], within_s: float
    ) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._listening.wait()
                await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._send_now, worker, task, kwargs
                )
        except TimeoutError:
            raise Unreachable(_NO_BROKER) from None
        except (KombuError, *_BROKEN):
            raise Unreachable(_NO_BROKER) from None

    def _send_now(self, worker: Address, task: str, kwargs: Mapping[str, Any]) -> None:
        self._app.send_task(
            names.TASK,
            kwargs=dict(kwargs),
            task_id=task,
            queue=queue_of(worker),
            expires=_EXPIRES_S,
            retry=False,
            # Else both begin with what is asked.
            argsrepr="",
            kwargsrepr="",
        )

    async def _shorten(self, worker: Address) -> None:
        """Nobody may empty this queue for weeks."""
        with contextlib.suppress(*_BROKEN):
            await self._redis.ltrim(names.queue(worker), 0, _MOST_QUEUED - 1)

    async def _read(self) -> None:
        """For ever: answers to those who wait for them."""
        pauses = Backoff(0.2, 5.0)
        lost = False
        while True:
            try:
                async with self._redis.pubsub() as channel:
                    await channel.psubscribe(names.answers(self._asker))
                    async for told in _told(channel):
                        if told is not None:
                            self._take(*told)
                            continue
                        pauses.reset()
                        if lost:
                            log.info("broker_back", broker=self._broker.shown)
                            lost = False
                        self._listening.set()
                        await self._catch_up()
            except _BROKEN as error:
                self._listening.clear()
                if not lost:
                    log.warning(
                        "broker_lost", broker=self._broker.shown, error=type(error).__name__
                    )
                    lost = True
            await asyncio.sleep(pauses.next_s())

    async def _catch_up(self) -> None:
        """Answers that came while nobody listened."""
        for key in list(self._waiting):
            message = await self._redis.get(key)
            if isinstance(message, bytes):
                self._take(key, message)

    def _take(self, key: str, message: bytes) -> None:
        future = self._waiting.get(key)
        if future is not None and not future.done():
            future.set_result(message)


@dataclass(frozen=True, slots=True)
class _Worker:
    """Calls of one worker, as a GuardedClient makes them."""

    client: PullClient
    worker: Address

    async def call(
        self,
        method: str,
        url: str,
        limits: Limits,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        repeatable: bool = True,
    ) -> Answer:
        """`url` is `pull:` and the target. Sent once, `repeatable` or not."""
        if not url.startswith(PULL) or headers is None:
            raise Forbidden("the URL is not that of a worker that pulls")
        kwargs = arguments(method, url.removeprefix(PULL), headers, body)
        return await self.client.exchange(self.worker, kwargs, limits)


async def _told(channel: PubSub) -> Any:
    """Channel and message of each answer; None when the broker has begun to tell of them, also
    after redis-py has connected again by itself. Raises a RedisError where it is silent."""
    asked = False
    while True:
        came = await channel.get_message(timeout=_QUIET_S)
        if came is None:
            if asked:
                raise exceptions.ConnectionError("silent")
            await channel.ping()
            asked = True
            continue
        asked = False
        if came["type"] == "psubscribe":
            yield None
        elif came["type"] == "pmessage":
            yield came["channel"].decode(), came["data"]
