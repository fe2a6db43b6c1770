"""An RPC node that says what a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession, web

Answer = web.Response | dict[str, Any] | list[Any]
Script = Callable[[Any], Awaitable[Answer | None]]


@dataclass
class ScriptedNode:
    """Passes calls on to `upstream`, unless `script` returns an answer of its own."""

    upstream: str | None = None
    script: Script | None = None
    calls: list[Any] = field(default_factory=list)
    url: str = ""
    runner: web.AppRunner | None = None

    async def stop(self) -> None:
        """Takes it off the network."""
        assert self.runner is not None
        await self.runner.cleanup()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.calls.append(body)
        answer = await self.script(body) if self.script else None
        if answer is None:
            assert self.upstream is not None, "the script has no answer, and there is no upstream"
            async with ClientSession() as session, session.post(self.upstream, json=body) as got:
                answer = await got.json()
        if isinstance(answer, web.Response):
            return answer
        return web.json_response(answer)


@contextlib.asynccontextmanager
async def scripted_node(
    upstream: str | None = None, script: Script | None = None
) -> AsyncIterator[ScriptedNode]:
    node = ScriptedNode(upstream, script)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{tail:.*}", node.handle)
    runner = node.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    node.url = f"http://127.0.0.1:{port}"
    try:
        yield node
    finally:
        await runner.cleanup()


def result(body: Any, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": body["id"], "result": value}


@dataclass
class Proxy:
    """A TCP proxy whose far end can be unplugged."""

    port: int
    upstream_port: int
    plugged: bool = True
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def unplug(self) -> None:
        self.plugged = False
        for writer in self.writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.plugged:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        self.writers |= {writer, far_writer}
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@contextlib.asynccontextmanager
async def proxy_to(upstream_port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(0, upstream_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.unplug()
        server.close()
