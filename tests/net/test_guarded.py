"""Calls to servers that do not mean well."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from inferd.net.guarded import (
    ExchangeError,
    Forbidden,
    GuardedClient,
    Limits,
    Malformed,
    TooLarge,
    TooSlow,
    Unreachable,
    checked_url,
)
from inferd.net.reach import OWN_MACHINE_AND_NETWORKS, PUBLIC, Reach

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LIMITS = Limits(max_bytes=1000, connect_s=20, head_s=20, body_s=20)


class Server:
    """One handler for every path, and how often it was called."""

    def __init__(self, handler: Handler) -> None:
        self.calls: list[web.Request] = []
        self._handler = handler
        self.ended = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.calls.append(request)
        try:
            return await self._handler(request)
        finally:
            self.ended.set()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self.handle)
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.port: int = self.runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}/a"


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Handler], Awaitable[Server]]]:
    started: list[Server] = []

    async def start(handler: Handler) -> Server:
        server = Server(handler)
        await server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        await server.runner.cleanup()


@pytest.fixture
async def client() -> AsyncIterator[GuardedClient]:
    async with GuardedClient(OWN_MACHINE_AND_NETWORKS) as made:
        yield made


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


async def test_an_answer_comes_back_whole(serve: Any, client: GuardedClient) -> None:
    server = await serve(hello)
    answer = await client.call("POST", server.url + "/%2f?x=%20", LIMITS, body=b"x")
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert server.calls[0].raw_path == "/a/%2f?x=%20", "the path is sent as it is written"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
async def test_no_connection_is_made_to_what_may_not_be_reached(serve: Any, host: str) -> None:
    server = await serve(hello)
    async with GuardedClient(PUBLIC) as client:
        with pytest.raises(Forbidden, match="loopback"):
            await client.get(f"http://{host}:{server.port}/", LIMITS)
    assert server.calls == []


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "0177.0.0.1"])
async def test_old_ways_to_write_an_address_lead_nowhere(serve: Any, host: str) -> None:
    server = await serve(hello)
    async with GuardedClient(PUBLIC) as client:
        with pytest.raises(Forbidden):  # no other try would end otherwise
            await client.get(f"http://{host}:{server.port}/", LIMITS)
    assert server.calls == []


async def test_a_name_that_changes_its_meaning_leads_where_it_was_judged(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second lookup, were there one, would lead to this machine."""
    server = await serve(hello)
    asked: list[str] = []

    def rebinding(host: str, port: int, *_: object) -> list[tuple[Any, ...]]:
        asked.append(host)
        address = "127.0.0.2" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr("socket.getaddrinfo", rebinding)
    async with GuardedClient(Reach.of(["127.0.0.2/32"])) as client:
        with pytest.raises(Unreachable):  # nobody listens there, and it was tried
            await client.get(f"http://rebinding.example:{server.port}/", LIMITS)
    async with GuardedClient(Reach.of(["127.0.0.2/32"])) as client:
        with pytest.raises(Forbidden):
            await client.get(f"http://rebinding.example:{server.port}/", LIMITS)
    assert asked == ["rebinding.example"] * 2
    assert server.calls == []


