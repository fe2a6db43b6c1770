"""Final blocks are compared with the chain once more, and mended where an endpoint fooled us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from indexer.batch import Batch
from indexer.database import Connection, Pool
from indexer.recheck import Recheck
from indexer.rpc import Rpc, RpcMalformed
from indexer.store import CursorMoved, Store
from indexer.types import Hash32
from indexer.verify import Verifier, choose_range
from inferd.chain.anvil import Anvil
from tests.indexer.scripted import result, scripted_node
from tests.indexer.test_commit import BreakingPool, Killed
from tests.indexer.world import World, differences, index_once, tables

DIGEST = b"\x0d" * 32
FINAL_BLOCKS = 100
"""Anvil calls a block final that is so deep, or less."""


async def lied_about(
    world: World, anvil: Anvil, pool: Pool, change: Callable[[list[Any]], list[Any]]
) -> None:
    """Indexes to the head through a node that changes each answer with logs."""

    async def script(body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == "eth_getLogs":
            return result(body, change(await world.rpc.request(body["method"], body["params"])))
        return None

    async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
        await index_once(world, pool, rpc=rpc)


async def history(world: World) -> None:
    """A staked worker, a settled and an open request; all of it final soon after."""
    await world.register()
    first = await world.submit()
    await world.post({first: DIGEST})
    await world.submit(b"open")


async def recheck_all(recheck: Recheck) -> None:
    while await recheck.step():
        pass


def omit_first_of_several(logs: list[Any]) -> list[Any]:
    """Of a block with several logs: the bloom filter cannot tell."""
    blocks = [entry["blockHash"] for entry in logs]
    return [entry for at, entry in enumerate(logs) if entry["blockHash"] not in blocks[at + 1 :]]


def shift_data(logs: list[Any]) -> list[Any]:
    """Amounts, digests and deadlines, all of them changed by a bit."""
    return [
        entry | {"data": entry["data"][:-1] + f"{int(entry['data'][-1], 16) ^ 1:x}"}
        if len(entry["data"]) > 2
        else entry
        for entry in logs
    ]


@pytest.mark.parametrize("far_behind", [False, True])
@pytest.mark.parametrize("lie", [omit_first_of_several, shift_data])
async def test_lies_that_no_check_at_the_head_sees__mended_when_final(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool, far_behind: bool, lie: Any
) -> None:
    await history(world)
    if far_behind:
        await world.mine(FINAL_BLOCKS)
    await lied_about(world, anvil, pool, lie)
    if not far_behind:
        await world.mine(FINAL_BLOCKS)
    await index_once(world, pool)
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) != {}
    recheck = Recheck(world.rpc, pool, world.contracts)
    await recheck_all(recheck)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
    assert recheck.status.repaired_blocks > 0


async def test_a_log_that_the_chain_does_not_have__goes_with_what_derived_from_it(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    await history(world)
    await world.mine(FINAL_BLOCKS)
    await index_once(world, pool)
    await index_once(world, fresh_pool)
    await pool.execute(
        "INSERT INTO chain.log SELECT block_hash, 900, block_number, timestamp_s, tx_hash,"
        " tx_index, address, kind, request_id, worker, topics, data FROM chain.log"
        " WHERE kind = 'WorkerPaid'"
    )
    await pool.execute(
        "INSERT INTO chain.payment SELECT block_hash, 900, block_number, tx_hash, role, account,"
        " worker, results, amount_wei FROM chain.payment WHERE role = 'worker'"
    )
    recheck = Recheck(world.rpc, pool, world.contracts)
    await recheck_all(recheck)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
    assert recheck.status.repaired_blocks == 1


async def test_progress__outlives_the_process__and_empty_blocks_cost_one_batch_of_headers(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    await history(world)
    await world.mine(FINAL_BLOCKS)
    await index_once(world, pool)
    await recheck_all(Recheck(world.rpc, pool, world.contracts))
    await world.mine(50)
    indexer = await index_once(world, pool)
    async with scripted_node(anvil.url) as node, Rpc([node.url]) as rpc:
        again = Recheck(rpc, pool, world.contracts)
        await recheck_all(again)
        assert again.status.checked == indexer.status.finalized
        (batch,) = node.calls
        assert [call["method"] for call in batch] == ["eth_getBlockByNumber"] * 50
        await recheck_all(Recheck(rpc, pool, world.contracts))
        assert len(node.calls) == 1


async def test_two_endpoints__what_they_agree_on_needs_no_receipts(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    await history(world)
    await world.mine(FINAL_BLOCKS)
    await index_once(world, pool)
    async with scripted_node(anvil.url) as node, Rpc([anvil.url, node.url]) as rpc:
        recheck = Recheck(rpc, pool, world.contracts)
        await recheck_all(recheck)
        asked = {call["method"] for call in node.calls if isinstance(call, dict)}
        assert asked == {"eth_getBlockByHash", "eth_getLogs"}
    assert recheck.status.repaired_blocks == 0


@pytest.mark.parametrize("window_blocks", [8, 256])
@pytest.mark.parametrize(
    "damage", ["SELECT", "DELETE FROM chain.log", "UPDATE chain.log SET data = '' WHERE true"]
)
async def test_two_endpoints__the_other_on_a_dead_branch__undoes_nothing_and_holds_up_nothing(
    window_blocks: int, damage: str, world: World, anvil: Anvil, pool: Pool
) -> None:
    """Linked blocks without our logs, also below those whose headers are remembered."""
    await history(world)
    await world.mine(FINAL_BLOCKS + 20)
    await index_once(world, pool, window_blocks=window_blocks)
    before = await tables(pool)
    await pool.execute(damage)

    def moved(block_hash: str) -> str:
        return f"0x{int(block_hash[2:4], 16) ^ 0x77:02x}{block_hash[4:]}"

    async def dead(call: Any) -> Any:
        method, (first, *_) = call["method"], call["params"]
        if method == "eth_getBlockByHash":
            number = next((n for n, known in hashes.items() if known == first), None)
            if number is None:
                return result(call, None)
            method, first = "eth_getBlockByNumber", number
        if method != "eth_getBlockByNumber":
            return result(call, [])
        header = await world.rpc.request(method, [first, False])
        header |= {"hash": moved(header["hash"]), "parentHash": moved(header["parentHash"])}
        hashes[header["number"]] = header["hash"]
        return result(call, header | {"logsBloom": "0x" + "00" * 256})

    hashes: dict[str, str] = {}

    async def script(body: Any) -> Any:
        return [await dead(call) for call in body] if isinstance(body, list) else await dead(body)

    async with scripted_node(anvil.url, script) as node, Rpc([anvil.url, node.url]) as rpc:
        recheck = Recheck(rpc, pool, world.contracts)
        with capture_logs() as logs:
            await recheck_all(recheck)
            verifier = Verifier(rpc, pool, world.contracts)
            whole = await choose_range(pool, world.contracts, None, None)
            async for report in verifier.verify(whole):
                assert report.differences == ()
    strayed = [entry["endpoint"] for entry in logs if entry["log_level"] == "warning"]
    assert set(strayed) == {node.url}
    assert recheck.status.checked == whole.last
    assert differences(await tables(pool), before) == {}


async def test_another_branch_than_the_indexed_one__nothing_is_changed(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    await history(world)
    await world.mine(FINAL_BLOCKS)
    await index_once(world, pool)
    before = await tables(pool)

    async def script(body: Any) -> Any:
        if not isinstance(body, list):
            return None
        answers = []
        for call in body:
            header = await world.rpc.request(call["method"], call["params"])
            answers.append(result(call, header | {"hash": "0x" + "77" * 32}))
        return answers

    async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
        recheck = Recheck(rpc, pool, world.contracts, pause_s=0.01)
        with pytest.raises(RpcMalformed):
            await recheck.step()
        task = asyncio.create_task(recheck.run())
        async with asyncio.timeout(5):
            while recheck.status.last_error is None:
                await asyncio.sleep(0.01)
        task.cancel()
    assert await tables(pool) == before
    assert await pool.fetchval("SELECT count(*) FROM chain.recheck") == 0


async def test_final_blocks_that_were_replaced_after_all__looked_at_again(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    await history(world)
    await world.mine(FINAL_BLOCKS)
    await index_once(world, pool)
    await recheck_all(Recheck(world.rpc, pool, world.contracts))
    # What a reorganisation below the final block leaves: another block where the progress is.
    await pool.execute("UPDATE chain.recheck SET block_hash = '\\x00'")
    await pool.execute("DELETE FROM chain.log WHERE kind = 'WorkerPaid'")
    await index_once(world, fresh_pool)
    await recheck_all(Recheck(world.rpc, pool, world.contracts))
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_run__behind_the_daemon__mends_by_itself_and_only_when_there_is_time(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    await history(world)
    await world.mine(FINAL_BLOCKS)
    await index_once(world, pool)
    await index_once(world, fresh_pool)
    await pool.execute("DELETE FROM chain.log WHERE kind = 'InferenceFulfilled'")
    idle = False
    recheck = Recheck(world.rpc, pool, world.contracts, may_run=lambda: idle, pause_s=0.01)
    task = asyncio.create_task(recheck.run())
    await asyncio.sleep(0.2)
    assert recheck.status.checked is None
    idle = True
    async with asyncio.timeout(20):
        while differences(await tables(pool), await tables(fresh_pool)):
            await asyncio.sleep(0.05)
    task.cancel()


async def test_kill__between_any_two_statements__each_block_whole_or_untouched(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool
) -> None:
    await history(world)
    await world.mine(FINAL_BLOCKS)
    await lied_about(world, anvil, pool, omit_first_of_several)
    await index_once(world, pool)
    await index_once(world, fresh_pool)
    fresh = await tables(fresh_pool)
    before = await tables(pool)
    killed = 0
    while True:
        breaking = BreakingPool(pool, after=killed)
        try:
            await recheck_all(Recheck(world.rpc, breaking, world.contracts))  # type: ignore[arg-type]
        except Killed:
            killed += 1
            now = await tables(pool)
            assert now in (before, fresh)
            continue
        break
    assert killed > 15, "the statements were not counted"
    assert differences(await tables(pool), fresh) == {}


async def test_fence__a_writer_that_was_replaced__writes_nothing(world: World, pool: Pool) -> None:
    class Replaced(Exception):
        pass

    async def fence(connection: Connection) -> None:
        raise Replaced

    await history(world)
    await world.mine(FINAL_BLOCKS)
    await index_once(world, pool)
    await pool.execute("DELETE FROM chain.log WHERE kind = 'WorkerPaid'")
    before = await tables(pool)
    with pytest.raises(Replaced):
        await Recheck(world.rpc, pool, world.contracts, fence=fence).step()
    assert await tables(pool) == before


async def test_replace_blocks__of_a_block_that_is_gone__refused(world: World, pool: Pool) -> None:
    await history(world)
    indexer = await index_once(world, pool)
    store = Store(pool, world.contracts, window_blocks=16)
    head = indexer.status.indexed or 0
    before = await tables(pool)
    for number in (head, head + 1):
        with pytest.raises(CursorMoved):
            await store.replace_blocks({number: Hash32(bytes(32))}, Batch((), (), ()))
    assert await tables(pool) == before
