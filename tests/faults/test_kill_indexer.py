"""SIGKILL at any moment: the cursor is never ahead of the rows, nor the rows of the cursor."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

from msgspec.structs import replace

from indexer.database import Pool
from indexer.rpc import Rpc
from inferd.chain.anvil import load_anvil_config, start_anvil
from tests.faults.indexing_process import described
from tests.faults.receipts import ChainSays, assert_equal, read_chain, read_tables
from tests.faults.restless_chain import KEEP_STATES, RestlessChain
from tests.indexer.conftest import fresh_pool
from tests.indexer.world import World, build_world, differences, index_once, tables

__all__ = ["fresh_pool"]

_PROGRAM = str(Path(__file__).with_name("indexing_process.py"))
_KILLS = 8


async def test_killed_again_and_again__rows_and_cursor_are_of_one_block(
    database: str, pool: Pool, fresh_pool: Pool, tmp_path: Path
) -> None:
    config = replace(load_anvil_config(), port=0, block_time_s=0, slots_in_an_epoch=16)
    with start_anvil(config, log=tmp_path / "anvil.log", extra_arguments=KEEP_STATES) as anvil:
        async with Rpc([anvil.url]) as rpc:
            world = await build_world(anvil, rpc)
            chain = RestlessChain(world, seed=1)
            await chain.begin()
            die = random.Random(1)
            what = described(world.contracts, world.genesis_hash)
            cut_short = 0
            for _ in range(_KILLS):
                program = [sys.executable, _PROGRAM, anvil.url, database, what]
                with subprocess.Popen(program) as process:
                    try:
                        await cursor_moves(pool, process)
                        for _ in range(die.randrange(2, 40)):
                            await chain.step()
                    finally:
                        process.kill()
                cut_short += await assert_of_one_block(world, pool)
                for _ in range(3):
                    await chain.step()
                if die.random() < 0.5:
                    await chain.far_ahead()
            assert cut_short, "it was always done before it was killed"
            await index_once(world, pool)
            assert_equal(await read_tables(pool), await read_chain(rpc.request, world.contracts))
            await index_once(world, fresh_pool)
            assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def cursor_moves(pool: Pool, process: subprocess.Popen[bytes]) -> None:
    before = await pool.fetchval("SELECT block_hash FROM chain.cursor")
    async with asyncio.timeout(30):
        while await pool.fetchval("SELECT block_hash FROM chain.cursor") == before:
            assert process.poll() is None, "it ended by itself"
            await asyncio.sleep(0.005)


async def assert_of_one_block(world: World, pool: Pool) -> bool:
    """Compares with the chain up to the cursor, where the cursor's block is still on it; whether
    that was below the head."""
    ours = await read_tables(pool)
    number, block_hash = ours.head
    assert max(ours.hashes) == number
    assert ours.hashes[number] == block_hash
    assert all(log[0] <= number for log in ours.logs), "rows above the cursor"
    said = await read_chain(world.rpc.request, world.contracts)
    if said.hashes.get(number) != block_hash:
        return True
    there = {log for log in said.logs if log[0] <= number}
    assert ours.logs == there
    if said.head == ours.head:
        assert_equal(ours, said)
    created = {key: row for key, row in said.requests.items() if row[1] in _hashes(said, number)}
    assert ours.requests.keys() == created.keys()
    return said.head != ours.head


def _hashes(said: ChainSays, number: int) -> set[bytes]:
    return {block_hash for at, block_hash in said.hashes.items() if at <= number}
