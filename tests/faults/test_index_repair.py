"""A working daemon and the commands that mend its tables, side by side on one database."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from indexer.database import connect, open_pool
from indexer.types import Hash32
from tests.faults.test_crash_points import assert_each_settled_once, assert_no_nonce_gap
from tests.harness import NodeProcess, System
from tests.indexer.world import World, differences, index_once, tables


async def command(node: NodeProcess, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "inferd",
        "--config",
        str(node.data_dir / "inferd.toml"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, stdout.decode(), stderr.decode()


async def ask_and_settle(world: System, node: NodeProcess, count: int) -> list[int]:
    asked = [await world.ask(f"prompt {number}") for number in range(count)]
    for request in asked:
        await node.until_state(request.request_id, "settled")
    return [request.request_id for request in asked]


async def execute(database: str, statement: str) -> None:
    connection = await connect(database)
    await connection.execute(statement)
    await connection.close()


async def rechecked(database: str) -> None:
    """Until the node has looked once more at all there is now, and looks at it no more."""
    connection = await connect(database)
    head = await connection.fetchval("SELECT block_number FROM chain.cursor")
    async with asyncio.timeout(20):
        while (await connection.fetchval("SELECT block_number FROM chain.recheck") or 0) < head:
            await asyncio.sleep(0.1)
    await connection.close()


async def differing(world: System, database: str, fresh: str) -> dict[str, Any]:
    """After the daemon has ended: its tables against those of a fresh index of the same head."""
    await world.rpc.request("evm_setIntervalMining", [0])
    deployment = world.deployment
    chain = World(world.rpc, deployment.contracts, Hash32(deployment.genesis_hash), [])
    found = []
    for url in (database, fresh):
        pool = await open_pool(url)
        await index_once(chain, pool)
        content = await tables(pool)
        found.append(content | {"block": content["block"][-20:]})
        await pool.close()
    return differences(*found)


async def test_repair_beside_a_working_node(
    world: System, empty_database: str, database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    ids = await ask_and_settle(world, node, 2)
    await rechecked(empty_database)
    await execute(empty_database, "DELETE FROM chain.log WHERE kind = 'PosterPaid'")
    await execute(empty_database, "UPDATE chain.request SET fee_wei = 1 WHERE id = 1")
    head = await world.rpc.header("latest")
    assert head is not None
    upto = ("--to", str(head.number - 1))
    (code, found, _), more = await asyncio.gather(
        command(node, "index", "repair", "--json", *upto), ask_and_settle(world, node, 3)
    )
    assert code == 0
    assert json.loads(found)["differences"] != [], found
    code, _, errors = await command(node, "index", "verify", *upto)
    assert code == 0, errors
    assert node.stop() == 0
    assert node.events("session_ended") == []
    await assert_each_settled_once(world, ids + more)
    assert await differing(world, empty_database, database) == {}


async def test_rebuild_beside_a_working_node(
    world: System, empty_database: str, database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    ids = await ask_and_settle(world, node, 2)
    await execute(empty_database, "UPDATE chain.block SET hash = '\\x01' || hash")
    asked = await world.ask("asked just before")
    code, done, errors = await command(node, "index", "rebuild", "--json")
    assert code == 0, errors
    assert json.loads(done)["indexed_block"] > 0
    assert "a node is running" in errors
    await node.until_state(asked.request_id, "settled")
    ids += [asked.request_id, *await ask_and_settle(world, node, 2)]
    assert len(node.events("session_ended")) == 1
    assert len(node.events("leading")) == 2
    assert node.stop() == 0
    await assert_each_settled_once(world, ids)
    await assert_no_nonce_gap(world, empty_database)
    assert await differing(world, empty_database, database) == {}


async def test_the_node_mends_by_itself_what_is_final(
    world: System, empty_database: str, database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    await ask_and_settle(world, node, 1)
    await execute(empty_database, "DELETE FROM chain.log WHERE kind = 'WorkerPaid'")
    await execute(empty_database, "DELETE FROM chain.payment WHERE role = 'worker'")
    await execute(empty_database, "DELETE FROM chain.recheck")
    await world.mine(100)

    async def mended() -> bool:
        return bool(node.events("final_block_repaired"))

    await node.until(mended, 30, "mended")
    assert node.events("final_block_repaired")[0]["missing_log"] == 1

    async def told() -> bool:
        return "inferd_repaired_blocks 1.0" in await node.get_text("/metrics")

    await node.until(told, 10, "told by the metrics")
    assert node.stop() == 0
    assert await differing(world, empty_database, database) == {}
