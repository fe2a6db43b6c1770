"""Endpoints that are only sent to."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from indexer.errors import RpcUnreachable, WrongChain
from indexer.rpc import ChainIdentity, Rpc, RpcError
from indexer.types import Hash32
from tests.indexer.scripted import Script, ScriptedNode, result, scripted_node

CHAIN = ChainIdentity(31337, Hash32(b"\x11" * 32))
TX = "0x" + "ab" * 32
RAW = b"\x02\xc0"


def relay(send: str | None = None, *, chain: str | None = "0x7a69") -> Script:
    """Takes transactions, or refuses them in those words; knows its chain's id, if it has one."""

    async def script(body: Any) -> Any:
        method = body["method"]
        if method == "eth_sendRawTransaction" and send is None:
            return result(body, TX)
        if method == "eth_chainId" and chain is not None:
            return result(body, chain)
        words = send if method == "eth_sendRawTransaction" else "method not found"
        return {"jsonrpc": "2.0", "id": body["id"], "error": {"code": -32601, "message": words}}

    return script


async def gone(body: Any) -> Any:
    return web.Response(status=503)


def methods(node: ScriptedNode) -> list[str]:
    return [call["method"] for call in node.calls]


async def test_the_first_takes_it__no_other_endpoint_hears_of_it() -> None:
    async with (
        scripted_node(None, gone) as reading,
        scripted_node(None, relay()) as first,
        scripted_node(None, relay()) as second,
        Rpc([reading.url], send_urls=[first.url, second.url]) as rpc,
    ):
        rpc.expect(CHAIN)
        assert "0x" + (await rpc.send_raw_transaction(RAW)).hex() == TX
        assert methods(first) == ["eth_chainId", "eth_getBlockByNumber", "eth_sendRawTransaction"]
        assert methods(second) == methods(reading) == []
        assert rpc.endpoints()[1].endpoint == f"{first.url} sends"
        assert [status.state for status in rpc.endpoints()[1:]] == ["in_use", "ready"]


async def test_the_first_is_away__the_second_takes_it__then_the_first_is_asked_last() -> None:
    async with (
        scripted_node(None, gone) as first,
        scripted_node(None, relay(chain=None)) as second,
        Rpc(["http://127.0.0.1:1"], send_urls=[first.url, second.url]) as rpc,
    ):
        rpc.expect(CHAIN)
        await rpc.send_raw_transaction(RAW)
        await rpc.send_raw_transaction(RAW)
        assert len(first.calls) == 1
        assert methods(second).count("eth_sendRawTransaction") == 2
        assert [status.state for status in rpc.endpoints()[1:]] == ["resting", "in_use"]


async def test_one_of_another_chain_gets_nothing() -> None:
    async with (
        scripted_node(None, relay(chain="0x1")) as first,
        scripted_node(None, relay()) as second,
        Rpc(["http://127.0.0.1:1"], send_urls=[first.url, second.url]) as rpc,
    ):
        rpc.expect(CHAIN)
        await rpc.check_relays()
        await rpc.send_raw_transaction(RAW)
        assert methods(first) == ["eth_chainId"]
        assert rpc.endpoints()[1].state == "wrong_chain"


async def test_all_of_another_chain__said_before_anything_is_sent() -> None:
    async with (
        scripted_node(None, relay(chain="0x1")) as first,
        Rpc(["http://127.0.0.1:1"], send_urls=[first.url]) as rpc,
    ):
        rpc.expect(CHAIN)
        with pytest.raises(WrongChain, match="serves chain 1") as wrong:
            await rpc.check_relays()
        assert "rpc_send_urls" in wrong.value.help_text
        with pytest.raises(WrongChain):
            await rpc.send_raw_transaction(RAW)


async def test_one_that_is_away_at_the_start_is_no_reason_to_end() -> None:
    async with (
        scripted_node(None, gone) as first,
        Rpc(["http://127.0.0.1:1"], send_urls=[first.url]) as rpc,
    ):
        rpc.expect(CHAIN)
        await rpc.check_relays()
        with pytest.raises(RpcUnreachable, match="503") as away:
            await rpc.send_raw_transaction(RAW)
        assert "rpc_send_urls" in away.value.help_text


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        (["out of order", "nonce too low"], "nonce too low"),
        (["nonce too low", "out of order"], "nonce too low"),
        (["one thing", "another"], "one thing"),
        (["insufficient funds", "nonce too low"], "insufficient funds"),
        (["already known", "nonce too low"], "already known"),
        (["one thing", None], None),
    ],
)
async def test_what_several_say(said: list[str | None], raised: str | None) -> None:
    async with (
        scripted_node(None, relay(said[0])) as first,
        scripted_node(None, relay(said[1])) as second,
        Rpc(["http://127.0.0.1:1"], send_urls=[first.url, second.url]) as rpc,
    ):
        if raised is None:
            await rpc.send_raw_transaction(RAW)
            return
        with pytest.raises(RpcError, match=raised):
            await rpc.send_raw_transaction(RAW)
        assert len(second.calls) == (said[0] != "already known")


async def test_refused_by_one_and_unanswered_by_the_other_is_refused() -> None:
    async with (
        scripted_node(None, gone) as first,
        scripted_node(None, relay("transaction underpriced")) as second,
        Rpc(["http://127.0.0.1:1"], send_urls=[first.url, second.url]) as rpc,
    ):
        with pytest.raises(RpcError, match="underpriced"):
            await rpc.send_raw_transaction(RAW)
