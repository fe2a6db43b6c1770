"""One range is fetched while another is written, and never a range of the wrong branch used."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, field
from typing import Any

import pytest

from indexer.backfill import ReadRange
from indexer.database import Connection, Pool
from indexer.errors import RpcUnreachable
from indexer.read_ahead import ReadAhead
from indexer.rpc import Header, Rpc
from indexer.types import BlockRef, Hash32, Wei
from tests.indexer.scripted import scripted_node
from tests.indexer.world import World, caught_up, differences, index_once, running, tables

RANGE_BLOCKS = 10


def header(number: int) -> Header:
    own, parent = (Hash32(n.to_bytes(32, "big")) for n in (number, max(0, number - 1)))
    return Header(number, own, parent, number, Wei(0), 0, 0, bytes(256))


def ref(number: int) -> BlockRef:
    return header(number).ref()


@dataclass
class Reader:
    """Ten blocks at a time; remembers what it was asked."""

    asked: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    errors: dict[int, Exception] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    """What is not answered when it is asked for the first time."""

    async def read(
        self, first: int, target: int, *, cursor: BlockRef | None, keep_from: int
    ) -> ReadRange:
        self.asked.append(first)
        if first in self.held:
            self.held.remove(first)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.given_up.append(first)
                raise
        if first in self.errors:
            raise self.errors.pop(first)
        last = min(target, first + RANGE_BLOCKS - 1)
        return ReadRange((header(last),), (), {})


@pytest.fixture
def reader() -> Reader:
    return Reader()


async def read(ahead: ReadAhead, first: int, target: int = 100, **changes: Any) -> int:
    """The last block of what is read."""
    options: dict[str, Any] = {"cursor": ref(first - 1), "keep_from": 50, **changes}
    got = await ahead.read(first, target, **options)
    return got.headers[-1].number


async def test_next_range__asked_before_anybody_wants_it__and_once(reader: Reader) -> None:
    ahead = ReadAhead(reader)
    assert await read(ahead, 1) == 10
    assert reader.asked == [1, 11]
    assert await read(ahead, 11) == 20
    assert reader.asked == [1, 11, 21]


async def test_last_range__nothing_is_read_ahead(reader: Reader) -> None:
    ahead = ReadAhead(reader)
    assert await read(ahead, 91) == 100
    assert reader.asked == [91]


@pytest.mark.parametrize(
    "changes",
    [
        {"first": 6},
        {"cursor": BlockRef(10, Hash32(b"\7" * 32), 10, Wei(0), 0)},
        {"cursor": None},
        {"keep_from": 49},
    ],
    ids=["another place", "another branch", "no cursor", "more headers"],
)
async def test_another_question__what_was_read_ahead_is_given_up(
    reader: Reader, changes: dict[str, Any]
) -> None:
    reader.held = {11}
    ahead = ReadAhead(reader)
    await read(ahead, 1)
    await read(ahead, **{"first": 11, **changes})
    assert reader.given_up == [11]


async def test_finality_went_on__what_was_read_ahead_is_used(reader: Reader) -> None:
    ahead = ReadAhead(reader)
    await read(ahead, 1)
    assert await read(ahead, 11, 120, keep_from=70) == 20
    assert reader.asked == [1, 11, 21]


async def test_finality_went_back__what_is_above_it_is_read_anew(reader: Reader) -> None:
    ahead = ReadAhead(reader)
    await read(ahead, 1)
    assert await read(ahead, 11, 15) == 15
    assert reader.asked == [1, 11, 11]


async def test_failure_ahead__raised_when_its_turn_comes__then_asked_again(reader: Reader) -> None:
    reader.errors[11] = RpcUnreachable("away", help_text="")
    ahead = ReadAhead(reader)
    assert await read(ahead, 1) == 10
    with pytest.raises(RpcUnreachable):
        await read(ahead, 11)
    assert await read(ahead, 11) == 20


async def test_close__gives_up_what_is_on_its_way(reader: Reader) -> None:
    reader.held = {21}
    ahead = ReadAhead(reader)
    await read(ahead, 1)
    await read(ahead, 11)
    await ahead.close()
    await ahead.close()
    assert reader.given_up == [21]


def ranges_in_memory() -> list[ReadRange]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, ReadRange)]


async def test_head_reached__what_was_read_ahead_of_it_is_let_go(world: World, pool: Pool) -> None:
    start = world.contracts.start_block
    await world.mine(start + 128 - (await world.head()).number)
    final = await world.rpc.header("finalized")
    assert final is not None
    assert final.number >= start + 64, "more than a first range: the rest is read ahead"
    others = ranges_in_memory()
    indexer = world.indexer(pool)
    async with running(indexer):
        await caught_up(indexer, world)
        assert indexer.status.range_blocks > 64, "there was a backfill"
        assert len(ranges_in_memory()) == len(others)


async def test_backfill__a_range_being_written__the_next_is_already_asked_for(
    world: World, pool: Pool, fresh_pool: Pool, anvil: Any
) -> None:
    await world.submit()
    await world.mine(300)
    second_range = asyncio.Event()
    seen: list[int] = []

    async def script(body: Any) -> None:
        if isinstance(body, dict) and body["method"] == "eth_getLogs":
            if "fromBlock" in body["params"][0]:
                seen.append(int(body["params"][0]["fromBlock"], 16))
            if len(seen) > 1:
                second_range.set()

    async def wait_for_it(connection: Connection) -> None:
        if seen:  # The database is claimed before anything is read.
            async with asyncio.timeout(10):
                await second_range.wait()

    async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
        indexer = world.indexer(pool, rpc=rpc, fence=wait_for_it)
        async with running(indexer):
            await caught_up(indexer, world)
    assert len(seen) == len(set(seen)), "a range was fetched twice"
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
