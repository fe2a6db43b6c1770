"""An agent in a process of its own that dies where it is told to.

Every wait between the request and its answer is found by itself: the log's methods and the
statements they run, the back end, the signature, the response. Each can be the last thing that the
process does, just before it or just after it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from inferd.protocol.typed_data import DigestSigner
from inferd.workers.backends.memory import ModelMemory
from inferd.workers.backends.opening import Stock
from inferd.workers.job import Job
from inferd.workers.service.agent import Post, opened_log, serving
from inferd.workers.service.app import Api
from inferd.workers.service.jobs import Jobs
from tests.workers.service.support import CONTRACTS, WORKER_KEY, settings
from tests.workers.support import MODEL, Scripted

_LOG_METHODS = ("recorded", "record", "content_of", "answer_to", "add_asker", "acknowledge")
MODELS = (MODEL, "another")
"""There is room for one of them."""
_STATEMENTS = ("BEGIN", "INSERT", "COMMIT", "DELETE")


@dataclass(frozen=True)
class Order:
    """What a process is told."""

    folder: Path
    victim: int = 0
    """The request from whose first byte on it is watched."""
    die_at: str | None = None
    models: tuple[str, ...] = MODELS
    """There is memory for one of them at a time."""


class Watch:
    """Names what is passed, and kills the process at one of the names."""

    def __init__(self, order: Order) -> None:
        self.points: list[str] = []
        self._order = order
        self.armed = False

    def passes(self, what: str) -> None:
        if not self.armed:
            return
        name = f"{what}#{1 + sum(point.startswith(what + '#') for point in self.points)}"
        self.points.append(name)
        if name == self._order.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, method: str, name: str) -> None:
        real = getattr(owner, method)

        async def call(*args: Any, **named: Any) -> Any:
            self.passes(f"before {name}")
            answer = await real(*args, **named)
            self.passes(f"after {name}")
            return answer

        setattr(owner, method, call)


def processes() -> Any:
    """Starts processes as forks of one that has imported everything: a run is cheap."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def run(order: Order) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    asyncio.run(_run(order))


async def _run(order: Order) -> None:
    watch = Watch(order)

    async def never_the_same(job: Job) -> bytes:
        return secrets.token_bytes(16)

    models = [Scripted(never_the_same, name=name, loaded=False) for name in order.models]
    for backend in models:
        watch.around(backend, "run", "the back end")
    memory = ModelMemory(1, dict.fromkeys(order.models, 1))
    post = Post("text", WORKER_KEY, CONTRACTS, 2, 1000)
    log = opened_log(post, order.folder)
    for method in _LOG_METHODS:
        watch.around(log, method, f"log.{method}")
    log._db.set_trace_callback(
        lambda sql: (
            watch.passes(f"before {' '.join(sql.split()[:3])}")
            if sql.startswith(_STATEMENTS)
            else None
        )
    )
    for owner, method in ((Jobs, "submit"), (Jobs, "answer"), (Jobs, "drop")):
        _watch_method(watch, owner, method)
    _watch_response(watch, order.victim)
    _watch_signature(watch)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with serving(
        post,
        Stock(tuple(models), memory),
        settings(),
        log,
        folder=post.folder(order.folder),
        tokens_per_s={},
    ):
        await stop.wait()
    await log.close()
    (order.folder / "points.json").write_text(json.dumps(watch.points))


def _watch_method(watch: Watch, owner: Any, method: str) -> None:
    real = getattr(owner, method)

    async def call(*args: Any) -> Any:
        watch.passes(f"before {method}")
        answer = await real(*args)
        watch.passes(f"after {method}")
        return answer

    setattr(owner, method, call)


def _watch_response(watch: Watch, victim: int) -> None:
    respond, handle = Api.respond, Api.handle
    mark = f"/{victim}-"

    async def responds(self: Api, request: Any) -> Any:
        if not watch.armed:
            watch.armed = request.headers.get("Victim") == "yes" or mark in request.raw_path
        response = await respond(self, request)
        watch.passes("before the response leaves")
        return response

    async def handles(self: Api, request: Any) -> Any:
        response = await handle(self, request)
        watch.passes("after the response left")
        return response

    Api.respond = responds  # type: ignore[method-assign]
    Api.handle = handles  # type: ignore[method-assign]


def _watch_signature(watch: Watch) -> None:
    real = DigestSigner.sign

    def sign(self: DigestSigner, digest: Any) -> Any:
        watch.passes("before the signature")
        signature = real(self, digest)
        watch.passes("after the signature")
        return signature

    DigestSigner.sign = sign  # type: ignore[method-assign]
