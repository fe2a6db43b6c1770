"""One transaction per step: whatever breaks it, cursor and rows stay as they were."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from indexer.batch import Batch
from indexer.database import BLOCK_CHANNEL, Pool, connect
from indexer.reorg.coordinator import find_branch
from indexer.store import CursorMoved, Store, load_cursor
from tests.indexer.world import World, differences, index_once, tables

DIGEST = b"\x0d" * 32


class Killed(Exception):
    """Stands for the process ending between two statements."""


class BreakingPool:
    """Hands out connections that break before their `after`-th statement."""

    def __init__(self, pool: Pool, after: int) -> None:
        self.pool = pool
        self.left = after

    @contextlib.asynccontextmanager
    async def acquire(self) -> AsyncIterator[Any]:
        async with self.pool.acquire() as connection:
            yield BreakingConnection(connection, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)


class BreakingConnection:
    def __init__(self, connection: Any, owner: BreakingPool) -> None:
        self.connection = connection
        self.owner = owner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.connection, name)
        if name not in {
            "execute",
            "executemany",
            "fetch",
            "fetchrow",
            "fetchval",
            "copy_records_to_table",
        }:
            return method

        async def counted(*arguments: Any, **options: Any) -> Any:
            if self.owner.left == 0:
                raise Killed
            self.owner.left -= 1
            return await method(*arguments, **options)

        return counted


@pytest.mark.parametrize("reorganised", [False, True])
async def test_kill__between_any_two_statements__all_or_nothing(
    world: World, pool: Pool, fresh_pool: Pool, reorganised: bool
) -> None:
    await world.register()
    first = await world.submit()
    await world.mine(3)
    await index_once(world, pool)
    # Blocks with a request, a result and an unreadable log, added or in place of others.
    await world.submit(b"second")
    await world.post({first: DIGEST})
    if reorganised:
        await index_once(world, pool)
        await world.reorg(3, [])
        await world.submit(b"third")
        await world.post({first: DIGEST})
    before = await tables(pool)

    killed = 0
    while True:
        breaking = BreakingPool(pool, after=killed + 3)  # The load and the count come before.
        try:
            await index_once(world, breaking, window_blocks=256)  # type: ignore[arg-type]
        except Killed:
            killed += 1
            now = await tables(pool)
            if now != before:
                # A block of its own was committed before the one that broke: it is whole.
                cursor = now["cursor"][0]
                assert (
                    max(dict(row)["number"] for row in now["block"]) == dict(cursor)["block_number"]
                )
                before = now
            continue
        break
    assert killed > 8, "the statements were not counted"
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def branch_batch(world: World, store: Store) -> tuple[Any, Batch]:
    position = await store.load()
    head = await world.head()
    branch = await find_branch(world.rpc, position.window, head, world.contracts.addresses())
    assert branch is not None
    return position, Batch(branch.headers, (), ())


async def test_commit__cursor_moved_by_another__nothing_written(world: World, pool: Pool) -> None:
    await index_once(world, pool)
    await world.mine()
    ours = Store(pool, world.contracts, window_blocks=16)
    position, batch = await branch_batch(world, ours)
    await index_once(world, pool)
    before = await tables(pool)
    with pytest.raises(CursorMoved):
        await ours.commit(position, batch, finalized=0)
    assert await tables(pool) == before


async def test_commit__two_first_writers__one_wins(world: World, pool: Pool) -> None:
    stores = [Store(pool, world.contracts, window_blocks=16) for _ in range(2)]
    batches = [await branch_batch(world, store) for store in stores]
    outcomes = await asyncio.gather(
        *(
            store.commit(position, batch, finalized=0)
            for store, (position, batch) in zip(stores, batches, strict=True)
        ),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["CursorMoved", "Position"]


async def test_run__cursor_moved_by_another__goes_on_from_there(world: World, pool: Pool) -> None:
    indexer = await index_once(world, pool)
    await world.mine()
    await index_once(world, pool)
    await world.submit()
    task = asyncio.create_task(indexer.run())
    async with asyncio.timeout(10):
        while await pool.fetchval("SELECT count(*) FROM chain.request") == 0:
            await asyncio.sleep(0.01)
    task.cancel()


async def test_commit__wakes_listeners_with_the_block_number(
    world: World, pool: Pool, database: str
) -> None:
    heard: list[str] = []
    listener = await connect(database)
    await listener.add_listener(BLOCK_CHANNEL, lambda *event: heard.append(event[3]))
    await index_once(world, pool)
    head = (await world.head()).number
    async with asyncio.timeout(5):
        while str(head) not in heard:
            await asyncio.sleep(0.01)
    await listener.close()
    cursor = await load_cursor_of(pool)
    assert cursor.number == head


async def load_cursor_of(pool: Pool) -> Any:
    async with pool.acquire() as connection:
        return await load_cursor(connection)


async def test_load_cursor__empty_index__none(pool: Pool) -> None:
    assert await load_cursor_of(pool) is None


async def test_commit__requests_of_rows_above_and_among_ours__each_written_once(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    """Ids are handed out in order, so a row as new as ours is none that a chain leads to; but where
    there is one, the request is folded anew from its logs and not written twice."""
    for text in (b"one", b"two", b"three"):
        await world.submit(text)
    await index_once(world, fresh_pool)
    rows = await fresh_pool.fetch("SELECT * FROM chain.request ORDER BY id")
    assert [row["id"] for row in rows] == [1, 2, 3]
    for row, changed in ((rows[1], 2), (rows[2], 9)):
        values = dict(row) | {"id": changed, "fee_wei": 1, "input": b"stale"}
        places = ", ".join(f"${at + 1}" for at in range(len(values)))
        await pool.execute(
            f"INSERT INTO chain.request ({', '.join(values)}) VALUES ({places})", *values.values()
        )

    await index_once(world, pool)

    await pool.execute("DELETE FROM chain.request WHERE id = 9")
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_commit__settled_in_the_batch_that_creates_it__one_whole_row(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    """Once as a backfill sees it, and once block by block."""
    await world.register()
    first, second = await world.submit(), await world.submit(b"\0\xff not text")
    for _ in range(2):
        await index_once(world, fresh_pool)
        await world.post({first: DIGEST})
        first = second
    await index_once(world, fresh_pool)
    await world.mine(300)
    await index_once(world, fresh_pool)

    await index_once(world, pool)

    ours, stepwise = await tables(pool), await tables(fresh_pool)
    assert [dict(row)["status"] for row in ours["request"]] == ["fulfilled", "fulfilled"]
    assert differences(ours, stepwise) == {}
