"""Content from a real HTTP server: within the limits, with the right hash, or not at all."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from inferd.inputs.fetch import Fetcher, FetchLimits
from inferd.inputs.source import NeverHad, NotNow, input_of
from inferd.net.reach import OWN_MACHINE_AND_NETWORKS, PUBLIC, Reach

CONTENT = b"once upon a time"
_CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"


@dataclass
class Server:
    """What strangers may answer."""

    url: str = ""
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        what = request.path.removeprefix("/")
        if what.endswith("/leave"):
            raise web.HTTPFound(self.url + "/content")
        if what == "missing":
            raise web.HTTPNotFound
        if what == "moved":
            raise web.HTTPFound(self.url + "/content")
        if what == "round":
            raise web.HTTPFound("/round")
        if what == "inside":
            raise web.HTTPFound("http://169.254.169.254/latest/meta-data/")
        if what == "elsewhere":
            raise web.HTTPFound("file:///etc/passwd")
        if what == "bomb":
            bomb = zlib.compress(bytes(10_000_000))
            return web.Response(body=bomb, headers={"content-encoding": "deflate"})
        if what == "large":
            return await self._drip(request, 1_000, pause_s=0)
        if what == "slow":
            return await self._drip(request, 1_000_000, pause_s=0.05)
        return web.Response(body=CONTENT)

    async def _drip(
        self, request: web.Request, pieces: int, *, pause_s: float
    ) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(pieces):
            await response.write(b"x" * 7 if pause_s else b"x" * 1_000)
            await asyncio.sleep(pause_s)
        return response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_route("GET", "/{anything:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def _fetch(
    uri: str,
    *,
    content: bytes = CONTENT,
    reach: Reach = OWN_MACHINE_AND_NETWORKS,
    timeout_s: float = 20,
    **settings: Any,
) -> bytes:
    fetcher = Fetcher(reach, FetchLimits(100_000, timeout_s), **settings)
    try:
        return await fetcher.fetch(input_of(content, uri))
    finally:
        await fetcher.close()


async def test_content_with_its_hash_is_had(server: Server) -> None:
    assert await _fetch(server.url + "/content?version=2") == CONTENT
    assert server.asked == ["/content?version=2"]
    assert await _fetch("data:,once%20upon%20a%20time") == CONTENT


async def test_a_redirect_is_followed_and_judged_anew(server: Server) -> None:
    assert await _fetch(server.url + "/moved") == CONTENT
    for inside in ("inside", "elsewhere"):
        with pytest.raises(NeverHad):
            await _fetch(f"{server.url}/{inside}")
    with pytest.raises(NeverHad, match="more than 3 times"):
        await _fetch(server.url + "/round")


async def test_content_that_is_missing_may_come_yet(server: Server) -> None:
    with pytest.raises(NotNow, match="HTTP 404"):
        await _fetch(server.url + "/missing")


async def test_what_can_never_be_had(server: Server) -> None:
    with pytest.raises(NeverHad, match="another hash"):
        await _fetch(server.url + "/content", content=b"something else")
    with pytest.raises(NeverHad, match="more than 100000 bytes"):
        await _fetch(server.url + "/large")


async def test_a_bomb_is_not_unpacked(server: Server) -> None:
    with pytest.raises(NotNow, match="compressed"):
        await _fetch(server.url + "/bomb", content=bytes(10_000_000))


async def test_a_slow_drip_is_cut(server: Server) -> None:
    with pytest.raises(NotNow, match="within"):
        await _fetch(server.url + "/slow", timeout_s=0.5)


async def test_strangers_lead_nowhere_inside(server: Server) -> None:
    with pytest.raises(NeverHad, match="loopback"):
        await _fetch(server.url + "/content", reach=PUBLIC)
    with pytest.raises(NeverHad, match="loopback"):
        await _fetch(server.url.replace("127.0.0.1", "localhost"), reach=PUBLIC)
    assert server.asked == []


async def test_the_operators_gateway_may_be_inside_but_leads_nowhere_else(server: Server) -> None:
    uri = f"ipfs://{_CID}/a.txt"
    assert await _fetch(uri, reach=PUBLIC, ipfs_gateway=server.url) == CONTENT
    assert server.asked == [f"/ipfs/{_CID}/a.txt"]
    with pytest.raises(NeverHad, match="loopback"):
        await _fetch(f"ipfs://{_CID}/leave", reach=PUBLIC, ipfs_gateway=server.url)


async def test_where_nobody_listens_it_may_come_yet(server: Server) -> None:
    with pytest.raises(NotNow):
        await _fetch("http://127.0.0.1:1/")
