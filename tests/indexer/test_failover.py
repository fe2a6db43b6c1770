"""What becomes of an index whose endpoints die, refuse, or are of another chain."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from indexer.backfill import RangeReader
from indexer.database import Pool
from indexer.errors import RangeRefused
from indexer.rpc import Rpc, RpcError
from inferd.chain.anvil import Anvil
from tests.indexer.scripted import Script, result, scripted_node
from tests.indexer.world import World, caught_up, differences, index_once, running, tables


def dying(after_logs: int, state: dict[str, int]) -> Script:
    """Serves so many ranges of logs and is dead from then on."""

    async def script(body: Any) -> Any:
        if state["served"] >= after_logs:
            return web.Response(status=503)
        if isinstance(body, dict) and body["method"] == "eth_getLogs":
            state["served"] += 1
        return None

    return script


async def test_backfill__its_endpoint_dies__the_other_goes_on(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool
) -> None:
    await world.register()
    for _ in range(5):
        await world.submit()
        await world.mine(90)
    state = {"served": 0}
    async with (
        scripted_node(anvil.url, dying(2, state)) as first,
        scripted_node(anvil.url) as second,
        Rpc([first.url, second.url]) as rpc,
    ):
        indexer = world.indexer(pool, rpc=rpc)
        async with running(indexer):
            await caught_up(indexer, world)
        assert state["served"] == 2
        assert rpc.endpoint == second.url
        assert {"eth_chainId", "eth_getLogs"} <= {
            call["method"] for call in second.calls if isinstance(call, dict)
        }
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 5


async def refusing(body: Any) -> Any:
    """Has all but logs."""
    if not isinstance(body, dict) or body["method"] != "eth_getLogs":
        return None
    return {"id": body["id"], "error": {"code": -32008, "message": "Response is too big"}}


async def test_backfill__one_endpoint_refuses_a_single_block__the_other_serves(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    await world.submit()
    await world.mine(100)

    async with (
        scripted_node(anvil.url, refusing) as first,
        scripted_node(anvil.url) as second,
        Rpc([first.url, second.url]) as rpc,
    ):
        indexer = world.indexer(pool, rpc=rpc)
        async with running(indexer):
            await caught_up(indexer, world)
        assert rpc.endpoint == second.url
        passed_over = rpc.endpoints()[0]
        assert passed_over.state == "resting"
        assert "names no smaller range" in (passed_over.reason or "")
        # One that is away may come back; one that refuses as well ends the search.
        await second.stop()
        with pytest.raises(RpcError, match="too big"):
            await indexer._ranges.read(1, 9, cursor=None, keep_from=9)
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1


async def test_backfill__both_refuse_a_single_block__ends(world: World, anvil: Anvil) -> None:
    async with (
        scripted_node(anvil.url, refusing) as first,
        scripted_node(anvil.url, refusing) as second,
        Rpc([first.url, second.url]) as rpc,
    ):
        reader = RangeReader(rpc, world.contracts.addresses())
        with pytest.raises(RpcError, match="too big"):
            await reader.read(1, 9, cursor=None, keep_from=9)
        with pytest.raises(RangeRefused, match=f"{second.url} refuses the logs of block 1,"):
            await reader.read(1, 9, cursor=None, keep_from=9)


async def test_index__first_endpoint_is_of_another_chain__complete_without_it(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    await world.submit()

    async def foreign(body: Any) -> Any:
        return result(body, "0x1") if body["method"] == "eth_chainId" else None

    async with (
        scripted_node(anvil.url, foreign) as first,
        Rpc([first.url, anvil.url]) as rpc,
    ):
        indexer = world.indexer(pool, rpc=rpc)
        async with running(indexer):
            await caught_up(indexer, world)
        assert [call["method"] for call in first.calls] == ["eth_chainId"]
        assert [status.state for status in rpc.endpoints()] == ["wrong_chain", "in_use"]
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1
