"""One odd answer after the other, through the fault proxy: tables end as the chain is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from indexer import follow
from indexer.backfill import RangeReader
from indexer.database import Pool
from indexer.errors import RpcUnreachable
from indexer.rpc import RawLog, Rpc, RpcError
from inferd.chain.anvil import Anvil
from tests.faults.dialects import RangeDialect
from tests.faults.exchange import Exchange
from tests.faults.rpc_faults import (
    AnswerFrom,
    ChangeLog,
    ErrorObject,
    Fault,
    HangUp,
    HttpStatus,
    LagHead,
    NoTag,
    NullResult,
    OmitAnswer,
    OmitLogs,
    RefuseRange,
    Repeat,
    RepeatLogs,
    ReverseLogs,
    Shuffle,
    Truncate,
)
from tests.faults.rpc_plans import Always, AtRandom, Calm, Chance, InOrder
from tests.faults.rpc_proxy import RpcProxy, rpc_proxy
from tests.faults.stored_chain import StoredChain
from tests.indexer.world import (
    World,
    caught_up,
    differences,
    index_once,
    running,
    tables,
)

LOGS = frozenset(["eth_getLogs"])
BLOCKS = frozenset(["eth_getBlockByNumber", "eth_getBlockByHash"])


@pytest.fixture
async def proxy(anvil: Anvil) -> AsyncIterator[RpcProxy]:
    async with rpc_proxy(anvil.url) as opened:
        yield opened


@pytest.fixture
async def odd(proxy: RpcProxy) -> AsyncIterator[Rpc]:
    async with Rpc([proxy.url], timeout_s=5) as opened:
        yield opened


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trouble is tried again at once."""
    monkeypatch.setattr(follow, "_FIRST_BACKOFF_S", 0.001)
    monkeypatch.setattr(follow, "_MAX_BACKOFF_S", 0.01)


async def assert_as_the_chain(world: World, pool: Pool, fresh_pool: Pool) -> None:
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


LIES = [
    ChangeLog("removed", True),
    ChangeLog("logIndex", "0x0"),
    ChangeLog("blockNumber", "0xffff"),
    ChangeLog("blockNumber", "0x0"),
    ChangeLog("blockHash", "0x" + "dd" * 32),
    ChangeLog("address", "0x" + "ee" * 20),
    RepeatLogs(),
    ReverseLogs(),
    NullResult(),
    Truncate(),
    HangUp(0.5),
]


async def test_each_lie_about_a_block_s_logs__not_a_row_of_it(
    world: World, pool: Pool, fresh_pool: Pool, proxy: RpcProxy, odd: Rpc
) -> None:
    indexer = world.indexer(pool, rpc=odd)
    async with running(indexer):
        for lie in LIES:
            await caught_up(indexer, world)
            plan = InOrder([lie], LOGS)
            proxy.plan = plan
            await world.submit_many(2)
            await caught_up(indexer, world)
            assert plan.told == 1
    await assert_as_the_chain(world, pool, fresh_pool)


async def test_each_lie_about_a_range_s_logs__not_a_row_of_it(
    world: World, pool: Pool, fresh_pool: Pool, proxy: RpcProxy, odd: Rpc
) -> None:
    for lie in LIES:
        await index_once(world, pool)
        await world.submit_many(2)
        await world.mine(70)
        plan = InOrder([lie], LOGS)
        proxy.plan = plan
        await index_once(world, pool, rpc=odd)
        assert plan.told == 1
    await assert_as_the_chain(world, pool, fresh_pool)


@pytest.mark.parametrize("fault", [Shuffle(1), Repeat(), OmitAnswer(), NullResult()], ids=repr)
async def test_batch_answered_in_disorder__headers_are_in_order(
    world: World, pool: Pool, fresh_pool: Pool, proxy: RpcProxy, odd: Rpc, fault: Fault
) -> None:
    await world.mine(20)

    class Batches(Always):
        def faults(self, exchange: Exchange) -> Any:
            return super().faults(exchange) if exchange.is_batch else ()

    proxy.plan = Batches([fault])
    if isinstance(fault, Shuffle):
        await index_once(world, pool, rpc=odd)
    else:
        indexer = world.indexer(pool, rpc=odd)
        async with running(indexer):
            async with asyncio.timeout(10):
                while indexer.status.last_error is None:
                    await asyncio.sleep(0.01)
            assert await pool.fetchval("SELECT count(*) FROM chain.block") == 0
            proxy.plan = Calm()
            await caught_up(indexer, world)
    await assert_as_the_chain(world, pool, fresh_pool)


