"""A proxy that speaks JSON-RPC over HTTP and websocket and does to it what a plan says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web

from tests.faults.exchange import NEWS, Exchange
from tests.faults.rpc_plans import Calm, Plan


@dataclass
class RpcProxy:
    """Stands before the node at `upstream`, an http:// URL that also answers websockets."""

    upstream: str
    plan: Plan = field(default_factory=Calm)
    url: str = ""
    exchanges: int = 0
    _session: aiohttp.ClientSession | None = None
    _sockets: set[web.WebSocketResponse] = field(default_factory=set)

    @property
    def websocket_url(self) -> str:
        return self.url.replace("http://", "ws://")

    def cut_websockets(self) -> None:
        """Closes every websocket at once, without a word."""
        for socket in self._sockets:
            _transport(socket).abort()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._websocket(request)
        exchange = Exchange(await request.json(), self._ask)
        await self._apply(exchange)
        return await _send_http(request, exchange)

    async def _ask(self, body: Any) -> Any:
        assert self._session is not None
        async with self._session.post(self.upstream, json=body) as got:
            return await got.json(content_type=None)

    async def _apply(self, exchange: Exchange) -> None:
        self.exchanges += 1
        for fault in self.plan.faults(exchange):
            await fault.apply(exchange)
        if exchange.text is None:
            await exchange.answers()

    async def _websocket(self, request: web.Request) -> web.WebSocketResponse:
        near = web.WebSocketResponse(max_msg_size=1 << 26)
        await near.prepare(request)
        assert self._session is not None
        async with (
            self._session.ws_connect(self.upstream.replace("http", "ws", 1), max_msg_size=0) as far,
            asyncio.TaskGroup() as group,
        ):
            self._sockets.add(near)
            relay = _Relay(self, near, far, group)
            listening = group.create_task(relay.listen_far())
            try:
                await relay.listen_near()
            finally:
                self._sockets.discard(near)
                listening.cancel()
                relay.stop()
        return near


class _Relay:
    """One websocket: calls go through faults one by one, in tasks, so one may overtake another."""

    def __init__(
        self,
        proxy: RpcProxy,
        near: web.WebSocketResponse,
        far: aiohttp.ClientWebSocketResponse,
        group: asyncio.TaskGroup,
    ) -> None:
        self._proxy, self._near, self._far, self._group = proxy, near, far, group
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ids = count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen_near(self) -> None:
        async for message in self._near:
            if message.type is WSMsgType.TEXT:
                self._start(Exchange(json.loads(message.data), self._ask, "websocket"))

    async def listen_far(self) -> None:
        async for message in self._far:
            if message.type is not WSMsgType.TEXT:
                continue
            said = json.loads(message.data)
            if isinstance(said, dict) and said.get("method") == NEWS:
                self._start(Exchange(said, self._ask, "websocket", answer=said))
                continue
            one = said[0] if isinstance(said, list) else said
            waiting = self._waiting.pop(one["id"] // _SPREAD, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(said)
        _transport(self._near).abort()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _ask(self, body: Any) -> Any:
        """Asks over the websocket, under ids of our own: a client may use the same ones twice."""
        calls = body if isinstance(body, list) else [body]
        ours = next(self._ids)
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[ours] = waiting
        own = [call | {"id": ours * _SPREAD + at} for at, call in enumerate(calls)]
        await self._far.send_str(json.dumps(own if isinstance(body, list) else own[0]))
        said = await waiting
        for answer in said if isinstance(said, list) else [said]:
            answer["id"] = calls[answer["id"] % _SPREAD]["id"]
        return said

    def _start(self, exchange: Exchange) -> None:
        task = self._group.create_task(self._serve(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, exchange: Exchange) -> None:
        await self._proxy._apply(exchange)
        with contextlib.suppress(ConnectionError):
            await self._send(exchange)

    async def _send(self, exchange: Exchange) -> None:
        text = exchange.text if exchange.text is not None else json.dumps(exchange.answer)
        if exchange.hang_up_after is not None:
            transport = _transport(self._near)
            transport.write(_frame_part(text.encode(), exchange.hang_up_after))
            transport.close()
            return
        if exchange.cut is not None:
            text = text[: int(len(text) * exchange.cut)]
        for _ in range(exchange.copies):
            await self._near.send_str(text)


_SPREAD = 1_000
"""Ids towards the node are multiples of it, plus the place in a batch."""


def _frame_part(payload: bytes, share: float) -> bytes:
    """The beginning of a websocket text frame that promises all of the payload."""
    if share == 0:
        return b""
    head = bytes([0x81, 127]) + len(payload).to_bytes(8, "big")
    return head + payload[: int(len(payload) * share)]


async def _send_http(request: web.Request, exchange: Exchange) -> web.StreamResponse:
    body = (exchange.text if exchange.text is not None else json.dumps(exchange.answer)).encode()
    if exchange.cut is not None:
        body = body[: int(len(body) * exchange.cut)]
    headers = {"Content-Type": "application/json"} | exchange.http_headers
    if exchange.hang_up_after is None:
        return web.Response(body=body, status=exchange.http_status, headers=headers)
    response = web.StreamResponse(status=exchange.http_status, headers=headers)
    if exchange.hang_up_after > 0:
        response.content_length = len(body)
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            await response.write(body[: int(len(body) * exchange.hang_up_after)])
    if request.transport is not None:
        request.transport.close()
    return response


def _transport(socket: web.WebSocketResponse) -> Any:
    request = socket._req
    assert request is not None
    return request.transport or _Gone()


class _Gone:
    """The transport of a connection that is closed already."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@contextlib.asynccontextmanager
async def rpc_proxy(upstream: str, plan: Plan | None = None) -> AsyncIterator[RpcProxy]:
    proxy = RpcProxy(upstream, plan or Calm())
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{tail:.*}", proxy.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    async with aiohttp.ClientSession() as session:
        proxy._session = session
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield proxy
        finally:
            proxy.cut_websockets()
            await runner.cleanup()