async def test_of_several_addresses_only_allowed_ones_are_tried(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(hello)

    def two(host: str, port: int, *_: object) -> list[tuple[Any, ...]]:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("10.9.9.9",)]
        return [*found, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("socket.getaddrinfo", two)
    async with GuardedClient(Reach.of(["127.0.0.0/8"])) as client:
        assert (await client.get(f"http://both.example:{server.port}/", LIMITS)).status == 200


async def test_a_name_server_that_hangs_holds_up_neither_others_nor_the_end(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(hello)
    hung, real = threading.Event(), socket.getaddrinfo

    def slow(host: str, *rest: Any) -> Any:
        if host == "slow.example":
            hung.wait()
            raise OSError("too late")
        return real(host, *rest)

    monkeypatch.setattr("socket.getaddrinfo", slow)
    async with GuardedClient(OWN_MACHINE_AND_NETWORKS) as client:
        with pytest.raises(TooSlow, match="no connection"):
            await client.get("http://slow.example/", Limits(1000, connect_s=0.1))
        assert (await client.get(f"http://localhost:{server.port}/", LIMITS)).body == b"hello"
        await asyncio.to_thread(lambda: None)  # the loop's own threads are free
    lookups = [thread for thread in threading.enumerate() if thread.name == "lookup"]
    assert all(thread.daemon for thread in lookups)
    hung.set()


async def test_redirects_are_not_followed(serve: Any, client: GuardedClient) -> None:
    target = await serve(hello)

    async def away(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": target.url})

    server = await serve(away)
    assert (await client.get(server.url, LIMITS)).status == 302
    assert target.calls == []


async def drip(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b".")
        await asyncio.sleep(0.01)


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_slow_drip_is_cut_and_its_connection_closed(
    serve: Any, client: GuardedClient
) -> None:
    server = await serve(drip)
    with pytest.raises(TooSlow, match="does not end"):
        await client.get(server.url, Limits(10**9, body_s=0.2))
    await asyncio.wait_for(server.ended.wait(), 30)


async def test_an_answer_that_does_not_begin_is_not_waited_for(
    serve: Any, client: GuardedClient
) -> None:
    server = await serve(never)
    with pytest.raises(TooSlow, match="no answer"):
        await client.get(server.url, Limits(1000, connect_s=2.0, head_s=0.1))
    await asyncio.wait_for(server.ended.wait(), 30)


@pytest.mark.parametrize("told", [True, False])
async def test_an_answer_that_is_too_large_is_not_read(
    serve: Any, client: GuardedClient, told: bool
) -> None:
    async def huge(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if told:
            response.content_length = 10**12
        await response.prepare(request)
        while True:
            await response.write(bytes(65536))

    server = await serve(huge)
    with pytest.raises(TooLarge):
        await client.get(server.url, LIMITS)
    await asyncio.wait_for(server.ended.wait(), 30)


async def test_compressed_answers_are_refused_unread(serve: Any, client: GuardedClient) -> None:
    async def bomb(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        body = gzip.compress(bytes(10**6))
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    server = await serve(bomb)
    with pytest.raises(Malformed, match="compressed"):
        await client.get(server.url, Limits(10**9))


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"rubbish\r\n\r\n", Malformed),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\nx", Malformed),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nshort", Unreachable),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n50\r\nshort", Unreachable),
        (b"HTTP/1.1 200 OK\r\ncontent-le", Unreachable),
        (b"", Unreachable),
    ],
)
async def test_what_is_no_http_is_told_from_a_connection_that_broke(
    client: GuardedClient, said: bytes, kind: type[ExchangeError]
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(kind) as caught:
            await client.get(f"http://127.0.0.1:{port}/hidden", LIMITS)
    assert "hidden" not in caught.value.reason


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "http://",
        "http://user:password@example.org/",
        "http://user@example.org/",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://exa mple.org/",
        "http://example.org/\r\nHost: other",
        "http://example.org\\@other/",
        "http://[::1/",
        "http://a..b/",
        "http://example.org/" + "x" * 3000,
        "",
    ],
)
async def test_other_urls_are_refused(url: str, client: GuardedClient) -> None:
    with pytest.raises(Forbidden):
        checked_url(url)
    with pytest.raises(Forbidden):
        await client.get(url, LIMITS)


async def test_a_call_on_a_connection_that_was_closed_meanwhile_is_sent_again(
    client: GuardedClient,
) -> None:
    answers = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answers
        await reader.readuntil(b"\r\n\r\n")
        answers += 1
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await writer.drain()
        # The next request on this connection finds it closed.
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server:
        assert (await client.get(url, LIMITS)).body == b"ok"
        with pytest.raises(Unreachable):
            await client.call("GET", url, LIMITS, repeatable=False)
        assert (await client.get(url, LIMITS)).body == b"ok"
        assert (await client.call("POST", url, LIMITS)).body == b"ok"
    assert answers == 3