async def test_blocks_missing_behind_a_balancer__nothing_is_skipped(
    world: World, pool: Pool, fresh_pool: Pool, proxy: RpcProxy, odd: Rpc
) -> None:
    """Many a call reaches a node that is three blocks behind."""
    await world.register()
    indexer = world.indexer(pool, rpc=odd)
    async with running(indexer):
        await caught_up(indexer, world)
        for turn in range(6):
            await world.submit(b"%d" % turn)
            await world.mine(2)
            proxy.plan = AtRandom(turn, 0.4, [Chance(LagHead(3), BLOCKS)])
            await caught_up(indexer, world)
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 6
    await assert_as_the_chain(world, pool, fresh_pool)


async def test_logs_kept_back_for_good__found_in_the_receipts(
    world: World, pool: Pool, fresh_pool: Pool, proxy: RpcProxy, odd: Rpc
) -> None:
    proxy.plan = Always([OmitLogs()], LOGS)
    indexer = world.indexer(pool, rpc=odd)
    async with running(indexer):
        for turn in range(3):
            await world.submit(b"%d" % turn)
            await caught_up(indexer, world)
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 3
    await assert_as_the_chain(world, pool, fresh_pool)


async def test_logs_missing_behind_a_balancer__asked_again(
    world: World, pool: Pool, fresh_pool: Pool, proxy: RpcProxy, odd: Rpc
) -> None:
    indexer = world.indexer(pool, rpc=odd)
    async with running(indexer):
        await caught_up(indexer, world)
        for turn in range(4):
            plan = InOrder([OmitLogs()], LOGS)
            proxy.plan = plan
            await world.submit(b"%d" % turn)
            await caught_up(indexer, world)
            assert plan.told == 1
    await assert_as_the_chain(world, pool, fresh_pool)


async def test_head_goes_back_and_forth__cursor_never_does(
    world: World, pool: Pool, proxy: RpcProxy, odd: Rpc
) -> None:
    await world.mine(10)
    indexer = world.indexer(pool, rpc=odd)
    async with running(indexer):
        await caught_up(indexer, world)
        before = await tables(pool)
        plan = InOrder([fault for blocks in range(1, 6) for fault in (LagHead(blocks), None)])
        proxy.plan = plan
        async with asyncio.timeout(10):
            while plan.steps:
                await asyncio.sleep(0.01)
        assert await tables(pool) == before
        assert indexer.status.reorgs == 0
        await world.submit()
        await caught_up(indexer, world)
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1


async def test_latest_older_than_finalized__both_believed_no_further_than_they_go(
    world: World, pool: Pool, fresh_pool: Pool, proxy: RpcProxy, odd: Rpc
) -> None:
    """The head comes from a node that lags, finality from one that does not."""
    await world.submit()
    await world.mine(200)

    class HeadOnly(Always):
        def faults(self, exchange: Exchange) -> Any:
            latest = [call["params"][:1] == ["latest"] for call in exchange.calls]
            return super().faults(exchange) if all(latest) else ()

    proxy.plan = HeadOnly([LagHead(20)], BLOCKS)
    head = (await world.head()).number
    indexer = world.indexer(pool, rpc=odd)
    async with running(indexer):
        async with asyncio.timeout(20):
            while indexer.status.indexed != head - 20:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert indexer.status.indexed == indexer.status.finalized == head - 20
        proxy.plan = Calm()
        await caught_up(indexer, world)
        assert indexer.status.finalized == head - 2
    await assert_as_the_chain(world, pool, fresh_pool)


@pytest.mark.parametrize("never", [NoTag("finalized"), NullResult()], ids=repr)
async def test_chain_without_finality__a_quarter_of_the_window_deep(
    world: World, pool: Pool, proxy: RpcProxy, odd: Rpc, never: Fault
) -> None:
    await world.submit()
    await world.mine(100)
    proxy.plan = OnlyTag(never)
    indexer = await index_once(world, pool, rpc=odd, window_blocks=40)
    assert indexer.status.finalized == (await world.head()).number - 10
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1


