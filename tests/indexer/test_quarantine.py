"""Logs that an older release could not read are read again after an upgrade."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from indexer import decode
from indexer.database import Connection, Pool
from indexer.quarantine import load_quarantined, replay_quarantined
from tests.indexer.test_commit import BreakingPool, Killed
from tests.indexer.test_recheck import FINAL_BLOCKS, history
from tests.indexer.test_verify import repaired
from tests.indexer.world import World, caught_up, differences, index_once, running, tables


async def indexed_by_an_older_release(
    world: World, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that knew neither settlements nor stakes."""
    known = [entry for entry in decode._EVENTS if not entry[1].startswith(("Inf", "Staked"))]
    with monkeypatch.context() as patched:
        patched.setattr(decode, "_EVENTS", known)
        await index_once(world, pool)


async def test_replay__after_an_upgrade__tables_as_if_it_had_always_known(
    world: World, pool: Pool, fresh_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(world)
    await indexed_by_an_older_release(world, pool, monkeypatch)
    before = await load_quarantined(pool)
    assert len(before) == 4
    assert "no event of the interface" in before[0].reason
    done = await replay_quarantined(world.rpc, pool, world.contracts)
    assert (done.replayed, done.left) == (4, ())
    await index_once(world, pool)
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_replay__beside_a_running_indexer__which_tells_of_none_then(
    world: World, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(world)
    await indexed_by_an_older_release(world, pool, monkeypatch)
    indexer = world.indexer(pool)
    async with running(indexer):
        await caught_up(indexer, world)
        assert indexer.status.quarantined == 4
        await replay_quarantined(world.rpc, pool, world.contracts)
        await world.mine()
        await caught_up(indexer, world)
        assert indexer.status.quarantined == 0


@pytest.mark.parametrize("before_connection", range(1, 9))
async def test_replay__beside_a_repair__loses_nothing_that_was_mended(
    before_connection: int,
    world: World,
    pool: Pool,
    fresh_pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await history(world)
    await world.mine(FINAL_BLOCKS)
    await indexed_by_an_older_release(world, pool, monkeypatch)
    await pool.execute("DELETE FROM chain.log WHERE kind = 'WorkerPaid'")
    connections = 0

    class Beside:
        """Mends the tables just before the replay gets its n-th connection."""

        fetch = pool.fetch

        @contextlib.asynccontextmanager
        async def acquire(self) -> AsyncIterator[Connection]:
            nonlocal connections
            connections += 1
            if connections == before_connection:
                await repaired(world, pool)
            async with pool.acquire() as connection:
                yield connection

    await replay_quarantined(world.rpc, Beside(), world.contracts)  # type: ignore[arg-type]
    await repaired(world, pool) if connections < before_connection else None
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_replay__of_what_still_cannot_be_read__changes_nothing(
    world: World, pool: Pool
) -> None:
    await history(world)
    await index_once(world, pool)
    await pool.execute(
        "WITH gone AS (DELETE FROM chain.log WHERE kind = 'Staked' RETURNING *)"
        " INSERT INTO chain.quarantine SELECT block_hash, log_index, block_number, tx_hash,"
        " tx_index, address, ARRAY['\\x01'::bytea], data, 'dirty' FROM gone"
    )
    before = await tables(pool)
    done = await replay_quarantined(world.rpc, pool, world.contracts)
    assert done.replayed == 0
    assert [item.reason for item in done.left] == ["dirty"]
    assert await tables(pool) == before


async def test_replay__killed_between_any_two_statements__each_log_in_one_place(
    world: World, pool: Pool, fresh_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(world)
    await indexed_by_an_older_release(world, pool, monkeypatch)
    everywhere = "SELECT (SELECT count(*) FROM chain.log) + (SELECT count(*) FROM chain.quarantine)"
    total = await pool.fetchval(everywhere)
    killed = 0
    while True:
        breaking = BreakingPool(pool, after=killed)
        try:
            await replay_quarantined(world.rpc, breaking, world.contracts)  # type: ignore[arg-type]
        except Killed:
            killed += 1
            assert await pool.fetchval(everywhere) == total
            continue
        break
    assert killed > 8, "the statements were not counted"
    await index_once(world, pool)
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
