"""The websocket that tells of new blocks: a trigger, with a watchdog, and polling behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from indexer.database import Pool
from indexer.errors import BadRpcUrl
from indexer.rpc.heads import HeadTrigger, quiet_limit_s
from indexer.rpc.member import ChainIdentity
from indexer.types import Hash32
from inferd.chain.anvil import Anvil, free_port
from tests.indexer.scripted import scripted_node
from tests.indexer.world import World, caught_up, running

GENESIS = "0x" + "aa" * 32
OURS = ChainIdentity(7, Hash32(b"\xaa" * 32))
HEAD = {"jsonrpc": "2.0", "method": "eth_subscription", "params": {"subscription": "0x1"}}


@dataclass
class SocketNode:
    """A websocket endpoint that says what a test tells it to."""

    answers: dict[str, Any] = field(
        default_factory=lambda: {
            "eth_chainId": "0x7",
            "eth_getBlockByNumber": {
                "number": "0x0",
                "hash": GENESIS,
                "parentHash": "0x" + "00" * 32,
                "timestamp": "0x64",
                "gasUsed": "0x0",
                "gasLimit": "0x1c9c380",
                "logsBloom": "0x" + "00" * 256,
            },
            "eth_subscribe": "0x1",
        }
    )
    sockets: list[web.WebSocketResponse] = field(default_factory=list)
    """Of all connections there ever were, in their order."""
    asked: list[str] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        async for message in socket:
            call = message.json()
            self.asked.append(call["method"])
            answer = self.answers[call["method"]]
            # A head may come between a question and its answer.
            await socket.send_json(HEAD)
            if isinstance(answer, Exception):
                error = {"code": -32601, "message": str(answer)}
                await socket.send_json({"id": call["id"], "error": error})
            else:
                await socket.send_json({"jsonrpc": "2.0", "id": call["id"], "result": answer})
        return socket

    async def tell(self) -> None:
        await self.sockets[-1].send_json(HEAD)


@contextlib.asynccontextmanager
async def socket_node() -> AsyncIterator[SocketNode]:
    node = SocketNode()
    app = web.Application()
    app.router.add_get("/{tail:.*}", node.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    node.url = f"ws://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield node
    finally:
        await runner.cleanup()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def rings(wait: Callable[[float], Awaitable[None]]) -> bool:
    """Whether the next head ends the wait, and not its end."""
    try:
        async with asyncio.timeout(5):
            await wait(60)
    except TimeoutError:
        return False
    return True


def ws_url(anvil: Anvil) -> str:
    return anvil.url.replace("http", "ws")


async def test_new_block__indexed_without_waiting_for_the_poll(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    identity = ChainIdentity(world.contracts.chain_id, world.genesis_hash)
    heads = HeadTrigger([ws_url(anvil)], identity)
    indexer = world.indexer(pool, heads=heads, poll_interval_s=3_600)
    async with running(indexer):
        await until(lambda: heads.status.live)
        for _ in range(3):
            await world.submit()
            head = (await world.head()).number
            await until(lambda head=head: indexer.status.indexed == head)
    assert not heads.status.reconnects
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 3


async def test_no_socket_answers__polling_goes_on_and_status_says_why(
    world: World, pool: Pool
) -> None:
    identity = ChainIdentity(world.contracts.chain_id, world.genesis_hash)
    heads = HeadTrigger([f"ws://127.0.0.1:{free_port()}/hunter2secret"], identity)
    indexer = world.indexer(pool, heads=heads)
    async with running(indexer):
        await world.submit()
        await caught_up(indexer, world)
        await until(lambda: heads.status.reason)
    assert not heads.status.live
    assert heads.status.reason == "Connection refused"
    assert "hunter2" not in str(heads.status)


async def test_heads__ring_once_however_many() -> None:
    async with socket_node() as node:
        heads = HeadTrigger([node.url], OURS)
        async with heads.listening() as wait:
            assert await rings(wait), "connected: what was missed before is looked for"
            for _ in range(3):
                await node.tell()
                assert await rings(wait)
            assert node.asked == ["eth_chainId", "eth_getBlockByNumber", "eth_subscribe"]


async def test_wait__nothing_comes__ends_by_itself() -> None:
    async with socket_node() as node, HeadTrigger([node.url], OURS).listening() as wait:
        assert await rings(wait)
        await asyncio.wait_for(wait(0.01), 5)
        await asyncio.wait_for(wait(0.01), 5)


async def test_silent_socket__watchdog_connects_again() -> None:
    async with socket_node() as node:
        heads = HeadTrigger([node.url], OURS, quiet_limit=lambda _: 0.05)
        async with heads.listening() as wait:
            await until(lambda: len(node.sockets) >= 2)
            assert await rings(wait)
            await until(lambda: heads.status.reconnects)


async def test_closed_socket__connects_again_and_rings() -> None:
    async with socket_node() as node:
        heads = HeadTrigger([node.url], OURS)
        async with heads.listening() as wait:
            assert await rings(wait)
            await node.sockets[0].close()
            await until(lambda: heads.status.reason == "it closed the socket")
            assert not heads.status.live
            assert await rings(wait), "a head that came meanwhile is looked for"
            assert heads.status.live
            assert heads.status.reason is None


@pytest.mark.parametrize(
    ("method", "answer", "reason"),
    [
        ("eth_chainId", "0x8", "it serves another chain"),
        ("eth_chainId", "seven", "it cannot be understood"),
        ("eth_getBlockByNumber", {"hash": "0x"}, "it cannot be understood"),
        ("eth_subscribe", ValueError("hunter2secret has no such method"), "refuses eth_subscribe"),
    ],
)
async def test_unusable_socket__the_next_is_tried(method: str, answer: Any, reason: str) -> None:
    async with socket_node() as bad, socket_node() as good:
        bad.answers[method] = answer
        heads = HeadTrigger([bad.url + "/hunter2secret", good.url], OURS)
        async with heads.listening() as wait:
            await until(lambda: heads.status.reason)
            assert reason in (heads.status.reason or "")
            assert "hunter2" not in str(heads.status)
            assert await rings(wait)
            assert heads.status.endpoint == good.url


async def test_socket_of_a_chain_with_our_id_and_another_first_block__not_used() -> None:
    async with socket_node() as node:
        node.answers["eth_getBlockByNumber"]["hash"] = "0x" + "bb" * 32
        heads = HeadTrigger([node.url], OURS)
        async with heads.listening():
            await until(lambda: heads.status.reason == "it serves another chain")
        assert "eth_subscribe" not in node.asked


async def test_several_that_do_not_serve__each_told_of_once() -> None:
    async with socket_node() as foreign, scripted_node() as no_socket:
        foreign.answers["eth_chainId"] = "0x8"
        urls = [f"ws://127.0.0.1:{free_port()}", foreign.url, no_socket.url.replace("http", "ws")]
        heads = HeadTrigger(urls, OURS)
        with capture_logs() as logs:
            async with heads.listening():
                # One of them for the second time; the pauses between them double.
                await until(lambda: heads.status.reconnects > 3)
    told = [(entry["endpoint"], entry["because"]) for entry in logs]
    assert told == [
        (urls[0], "Connection refused"),
        (urls[1], "it serves another chain"),
        (urls[2], "HTTP 405 instead of a websocket"),
    ]


async def test_garbage_on_the_socket__connects_again() -> None:
    async with socket_node() as node:
        heads = HeadTrigger([node.url], OURS)
        async with heads.listening() as wait:
            assert await rings(wait)
            await node.sockets[0].send_str("[" * 10_000)
            await until(lambda: heads.status.reason == "it sent what is no JSON-RPC")


def test_quiet_limit__some_block_intervals_and_never_hasty() -> None:
    assert quiet_limit_s(None) == 60
    assert quiet_limit_s(0.25) == 15
    assert quiet_limit_s(12.0) == 60


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8545", "ws://", "ws://hunter2..x", "hunter2secret"]
)
def test_url_of_no_websocket__says_so_without_showing_it(url: str) -> None:
    with pytest.raises(BadRpcUrl, match="ws:// or wss://") as caught:
        HeadTrigger([url], OURS)
    assert "hunter2" not in str(caught.value)
    assert "rpc_ws_urls" in caught.value.help_text


async def test_stopped_in_the_moment_of_a_head__stops() -> None:
    trigger = HeadTrigger([f"ws://127.0.0.1:{free_port()}"], OURS)
    async with trigger.listening() as head_or_timeout:
        waiting = asyncio.create_task(head_or_timeout(60))
        await asyncio.sleep(0)
        trigger._rung.set()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