@pytest.mark.parametrize("once", [NoTag("finalized"), NullResult()], ids=repr)
async def test_finality_unknown_for_a_while__nothing_is_guessed_and_nothing_waits(
    world: World, pool: Pool, fresh_pool: Pool, proxy: RpcProxy, odd: Rpc, once: Fault
) -> None:
    """A guess would be kept for good, as finality does not go back; and the endpoint that takes the
    place of one that failed may never have heard of it."""
    await world.mine(10)
    indexer = world.indexer(pool, rpc=odd, window_blocks=0)
    async with running(indexer):
        await caught_up(indexer, world)
        final = indexer.status.finalized
        proxy.plan = OnlyTag(once)
        await world.mine(100)
        await caught_up(indexer, world)
        assert indexer.status.finalized == final
        proxy.plan = Calm()
        await world.mine()
        await caught_up(indexer, world)
    assert indexer.status.finalized == (await world.head()).number - 2
    await index_once(world, fresh_pool, window_blocks=0)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


class OnlyTag:
    """The fault for questions about `finalized` alone."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def faults(self, exchange: Exchange) -> list[Fault]:
        asked = [call["params"][:1] == ["finalized"] for call in exchange.calls]
        return [self.fault] if all(asked) else []


async def test_node_on_another_fork__followed_and_left_again(
    world: World, pool: Pool, fresh_pool: Pool, proxy: RpcProxy, odd: Rpc
) -> None:
    await world.submit(b"on both")
    indexer = world.indexer(pool, rpc=odd)
    async with running(indexer):
        await world.submit(b"given up")
        await world.mine(3)
        old = await world.head()
        fork = await StoredChain.record(world.rpc.request, old.number - 3, old.number)
        await world.rpc.request("anvil_setCoinbase", ["0x" + "ab" * 20])
        await world.reorg(4, [])
        await world.mine(2)
        await caught_up(indexer, world)
        assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1
        proxy.plan = Always([AnswerFrom(fork)])
        async with asyncio.timeout(10):
            while await pool.fetchval("SELECT block_hash FROM chain.cursor") != old.hash:
                await asyncio.sleep(0.01)
        assert await pool.fetchval("SELECT count(*) FROM chain.request") == 2
        proxy.plan = Calm()
        await caught_up(indexer, world)
        assert indexer.status.reorgs >= 2
    await assert_as_the_chain(world, pool, fresh_pool)


async def test_range_refused_in_each_dialect__halved_until_it_is_taken(
    world: World, proxy: RpcProxy, odd: Rpc
) -> None:
    await world.submit()
    await world.mine(80)
    await world.submit()
    head = await world.head()
    addresses = world.contracts.addresses()
    expected = await world.rpc.logs_in_range(1, head.number, addresses)
    for dialect in RangeDialect:
        proxy.plan = Always([RefuseRange(dialect, 16)], LOGS)
        reader, found, next_number = RangeReader(odd, addresses), list[RawLog](), 1
        while next_number <= head.number:
            try:
                read = await reader.read(
                    next_number, head.number, cursor=None, keep_from=head.number
                )
            except (RpcError, RpcUnreachable):
                continue  # Words in no row: narrowed at the third time.
            found += read.logs
            next_number = read.headers[-1].number + 1
        assert found == expected, dialect


@pytest.mark.parametrize(
    "fault",
    [HttpStatus(429), HttpStatus(503), ErrorObject(-32005, "rate limit exceeded"), HangUp()],
    ids=repr,
)
async def test_trouble_with_every_tenth_call__indexed_all_the_same(
    world: World,
    pool: Pool,
    fresh_pool: Pool,
    proxy: RpcProxy,
    odd: Rpc,
    fault: Fault,
) -> None:
    await world.submit()
    await world.mine(70)
    indexer = world.indexer(pool, rpc=odd)
    await indexer.prepare()
    proxy.plan = AtRandom(1, 0.1, [Chance(fault)])
    async with running(indexer):
        await caught_up(indexer, world, timeout_s=120)
    await assert_as_the_chain(world, pool, fresh_pool)


async def test_two_indexers_on_one_database__one_cursor_and_each_row_once(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    both = [world.indexer(pool, poll_interval_s=0.001) for _ in range(2)]
    async with running(both[0]), running(both[1]):
        for turn in range(12):
            await world.submit(b"%d" % turn)
            if turn % 4 == 3:
                await world.rpc.request("anvil_setCoinbase", ["0x" + f"{turn:040x}"])
                await world.reorg(3, [])
                await world.mine()
        for indexer in both:
            await caught_up(indexer, world)
    assert await pool.fetchval("SELECT count(*) FROM chain.cursor") == 1
    await assert_as_the_chain(world, pool, fresh_pool)
