"""What becomes of an endpoint's claim that a block has no logs of ours, or others than it has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from indexer.completeness import bloom_of, may_have_logs, unexplained_bloom
from indexer.database import Pool
from indexer.rpc import Header, RawLog, Rpc, RpcMalformed
from indexer.second_opinion import logs_by_receipts, second_opinion
from indexer.types import Address, Hash32
from inferd.chain.anvil import Anvil
from tests.indexer.scripted import result, scripted_node
from tests.indexer.world import World, differences, index_once, tables

_ADDRESSES = st.binary(min_size=20, max_size=20)
_TOPICS = st.lists(st.binary(min_size=32, max_size=32), max_size=4)


def log_of(address: bytes, topics: Iterable[bytes]) -> RawLog:
    zero = Hash32(bytes(32))
    return RawLog(Address(address), tuple(topics), b"", 1, zero, zero, 0, 0)


def header_with(bloom: int) -> Header:
    zero = Hash32(bytes(32))
    return Header(1, zero, zero, 0, 0, 0, 0, bloom.to_bytes(256, "big"))  # type: ignore[arg-type]


@given(st.lists(st.builds(log_of, _ADDRESSES, _TOPICS), max_size=8), st.data())
def test_bloom__of_all_logs__explained__and_seldom_without_one(
    logs: list[RawLog], data: st.DataObject
) -> None:
    header = header_with(bloom_of(logs))
    assert not unexplained_bloom(header, logs)
    assert not unexplained_bloom(header, [*logs, log_of(b"\1" * 20, ())])
    for log in logs:
        assert may_have_logs(header, [log.address])
    if logs:
        at = data.draw(st.integers(0, len(logs) - 1))
        rest = logs[:at] + logs[at + 1 :]
        assert unexplained_bloom(header, rest) == (bloom_of(rest) != bloom_of(logs))


def test_bloom__every_bit_set__is_no_filter() -> None:
    assert not unexplained_bloom(header_with((1 << 2048) - 1), [])


def lying(method: str, lie: Any) -> Any:
    """A script that answers a method with `lie(body)`, for ever."""

    async def script(body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == method:
            return await lie(body)
        return None

    return script


async def nothing(body: Any) -> Any:
    return result(body, [])


async def unknown_method(body: Any) -> Any:
    return {"id": body["id"], "error": {"code": -32601, "message": "method not found"}}


async def test_one_endpoint_that_always_says_empty__receipts_tell(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool
) -> None:
    """Asked ever so often the same endpoint says the same."""
    await world.submit()
    async with (
        scripted_node(anvil.url, lying("eth_getLogs", nothing)) as node,
        Rpc([node.url]) as rpc,
    ):
        await index_once(world, pool, rpc=rpc)
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def too_large(body: Any) -> Any:
    return web.Response(status=413)


@pytest.mark.parametrize("refusal", [unknown_method, too_large])
async def test_receipts_of_a_whole_block_refused__read_one_by_one(
    world: World, anvil: Anvil, refusal: Any
) -> None:
    await world.submit()
    head = await world.head()
    addresses = world.contracts.addresses()
    expected = await logs_by_receipts(world.rpc, head, addresses)
    assert len(expected) == 1
    script = lying("eth_getBlockReceipts", refusal)
    async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
        assert await logs_by_receipts(rpc, head, addresses) == expected
        assert [call["method"] for call in node.calls][-1] == "eth_getTransactionReceipt"


async def test_receipts_that_omit_what_the_bloom_has__refused(world: World, anvil: Anvil) -> None:
    await world.submit()
    head = await world.head()

    async def without_logs(body: Any) -> Any:
        receipts = await world.rpc.request(body["method"], body["params"])
        return result(body, [receipt | {"logs": []} for receipt in receipts])

    async def of_another_block(body: Any) -> Any:
        receipts = await world.rpc.request(body["method"], body["params"])
        return result(body, [receipt | {"blockHash": "0x" + "aa" * 32} for receipt in receipts])

    async def none(body: Any) -> Any:
        return result(body, None)

    for lie in (without_logs, of_another_block, none):
        script = lying("eth_getBlockReceipts", lie)
        async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
            with pytest.raises(RpcMalformed):
                await logs_by_receipts(rpc, head, world.contracts.addresses())


async def test_two_endpoints__the_other_agrees__no_receipts_are_read(
    world: World, anvil: Anvil
) -> None:
    await world.submit()
    head = await world.head()
    addresses = world.contracts.addresses()
    logs = await world.rpc.logs_by_hash(head.hash, addresses)
    async with scripted_node(anvil.url) as other, Rpc([anvil.url, other.url]) as rpc:
        assert await second_opinion(rpc, head, addresses, logs) == tuple(logs)
        assert {call["method"] for call in other.calls} == {"eth_getBlockByHash", "eth_getLogs"}
        assert await second_opinion(rpc, head, addresses) == tuple(logs)
        assert other.calls[-1]["method"] == "eth_getBlockReceipts"


async def test_two_endpoints__the_other_lacks_the_block__own_receipts_tell(
    world: World, anvil: Anvil
) -> None:
    await world.submit()
    head = await world.head()

    async def script(body: Any) -> Any:
        absent = {"eth_getBlockByHash": None, "eth_getBlockReceipts": None, "eth_getLogs": []}
        return result(body, absent[body["method"]]) if body["method"] in absent else None

    async with scripted_node(anvil.url, script) as other, Rpc([anvil.url, other.url]) as rpc:
        found = await second_opinion(rpc, head, world.contracts.addresses())
        assert len(found) == 1
        assert rpc.endpoint == anvil.url


async def test_elsewhere__never_the_endpoint_in_use(anvil: Anvil) -> None:
    async with Rpc([anvil.url]) as alone:
        assert alone.elsewhere() is None
    async with Rpc(["http://127.0.0.1:9", anvil.url]) as rpc:
        await rpc.chain_id()
        assert rpc.endpoint == anvil.url
        other = rpc.elsewhere()
        assert other is not None
        assert other.endpoint == "http://127.0.0.1:9"
        assert other.elsewhere() is None
