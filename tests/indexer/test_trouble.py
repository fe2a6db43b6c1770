"""Nodes that are away, lag or lie, and logs that cannot be read."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web
from eth_utils.crypto import keccak

from indexer.completeness import may_have_logs
from indexer.database import Pool
from indexer.errors import WrongChain
from indexer.rpc import Header, Rpc
from indexer.rpc.wire import to_hex
from indexer.types import Hash32
from inferd.chain.anvil import Anvil
from tests.indexer.scripted import proxy_to, result, scripted_node
from tests.indexer.world import World, caught_up, differences, index_once, running, tables


async def test_node_away_and_back__goes_on_by_itself(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    async with (
        proxy_to(anvil.config.port) as proxy,
        Rpc([f"http://127.0.0.1:{proxy.port}"]) as rpc,
    ):
        indexer = world.indexer(pool, rpc=rpc)
        async with running(indexer):
            await caught_up(indexer, world)
            assert indexer.status.rpc_ok
            proxy.unplug()
            await world.submit()
            async with asyncio.timeout(5):
                while indexer.status.rpc_ok:
                    await asyncio.sleep(0.01)
            assert "127.0.0.1" in (indexer.status.last_error or "")
            stopped_at = indexer.status.last_progress_monotonic
            await asyncio.sleep(0.5)
            assert indexer.status.last_progress_monotonic == stopped_at
            proxy.plugged = True
            await caught_up(indexer, world)
            async with asyncio.timeout(5):
                while not indexer.status.rpc_ok:
                    await asyncio.sleep(0.01)
        assert indexer.status.last_error is None
        assert (indexer.status.last_progress_monotonic or 0) <= time.monotonic()
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1


async def test_node_comes_back_with_another_chain__stops(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    swapped = False

    async def script(body: Any) -> Any:
        if not swapped:
            return None
        if isinstance(body, dict) and body["params"][:1] == ["0x0"]:
            header = dict(genesis)
            header["hash"] = "0x" + "99" * 32
            return result(body, header)
        return web.Response(status=503) if next(outage, False) else None

    outage = iter([True])
    genesis = await world.rpc.request("eth_getBlockByNumber", ["0x0", False])
    async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
        indexer = world.indexer(pool, rpc=rpc)
        with pytest.raises(WrongChain):
            async with running(indexer):
                await caught_up(indexer, world)
                swapped = True
                await asyncio.sleep(10)


async def lied_to(world: World, anvil: Anvil, pool: Pool, method: str, lies: list[Any]) -> int:
    """Indexes through a node that answers `method` with each lie once; how many it told."""
    told = 0

    async def script(body: Any) -> Any:
        nonlocal told
        if isinstance(body, dict) and body["method"] == method and lies:
            lie = lies.pop(0)
            told += 1
            if callable(lie):
                return await lie(body)
            return lie if isinstance(lie, web.Response) else result(body, lie)
        return None

    async with scripted_node(anvil.url, script) as node, Rpc([node.url], timeout_s=2) as rpc:
        indexer = world.indexer(pool, rpc=rpc)
        async with running(indexer):
            # Pauses add up: each lie is one more failure in a row.
            await caught_up(indexer, world, timeout_s=60)
    return told


async def upstream(world: World, body: Any) -> Any:
    return await world.rpc.request(body["method"], body["params"])


@pytest.mark.parametrize("far_behind", [False, True])
async def test_lies_about_logs__nothing_missing_and_nothing_foreign(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool, far_behind: bool
) -> None:
    await world.register()
    await world.submit()
    await world.submit(b"other")
    if far_behind:
        await world.mine(80)
    some = await world.rpc.request(
        "eth_getLogs", [{"fromBlock": "0x0", "address": to_hex(world.contracts.requests)}]
    )

    async def with_foreign(body: Any) -> Any:
        return result(body, [*await upstream(world, body), some[0] | {"address": "0x" + "ee" * 20}])

    async def of_another_block(body: Any) -> Any:
        logs = await upstream(world, body)
        return result(body, [*logs, some[0] | {"blockHash": "0x" + "dd" * 32}])

    async def twice(body: Any) -> Any:
        logs = await upstream(world, body)
        return result(body, logs * 2 or some * 2)

    async def outside(body: Any) -> Any:
        return result(body, [*await upstream(world, body), some[0] | {"blockNumber": "0xffff"}])

    async def too_wide(body: Any) -> Any:
        error = {"code": -32005, "message": "query returned more than 10000 results"}
        return {"id": body["id"], "error": error}

    lies = [
        None,
        with_foreign,
        of_another_block,
        twice,
        outside,
        too_wide,
        web.Response(status=429),
        web.Response(status=500),
        web.Response(status=413),
        web.Response(text="{"),
    ]
    count = len(lies)
    assert await lied_to(world, anvil, pool, "eth_getLogs", lies) == count
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 2


async def test_empty_logs_under_a_bloom_that_says_otherwise__asked_again(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    await world.submit()
    await index_once(world, pool)
    await world.submit(b"missed?")
    assert await lied_to(world, anvil, pool, "eth_getLogs", [[]]) == 1
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 2


async def test_missing_blocks__retried(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool
) -> None:
    await world.submit()
    await world.mine(3)
    honest = upstream_result(world)
    lies: list[Any] = [honest, honest, None, None, None, honest, None]
    assert await lied_to(world, anvil, pool, "eth_getBlockByNumber", lies) == 7
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


def upstream_result(world: World) -> Any:
    async def honest(body: Any) -> Any:
        return result(body, await upstream(world, body))

    return honest


async def test_finality_tag_unknown__a_quarter_of_the_window_deep(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    async def script(body: Any) -> Any:
        if isinstance(body, dict) and body["params"][:1] == ["finalized"]:
            return {"id": body["id"], "error": {"code": -32602, "message": "unknown tag"}}
        return None

    await world.submit()
    await world.mine(100)
    async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
        indexer = await index_once(world, pool, rpc=rpc, window_blocks=40)
    head = (await world.head()).number
    assert indexer.status.finalized == head - 10
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1


async def test_unreadable_log__quarantined_and_passed(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool
) -> None:
    """A log of ours is damaged on its way: the contracts themselves never emit such."""
    await world.submit()
    bad_topic = to_hex(keccak(text="FeeRaised(uint256,uint256)"))
    asked = "InferenceRequested(uint256,address,bytes32,uint256,uint256,bytes)"
    asked_topic = to_hex(keccak(text=asked))

    async def script(body: Any) -> Any:
        if not isinstance(body, dict) or body["method"] != "eth_getLogs":
            return None
        logs = await upstream(world, body)
        for entry in logs:
            if entry["topics"][0] == asked_topic:
                entry["topics"] = [bad_topic, "0x" + "ff" * 32]
        return result(body, logs)

    async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
        indexer = world.indexer(pool, rpc=rpc)
        async with running(indexer):
            await caught_up(indexer, world)
            assert indexer.status.quarantined == 1
            await world.mine()
            await caught_up(indexer, world)
            reason = await pool.fetchval("SELECT reason FROM chain.quarantine")
            assert "63 bits" in reason
            assert await pool.fetchval("SELECT count(*) FROM chain.request") == 0
            assert (await index_once(world, pool, rpc=rpc)).status.quarantined == 1
            # A reorganisation takes quarantined rows with it.
            await world.reorg(2, [])
            await world.mine(1)
            await caught_up(indexer, world)
            assert indexer.status.quarantined == 0
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_bloom__of_real_blocks__never_rules_out_what_is_there(world: World) -> None:
    await world.register()
    await world.submit()
    addresses = world.contracts.addresses()
    for number in range((await world.head()).number + 1):
        header = await world.rpc.header(number)
        assert header is not None
        logs = await world.rpc.logs_by_hash(header.hash, addresses)
        for address in addresses:
            there = any(entry.address == address for entry in logs)
            assert may_have_logs(header, [address]) == there


def test_bloom__all_bits__may_have_anything() -> None:
    full = Header(1, Hash32(bytes(32)), Hash32(bytes(32)), 0, 0, 0, 0, b"\xff" * 256)  # type: ignore[arg-type]
    assert may_have_logs(full, [b"\1" * 20])  # type: ignore[list-item]
