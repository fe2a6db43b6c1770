"""Proxies between the daemon and the chain: one that can be taken away, one that is slow."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

import aiohttp
from aiohttp import web


class TcpProxy:
    """Forwards a local port to another; `down` cuts all connections and refuses new ones."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> TcpProxy:
        await self.up()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.down()

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._writers |= {writer, far_writer}
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            self._writers -= {writer, far_writer}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class SlowHttp:
    """Forwards JSON-RPC over HTTP, each answer late."""

    def __init__(self, target: str, *, delay_s: float) -> None:
        self._target = target
        self._delay_s = delay_s
        self.url = ""

    async def __aenter__(self) -> SlowHttp:
        self._session = aiohttp.ClientSession()
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/", self._forward)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _forward(self, request: web.Request) -> web.Response:
        body = await request.read()
        await asyncio.sleep(self._delay_s)
        headers = {"content-type": "application/json"}
        async with self._session.post(self._target, data=body, headers=headers) as answer:
            return web.Response(body=await answer.read(), content_type="application/json")
