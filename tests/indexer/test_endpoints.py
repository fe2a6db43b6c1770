"""Several endpoints as one: which is asked, which is believed, which is left alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from indexer.errors import RpcUnreachable, WrongChain
from indexer.rpc import CallRecord, ChainIdentity, Rpc, RpcError, RpcMalformed, RpcRateLimited
from indexer.rpc.exchange import call_object, parser
from indexer.rpc.pool import EndpointPool
from indexer.rpc.wire import parse_quantity
from indexer.types import Hash32
from inferd.chain.anvil import free_port
from tests.indexer.scripted import ScriptedNode, result, scripted_node

GENESIS = "0x" + "aa" * 32
OURS = ChainIdentity(7, Hash32(b"\xaa" * 32))
BLOCK = {
    "number": "0x0",
    "hash": GENESIS,
    "parentHash": "0x" + "00" * 32,
    "timestamp": "0x64",
    "gasUsed": "0x0",
    "gasLimit": "0x1c9c380",
    "logsBloom": "0x" + "00" * 256,
}


class Chain:
    """What a scripted endpoint serves; a test changes it as it goes."""

    def __init__(self, chain_id: int = 7, genesis: str = GENESIS, head: int = 100) -> None:
        self.chain_id = chain_id
        self.genesis = genesis
        self.head = head
        self.pruned = False
        self.trouble: web.Response | dict[str, Any] | None = None

    async def script(self, body: Any) -> Any:
        if isinstance(self.trouble, web.Response):
            return web.Response(status=self.trouble.status, headers=self.trouble.headers)
        if self.trouble is not None:
            return {"id": body["id"], "error": self.trouble}
        return result(
            body,
            {
                "eth_chainId": hex(self.chain_id),
                "eth_blockNumber": hex(self.head),
                "eth_gasPrice": "0x1",
                "eth_getBlockByNumber": None if self.pruned else BLOCK | {"hash": self.genesis},
            }[body["method"]],
        )


@contextlib.asynccontextmanager
async def endpoints(
    *chains: Chain, **options: Any
) -> AsyncIterator[tuple[EndpointPool, list[ScriptedNode]]]:
    async with contextlib.AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(scripted_node(script=chain.script)) for chain in chains
        ]
        options = {"timeout_s": 2.0, **options}
        pool = EndpointPool([node.url for node in nodes], **options)
        stack.push_async_callback(pool.close)
        yield pool, nodes


async def price(pool: EndpointPool) -> int:
    body = msgspec.json.encode(call_object(1, "eth_gasPrice", ()))
    return await pool.exchange("eth_gasPrice", body, parser(1, parse_quantity))


def asked(node: ScriptedNode) -> list[str]:
    return [call["method"] for call in node.calls]


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_before_its_first_use__shows_its_chain_once() -> None:
    async with endpoints(Chain()) as (pool, nodes):
        pool.expect(OURS)
        assert [await price(pool), await price(pool)] == [1, 1]
        assert asked(nodes[0]) == [
            "eth_chainId",
            "eth_getBlockByNumber",
            "eth_gasPrice",
            "eth_gasPrice",
        ]


@pytest.mark.parametrize(
    ("foreign", "why"),
    [
        (Chain(chain_id=8), "serves chain 8"),
        (Chain(genesis="0x" + "bb" * 32), "its first block (genesis) differs"),
    ],
)
async def test_endpoint_of_another_chain__put_aside_with_the_reason(
    foreign: Chain, why: str
) -> None:
    async with endpoints(foreign, Chain()) as (pool, nodes):
        pool.expect(OURS)
        for _ in range(3):
            assert await price(pool) == 1
        assert "eth_gasPrice" not in asked(nodes[0])
        assert asked(nodes[0]).count("eth_chainId") == 1, "it was asked for its chain again"
        first, second = pool.snapshot()
        assert (first.state, second.state) == ("wrong_chain", "in_use")
        assert why in (first.reason or "")
        assert second.reason is None


async def test_all_of_another_chain__wrong_chain() -> None:
    async with endpoints(Chain(chain_id=8), Chain(chain_id=9)) as (pool, nodes):
        pool.expect(OURS)
        for _ in range(3):
            with pytest.raises(WrongChain, match="serves chain 8"):
                await price(pool)
        assert [asked(node) for node in nodes] == [["eth_chainId"]] * 2, "asked again at once"
        pool.expect(ChainIdentity(9, OURS.genesis_hash))
        assert await price(pool) == 1


async def test_one_of_another_chain_and_one_away__only_unreachable() -> None:
    async with endpoints(Chain(chain_id=8), away := Chain()) as (pool, _):
        away.trouble = web.Response(status=503)
        pool.expect(OURS)
        for _ in range(2):
            with pytest.raises(RpcUnreachable, match="HTTP 503") as caught:
                await price(pool)
            assert "serves chain 8" in str(caught.value), "it names only one of both troubles"
            assert caught.value.message == str(caught.value)
        away.trouble = None
        assert await price(pool) == 1


async def test_one_away_that_nobody_needs__told_of_once_and_when_it_is_back() -> None:
    async with endpoints(Chain(), away := Chain(), probe_every_s=0.02) as (pool, nodes):
        away.trouble = web.Response(status=503)
        pool.expect(OURS)
        with capture_logs() as logs:
            await price(pool)
            await until(lambda: len(nodes[1].calls) > 2)
            away.trouble = None
            await until(lambda: pool.snapshot()[1].state == "ready")
            await until(lambda: len(logs) > 1)
        assert [(entry["event"], entry["endpoint"]) for entry in logs] == [
            ("endpoint_away", nodes[1].url),
            ("endpoint_back", nodes[1].url),
        ]


async def test_first_block_pruned__is_no_proof_of_another_chain() -> None:
    chain = Chain()
    chain.pruned = True
    async with endpoints(chain) as (pool, _):
        pool.expect(OURS)
        assert await price(pool) == 1


async def test_no_answer_about_its_chain__is_trouble_and_no_answer_to_the_caller() -> None:
    chain = Chain()
    chain.trouble = {"code": -32601, "message": "no such method"}
    async with endpoints(chain) as (pool, _):
        pool.expect(OURS)
        with pytest.raises(RpcMalformed, match="eth_chainId"):
            await price(pool)


@pytest.mark.parametrize("swapped", [Chain(chain_id=8), Chain(genesis="0x" + "bb" * 32)])
async def test_after_trouble__shows_its_chain_again(swapped: Chain) -> None:
    async with endpoints(first := Chain(), Chain()) as (pool, nodes):
        pool.expect(OURS)
        await price(pool)
        first.trouble = web.Response(status=502)
        await price(pool)
        assert pool.current == nodes[1].url
        first.trouble, first.chain_id, first.genesis = None, swapped.chain_id, swapped.genesis
        nodes[0].calls.clear()
        # The second goes away too: the first is the only one left, and now another.
        await nodes[1].stop()
        with pytest.raises(RpcUnreachable):
            await price(pool)
        assert "eth_gasPrice" not in asked(nodes[0])
        assert pool.snapshot()[0].state == "wrong_chain"


async def test_doubt__shows_its_chain_again() -> None:
    async with endpoints(chain := Chain()) as (pool, _):
        pool.expect(OURS)
        await price(pool)
        chain.chain_id = 8
        assert await price(pool) == 1
        pool.doubt()
        with pytest.raises(WrongChain):
            await price(pool)


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after__left_alone_while_another_serves(status: int) -> None:
    async with endpoints(first := Chain(), Chain()) as (pool, nodes):
        first.trouble = web.Response(status=status, headers={"retry-after": "60"})
        for _ in range(5):
            assert await price(pool) == 1
        assert len(nodes[0].calls) == 1
        assert pool.snapshot()[0].state == "rate_limited"
        assert pool.snapshot()[0].calls_per_s == 20


async def test_retry_after__nobody_else__said_at_once_and_not_asked() -> None:
    async with endpoints(first := Chain()) as (pool, nodes):
        first.trouble = web.Response(status=429, headers={"retry-after": "60"})
        for _ in range(3):
            with pytest.raises(RpcRateLimited) as caught:
                await price(pool)
            assert 50 < caught.value.retry_after_s <= 60
        assert len(nodes[0].calls) == 1


async def test_quota_as_an_error_object__the_next_is_asked() -> None:
    async with endpoints(first := Chain(), Chain()) as (pool, nodes):
        first.trouble = {"code": -32005, "message": "daily request count exceeded"}
        assert await price(pool) == 1
        assert pool.current == nodes[1].url
        assert "daily request count" in (pool.snapshot()[0].reason or "")


async def test_failed_one__rests_and_comes_back() -> None:
    async with endpoints(first := Chain(), Chain(), probe_every_s=0.02) as (pool, nodes):
        first.trouble = web.Response(status=503)
        assert await price(pool) == 1
        assert pool.current == nodes[1].url
        assert pool.snapshot()[0].state == "resting"
        assert "HTTP 503" in (pool.snapshot()[0].reason or "")
        first.trouble = None
        await until(lambda: pool.snapshot()[0].state == "ready")
        await until(lambda: pool.snapshot()[0].head == 100)
        assert pool.snapshot()[0].reason is None
        assert await price(pool) == 1
        assert pool.current == nodes[1].url, "it was as good as the other one, and not better"


async def test_stuck_node__lags_and_is_left() -> None:
    async with endpoints(first := Chain(), second := Chain(), probe_every_s=0.02) as (pool, nodes):
        assert await price(pool) == 1
        await until(lambda: all(status.head == 100 for status in pool.snapshot()))
        assert await price(pool) == 1
        assert pool.current == nodes[0].url
        second.head = 104
        await until(lambda: pool.snapshot()[0].lag_blocks == 4)
        assert await price(pool) == 1
        assert pool.current == nodes[1].url
        first.head = second.head
        await until(lambda: pool.snapshot()[0].lag_blocks == 0)


async def test_probe__of_an_endpoint_of_another_chain__puts_it_aside() -> None:
    async with endpoints(Chain(), Chain(chain_id=8), probe_every_s=0.02) as (pool, nodes):
        pool.expect(OURS)
        assert await price(pool) == 1
        await until(lambda: pool.snapshot()[1].state == "wrong_chain")
        assert set(asked(nodes[1])) == {"eth_chainId"}
        assert pool.snapshot()[0].lag_blocks == 0


async def test_at_the_start__all_show_their_chain_and_not_only_the_one_in_use() -> None:
    chains = Chain(), Chain(chain_id=8), Chain()
    async with endpoints(*chains, probe_every_s=3_600.0) as (pool, nodes):
        pool.expect(OURS)
        await price(pool)
        await until(lambda: pool.snapshot()[1].state == "wrong_chain")
        await until(lambda: "eth_blockNumber" in asked(nodes[2]))


async def test_failover__says_what_the_one_before_did() -> None:
    async with endpoints(first := Chain(chain_id=8), second := Chain(), Chain()) as (pool, _):
        pool.expect(OURS)
        with capture_logs() as logs:
            await price(pool)
            second.trouble = web.Response(status=503)
            await price(pool)
        told = [entry["because"] for entry in logs if entry["event"] == "rpc_failover"]
        assert [because[0].split(" ", 1)[1] for because in told] == [
            f"serves chain {first.chain_id}, and the deployment is on chain 7",
            "answers with HTTP 503",
        ]


async def test_second_opinion__from_whomever__is_no_failover() -> None:
    async with endpoints(Chain(), away := Chain(), Chain()) as (pool, nodes):
        pool.expect(OURS)
        await price(pool)
        away.trouble = web.Response(status=503)
        with capture_logs() as logs:
            others = pool.others()
            assert others is not None
            assert await price(others) == 1
        assert not [entry for entry in logs if entry["event"] == "rpc_failover"]
        assert pool.current == nodes[0].url


async def test_observer__told_of_every_exchange() -> None:
    seen: list[CallRecord] = []
    async with endpoints(first := Chain(), Chain(), observer=seen.append) as (pool, nodes):
        first.trouble = web.Response(status=503)
        await price(pool)
        first.trouble = web.Response(status=429)
        await nodes[1].stop()
        with pytest.raises(RpcUnreachable):
            await price(pool)
    outcomes = [(nodes[0].url == record.endpoint, record.outcome) for record in seen]
    assert outcomes == [
        (True, "server_fault"),
        (False, "ok"),
        (False, "unreachable"),
        (True, "rate_limited"),
    ]
    assert {record.method for record in seen} == {"eth_gasPrice"}
    assert all(record.took_s >= 0 for record in seen)


async def test_observer__error_object_and_batch() -> None:
    seen: list[CallRecord] = []

    async def script(body: Any) -> Any:
        if isinstance(body, list):
            return [result(call, None) for call in body]
        return {"id": body["id"], "error": {"code": -32000, "message": "no"}}

    async with scripted_node(script=script) as node, Rpc([node.url], observer=seen.append) as rpc:
        with pytest.raises(RpcError):
            await rpc.balance(b"\1" * 20)  # type: ignore[arg-type]
        await rpc.headers(range(5))
    assert [(record.method, record.outcome, record.calls) for record in seen] == [
        ("eth_getBalance", "error", 1),
        ("eth_getBlockByNumber", "ok", 5),
    ]


async def test_two_urls_of_one_host__told_apart_without_their_secrets() -> None:
    urls = [f"http://127.0.0.1:{free_port()}/hunter2secret", "http://127.0.0.1:1/hunter3secret"]
    async with Rpc([urls[0], urls[0] + "x", urls[1]]) as rpc:
        shown = [status.endpoint for status in rpc.endpoints()]
        with pytest.raises(RpcUnreachable):
            await rpc.chain_id()
        everything = str(rpc.endpoints())
    assert len(set(shown)) == 3
    assert shown[1] == shown[0] + " (2)"
    assert "hunter" not in everything
