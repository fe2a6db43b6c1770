"""A request's deadline ends what computes, whatever that is, and its slot is free for the next."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from inferd.protocol.worker_api import ErrorBody, JobDone
from inferd.workers.backends.base import Backend
from inferd.workers.backends.choice import CommandOptions, OpenAIOptions
from inferd.workers.backends.command import CommandBackend
from inferd.workers.backends.llamacpp import LlamaCppBackend
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.backends.openai.backend import OpenAIBackend
from inferd.workers.model_files import ModelFile
from tests.workers.backends.scripted_server import Asked, Scripted, piece, serving
from tests.workers.service.support import a_request, an_agent
from tests.workers.support import MODEL

SLOW = b"the first is never answered"


class EndlessLlama:
    """A model in this process that goes on and on, and can only be asked to stop."""

    def handle_chat_completions(
        self, asked: dict[str, Any], on_chunk: Callable[[dict[str, Any]], bool]
    ) -> None:
        slow = asked["messages"][-1]["content"] == SLOW.decode()
        finish = None if slow else "stop"
        while not on_chunk({"choices": [{"delta": {"content": "x"}, "finish_reason": finish}]}):
            if not slow:
                return
            time.sleep(0.005)


@contextlib.asynccontextmanager
async def llamacpp(_: Path) -> AsyncIterator[Backend]:
    file = ModelFile(Path("none"), "", "", "", (0, 0, 0, 0))
    backend = LlamaCppBackend(file, name=MODEL, slots=1)
    backend._server = EndlessLlama()
    yield backend
    await backend.close()


@contextlib.asynccontextmanager
async def command(folder: Path) -> AsyncIterator[Backend]:
    file = folder / "program"
    file.write_text("#!/bin/sh\nread line; case $line in *never*) sleep 600;; esac; printf hi\n")
    file.chmod(0o755)
    backend = CommandBackend(CommandOptions(argv=(str(file),)), name=MODEL, threads=1)
    await backend.start()
    yield backend
    await backend.close()


@contextlib.asynccontextmanager
async def openai(_: Path) -> AsyncIterator[Backend]:
    """Its server has one slot, which only a client that hangs up gives back."""
    busy = False

    async def drips(asked: Asked) -> web.StreamResponse:
        nonlocal busy
        assert not busy
        slow = asked.body["messages"][-1]["content"] == SLOW.decode()
        busy = True
        try:
            response = await asked.stream(piece("x", None if slow else "stop"))
            if slow:
                await asked.hang()
            return response
        finally:
            busy = False

    async with serving(Scripted(drips)) as script:
        options = OpenAIOptions(base_url=f"{script.url}/v1", model="m")
        backend = OpenAIBackend(options, name=MODEL)
        await backend.start()
        yield backend
        await backend.close()


@contextlib.asynccontextmanager
async def markov(_: Path) -> AsyncIterator[Backend]:
    backend = MarkovBackend(name=MODEL, latency_s=0.0, threads=1)
    generate = backend._generate

    def slow_generate(text: str, count: int, stop: Callable[[], bool]) -> list[str]:
        backend._latency_s = 600.0 if text == SLOW.decode() else 0.0
        return generate(text, count, stop)

    backend._generate = slow_generate  # type: ignore[method-assign]
    yield backend
    await backend.close()


@pytest.mark.parametrize(
    "made", [llamacpp, command, openai, markov], ids=lambda kind: kind.__name__
)
async def test_it_ends_what_computes(
    tmp_path: Path, made: Callable[[Path], AbstractAsyncContextManager[Backend]]
) -> None:
    async with (
        made(tmp_path) as backend,
        an_agent(tmp_path, backend, slots=1) as (agent, operator),
    ):
        late = await operator.ask(a_request(1, SLOW, deadline_in_s=2))
        assert isinstance(late, ErrorBody), late
        assert late.code == "failed"
        assert agent.jobs.running == 0
        done = await operator.ask(a_request(2, b"and the next is"))
        assert isinstance(done, JobDone), done
