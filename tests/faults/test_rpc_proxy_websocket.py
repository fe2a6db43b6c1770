"""The fault proxy over a websocket: heads and calls, late, twice, cut off, never."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil
from tests.faults.exchange import NEWS
from tests.faults.rpc_faults import (
    Delay,
    ErrorObject,
    Fault,
    HangUp,
    LagHead,
    NullResult,
    Repeat,
    Silence,
    Truncate,
)
from tests.faults.rpc_plans import Always, InOrder
from tests.faults.rpc_proxy import RpcProxy, rpc_proxy

HEADS = frozenset([NEWS])


@pytest.fixture
async def proxy(anvil: Anvil) -> AsyncIterator[RpcProxy]:
    async with rpc_proxy(anvil.url) as running:
        yield running


@pytest.fixture
async def socket(proxy: RpcProxy) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(proxy.websocket_url) as opened,
    ):
        yield opened


async def ask(
    socket: aiohttp.ClientWebSocketResponse, call_id: int, method: str, *params: Any
) -> None:
    await socket.send_json(
        {"jsonrpc": "2.0", "id": call_id, "method": method, "params": list(params)}
    )


async def heard(socket: aiohttp.ClientWebSocketResponse) -> Any:
    async with asyncio.timeout(10):
        return await socket.receive_json()


async def mine(proxy: RpcProxy, blocks: int = 1) -> None:
    async with Rpc([proxy.upstream]) as rpc:
        await rpc.request("anvil_mine", [hex(blocks)])


async def test_calls_and_heads__calm__pass(
    proxy: RpcProxy, socket: aiohttp.ClientWebSocketResponse
) -> None:
    await ask(socket, 5, "eth_subscribe", "newHeads")
    answer = await heard(socket)
    assert answer["id"] == 5
    await mine(proxy, 2)
    heads = [await heard(socket) for _ in range(2)]
    assert [head["params"]["result"]["number"] for head in heads] == ["0x1", "0x2"]
    assert {head["params"]["subscription"] for head in heads} == {answer["result"]}
    body = [{"jsonrpc": "2.0", "id": n, "method": "eth_blockNumber"} for n in (7, 8)]
    await socket.send_json([one | {"params": []} for one in body])
    assert {entry["id"]: entry["result"] for entry in await heard(socket)} == {7: "0x2", 8: "0x2"}


async def test_delayed_answer__is_overtaken(
    proxy: RpcProxy, socket: aiohttp.ClientWebSocketResponse
) -> None:
    proxy.plan = InOrder([Delay(0.3)], frozenset(["eth_chainId"]))
    await ask(socket, 1, "eth_chainId")
    await ask(socket, 2, "eth_blockNumber")
    assert [(await heard(socket))["id"] for _ in range(2)] == [2, 1]


async def test_head__twice_and_one_left_out(
    proxy: RpcProxy, socket: aiohttp.ClientWebSocketResponse
) -> None:
    await ask(socket, 1, "eth_subscribe", "newHeads")
    await heard(socket)
    proxy.plan = InOrder([Silence(), Repeat(), None], HEADS)
    await mine(proxy, 3)
    heads = [await heard(socket) for _ in range(3)]
    assert [head["params"]["result"]["number"] for head in heads] == ["0x2", "0x2", "0x3"]


async def test_null_result__over_a_websocket(
    proxy: RpcProxy, socket: aiohttp.ClientWebSocketResponse
) -> None:
    proxy.plan = Always([NullResult()])
    await ask(socket, 1, "eth_blockNumber")
    assert await heard(socket) == {"jsonrpc": "2.0", "id": 1, "result": None}


async def test_lagging_node__over_a_websocket(
    proxy: RpcProxy, socket: aiohttp.ClientWebSocketResponse
) -> None:
    await mine(proxy, 3)
    proxy.plan = InOrder([LagHead(2), ErrorObject(-32005, "slow down"), None])
    for call_id in (4, 5, 6):
        await ask(socket, call_id, "eth_blockNumber")
    answers = {answer["id"]: answer for answer in [await heard(socket) for _ in range(3)]}
    assert answers[4]["result"] == "0x1"
    assert answers[5]["error"] == {"code": -32005, "message": "slow down"}
    assert answers[6]["result"] == "0x3"


async def test_truncated_message__is_no_json(
    proxy: RpcProxy, socket: aiohttp.ClientWebSocketResponse
) -> None:
    proxy.plan = Always([Truncate()])
    await ask(socket, 1, "eth_blockNumber")
    with pytest.raises(json.JSONDecodeError):
        await heard(socket)


@pytest.mark.parametrize("fault", [HangUp(), HangUp(0.5)])
async def test_hang_up__in_mid_message__socket_is_closed(
    proxy: RpcProxy, socket: aiohttp.ClientWebSocketResponse, fault: Fault
) -> None:
    proxy.plan = Always([fault])
    await ask(socket, 1, "eth_blockNumber")
    async with asyncio.timeout(10):
        message = await socket.receive()
    assert message.type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}


async def test_cut__all_sockets_are_gone(
    proxy: RpcProxy, socket: aiohttp.ClientWebSocketResponse
) -> None:
    await ask(socket, 1, "eth_blockNumber")
    await heard(socket)
    proxy.cut_websockets()
    async with asyncio.timeout(10):
        assert (await socket.receive()).type in {
            aiohttp.WSMsgType.CLOSED,
            aiohttp.WSMsgType.ERROR,
        }
