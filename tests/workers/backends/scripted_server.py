"""A server with OpenAI's API that does what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[["Asked"], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    """One request, as it came."""

    request: web.Request
    body: dict[str, Any]

    async def stream(self, *pieces: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(self.request)
        for piece in pieces:
            await response.write(piece)
        return response

    async def hang(self) -> None:
        """Until the other side hangs up."""
        transport = self.request.transport
        while transport is not None and not transport.is_closing():
            await asyncio.sleep(0.01)


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def piece(text: str | None = None, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


def usage(prompt: int = 3, completion: int = 2) -> bytes:
    tokens = {"prompt_tokens": prompt, "completion_tokens": completion}
    return event({"choices": [], "usage": tokens})


DONE = event(b"[DONE]")
HELLO = (piece("Hel"), piece("lo"), piece(finish="stop"), usage(), DONE)


async def hello(asked: Asked) -> web.StreamResponse:
    return await asked.stream(*HELLO)


def refusal(status: int, error: Any = None, **headers: str) -> Answer:
    async def answer(_: Asked) -> web.StreamResponse:
        return web.json_response({"error": error or {}}, status=status, headers=headers)

    return answer


@dataclass
class Scripted:
    """The server, its address, and what it was asked."""

    answer: Answer = hello
    """Of the paths that make something of a prompt."""
    models: Any = field(default_factory=lambda: {"data": [{"id": "m", "owned_by": "vllm"}]})
    facts: dict[str, Any] = field(default_factory=lambda: {"/version": {"version": "0.9"}})
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    open: int = 0
    """Answers that are being written."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/models":
            if isinstance(self.models, web.Response):
                return self.models
            return web.json_response(self.models)
        if request.path in self.facts:
            return web.json_response(self.facts[request.path])
        if not request.path.startswith("/v1/"):
            return web.Response(status=404)
        asked = Asked(request, await request.json())
        self.asked.append(asked)
        self.open += 1
        try:
            return await self.answer(asked)
        finally:
            self.open -= 1


@contextlib.asynccontextmanager
async def serving(script: Scripted, ssl: Any = None) -> AsyncIterator[Scripted]:
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", script.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl)
        await site.start()
        host, port = runner.addresses[0][:2]
        script.url = f"http{'s' if ssl else ''}://{host}:{port}"
        yield script
    finally:
        await runner.cleanup()
