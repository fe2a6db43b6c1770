"""A five-block reorganisation under a working daemon: a request vanishes, another moves and takes
its id, a result's transaction is undone. The tables equal a fresh index, and all is served once."""

from __future__ import annotations

import asyncio
from typing import Any

from indexer.database import connect, open_pool
from indexer.follow import Indexer
from indexer.schema import chain_migrations, migrate
from indexer.types import Hash32
from inferd.chain.requester import read_request
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.request import RequestParams, model_id
from tests.faults.test_crash_points import assert_each_settled_once
from tests.harness import FEE_WEI, MODEL, OWNER, POSTER, System, account

_DEPTH = 5
_MOVED_SENDER = 7
_TABLES = ("request", "log", "quarantine", "worker", "payment")


async def test_request_removed_another_moved_result_undone(
    world: System, empty_database: str, database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    kept = await world.ask("settled, undone, and settled again")
    settled = await node.until_state(kept.request_id, "settled")
    await world.rpc.request("evm_setIntervalMining", [0])

    head = await _head(world)
    removed = _params(head.timestamp_s, "on the old branch only")
    moved = _params(head.timestamp_s, "on both branches")
    await _send_unmined(world, 2, removed)
    raw_moved = await _send_unmined(world, _MOVED_SENDER, moved)
    await world.mine()
    old_head = await _head(world)
    await _until_indexed(node, old_head.number)
    # The result's block and everything after it go; the new branch is one block longer.
    assert old_head.number - settled["settled_block"] < _DEPTH
    missing = _DEPTH - 1 - (old_head.number - settled["settled_block"])
    await world.mine(missing) if missing else None
    before = await _head(world)
    await _until_indexed(node, before.number)
    await world.rpc.request("anvil_reorg", [_DEPTH, [["0x" + raw_moved.hex(), 2]]])
    await world.mine()
    after = await _head(world)
    assert after.number == before.number + 1

    await world.rpc.request("evm_setIntervalMining", [1])
    second_id = kept.request_id + 1
    view = await node.until_state(second_id, "settled", timeout_s=90)
    await node.until_state(kept.request_id, "settled", timeout_s=90)
    on_chain = await read_request(world.rpc, world.deployment.contracts, second_id)
    assert on_chain.params.input == moved.input
    assert view["commitment"] == "0x" + on_chain.commitment.hex()

    await world.rpc.request("evm_setIntervalMining", [0])
    final = await _head(world)
    await _until_indexed(node, final.number)
    assert node.stop() == 0
    await assert_each_settled_once(world, [kept.request_id, second_id])
    assert await world.credit_wei(POSTER) + await world.credit_wei(OWNER) == 2 * FEE_WEI
    assert await _dump(empty_database) == await _fresh_index(world, database, final.number)


def _params(now_s: int, prompt: str) -> RequestParams:
    return RequestParams(model_id(MODEL), 8, now_s + 600, 0, prompt.encode())


async def _head(world: System) -> Any:
    head = await world.rpc.header("latest")
    assert head is not None
    return head


async def _send_unmined(world: System, index: int, params: RequestParams) -> bytes:
    sender = Sender(world.rpc, account(index), world.deployment.contracts.chain_id)
    transaction = await sender._fill(
        world.deployment.contracts.requests, calls.submit(params), FEE_WEI
    )
    raw = bytes(account(index).sign_transaction(transaction).raw_transaction)
    await world.rpc.send_raw_transaction(raw)
    return raw


async def _until_indexed(node: Any, number: int) -> None:
    async def check() -> bool:
        _, status = await node.get("/v1/status")
        return bool(status) and (status["index"]["indexed"] or 0) >= number

    await node.until(check, 30, f"indexed up to block {number}")


async def _fresh_index(world: System, database: str, number: int) -> dict[str, list[Any]]:
    connection = await connect(database)
    await migrate(connection, "chain", chain_migrations())
    await connection.close()
    pool = await open_pool(database)
    indexer = Indexer(
        world.rpc,
        pool,
        world.deployment.contracts,
        genesis_hash=Hash32(world.deployment.genesis_hash),
    )
    await indexer.prepare()
    running = asyncio.create_task(indexer.run())
    async with asyncio.timeout(30):
        while (indexer.status.indexed or 0) < number:
            await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await pool.close()
    return await _dump(database)


async def _dump(database: str) -> dict[str, list[Any]]:
    connection = await connect(database)
    found = {
        name: sorted(map(repr, await connection.fetch(f"SELECT * FROM chain.{name}")))
        for name in _TABLES
    }
    await connection.close()
    assert found["request"]
    return found
