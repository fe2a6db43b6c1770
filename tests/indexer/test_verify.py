"""Tables against receipts: every kind of damage is found, told of and mended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer import verify
from indexer.compare import Difference, Kind, compare_logs
from indexer.database import Pool
from indexer.decode import Decoder
from indexer.derived import check_derived
from indexer.rebuild import empty_tables
from indexer.rpc import RawLog, Rpc, RpcMalformed
from indexer.types import Address, Hash32
from indexer.verify import (
    BlockRange,
    IndexMoves,
    NothingIndexed,
    NotIndexed,
    Verifier,
    choose_range,
)
from inferd.chain.anvil import Anvil
from tests.indexer.scripted import result, scripted_node
from tests.indexer.test_commit import BreakingPool, Killed
from tests.indexer.test_recheck import DIGEST, FINAL_BLOCKS, history
from tests.indexer.world import World, caught_up, differences, index_once, running, tables

_LOGS = st.builds(
    RawLog,
    address=st.just(Address(bytes(20))),
    topics=st.just(()),
    data=st.binary(max_size=1),
    block_number=st.integers(1, 2),
    block_hash=st.sampled_from([Hash32(b"\1" * 32), Hash32(b"\2" * 32)]),
    tx_hash=st.just(Hash32(bytes(32))),
    tx_index=st.just(0),
    log_index=st.integers(0, 3),
)
_LOG_LISTS = st.lists(_LOGS, unique_by=lambda log: (log.block_hash, log.log_index), max_size=8)


@given(_LOG_LISTS, _LOG_LISTS)
def test_compare__tells_of_each_log_that_only_one_side_has_or_has_otherwise(
    stored: list[RawLog], read: list[RawLog]
) -> None:
    found = compare_logs(stored, read)
    ours, theirs = (
        {(log.block_hash, log.log_index): log for log in logs} for logs in (stored, read)
    )
    kinds = [one.kind for one in found]
    assert kinds.count(Kind.MISSING_LOG) == len(theirs.keys() - ours.keys())
    assert kinds.count(Kind.EXTRA_LOG) == len(ours.keys() - theirs.keys())
    both = ours.keys() & theirs.keys()
    assert kinds.count(Kind.DIFFERING_LOG) == sum(ours[key] != theirs[key] for key in both)
    assert (found == []) == (set(ours.values()) == set(theirs.values()))


async def verified(
    world: World, pool: Pool, rpc: Rpc | None = None, last: int | None = None, **options: Any
) -> list[Difference]:
    verifier = Verifier(rpc or world.rpc, pool, world.contracts, **options)
    whole = await choose_range(pool, world.contracts, None, last)
    return [one async for report in verifier.verify(whole) for one in report.differences]


async def repaired(world: World, pool: Pool) -> list[Difference]:
    verifier = Verifier(world.rpc, pool, world.contracts)
    whole = await choose_range(pool, world.contracts, None, None)
    return [one async for report in verifier.repair(whole) for one in report.differences]


DAMAGES = {
    "a log lacks": (
        "DELETE FROM chain.log WHERE kind = 'InferenceFulfilled'",
        {Kind.MISSING_LOG, Kind.WRONG_REQUEST},
    ),
    "all lack": (
        "WITH l AS (DELETE FROM chain.log), p AS (DELETE FROM chain.payment),"
        " w AS (DELETE FROM chain.worker) DELETE FROM chain.request",
        {Kind.MISSING_LOG},
    ),
    "a forged log": (
        "INSERT INTO chain.log SELECT block_hash, 77, block_number, timestamp_s, tx_hash, tx_index,"
        " address, kind, request_id, worker, topics, data FROM chain.log WHERE kind = 'Staked'",
        {Kind.EXTRA_LOG},
    ),
    "a log of another branch": (
        "UPDATE chain.log SET block_hash = '\\x99' WHERE kind = 'PosterPaid'",
        {Kind.MISSING_LOG, Kind.EXTRA_LOG, Kind.WRONG_PAYMENT},
    ),
    "changed data": (
        "UPDATE chain.log SET data = set_byte(data, 31, 9) WHERE kind = 'WorkerPaid'",
        {Kind.DIFFERING_LOG, Kind.WRONG_PAYMENT},
    ),
    "data that nobody can read": (
        "UPDATE chain.log SET data = '' WHERE kind = 'InferenceRequested' AND request_id = 2",
        {Kind.DIFFERING_LOG, Kind.WRONG_REQUEST},
    ),
    "a wrong time": (
        "UPDATE chain.log SET timestamp_s = 5 WHERE kind = 'WorkerPaid'",
        {Kind.DIFFERING_LOG},
    ),
    "a log named otherwise": (
        "UPDATE chain.log SET kind = 'Nothing' WHERE kind = 'PosterPaid'",
        {Kind.DIFFERING_LOG},
    ),
    "a request without its log's worth": (
        "UPDATE chain.request SET status = 'pending', fee_wei = 7 WHERE id = 1",
        {Kind.WRONG_REQUEST},
    ),
    "a request lacks": ("DELETE FROM chain.request WHERE id = 2", {Kind.WRONG_REQUEST}),
    "a request that nobody made": (
        "INSERT INTO chain.request SELECT (r).* FROM (SELECT"
        " jsonb_populate_record(r, '{\"id\": 9}') AS r FROM chain.request r WHERE id = 1) made",
        {Kind.WRONG_REQUEST},
    ),
    "a worker with another stake": (
        "UPDATE chain.worker SET stake_wei = 1",
        {Kind.WRONG_WORKER},
    ),
    "a payment too much": (
        "INSERT INTO chain.payment SELECT '\\x12', 0, b.number, tx_hash, role, account, worker,"
        " results, amount_wei FROM chain.payment, (SELECT max(number) AS number FROM chain.block"
        " WHERE number <= (SELECT finalized_number FROM chain.cursor)) b WHERE role = 'worker'",
        {Kind.WRONG_PAYMENT},
    ),
    "a payment lacks": ("DELETE FROM chain.payment WHERE role = 'poster'", {Kind.WRONG_PAYMENT}),
}


@pytest.fixture
async def indexed(world: World, pool: Pool) -> Pool:
    await history(world)
    await world.mine(FINAL_BLOCKS)
    await index_once(world, pool)
    return pool


async def test_every_damage__found_by_verify__mended_by_repair(
    world: World, indexed: Pool, fresh_pool: Pool
) -> None:
    await index_once(world, fresh_pool)
    fresh = await tables(fresh_pool)
    assert await verified(world, indexed) == []
    assert await verified(world, indexed, every_block=True) == []
    for name, (damage, kinds) in DAMAGES.items():
        await indexed.execute(damage)
        found = await verified(world, indexed)
        assert {one.kind for one in found} == kinds, name
        assert await repaired(world, indexed) == found, name
        assert differences(await tables(indexed), fresh) == {}, name
        assert await verified(world, indexed) == [], name


async def test_repair__of_logs_nobody_can_read_in_several_parts__each_in_its_turn(
    world: World, indexed: Pool, fresh_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request is folded from its logs in all parts: those of the next are still damaged."""
    monkeypatch.setattr(verify, "_BLOCKS_AT_ONCE", 1)
    await indexed.execute("UPDATE chain.log SET data = '' WHERE request_id IS NOT NULL")
    await indexed.execute("UPDATE chain.log SET data = '' WHERE worker IS NOT NULL")
    assert await repaired(world, indexed) != []
    await index_once(world, fresh_pool)
    assert differences(await tables(indexed), await tables(fresh_pool)) == {}
    assert await verified(world, indexed) == []


async def test_indexing__beside_a_stored_log_that_nobody_can_read__goes_on(
    world: World, indexed: Pool
) -> None:
    """One damaged row is a matter for `verify`: it must not stop the cursor."""
    await indexed.execute("UPDATE chain.log SET data = '' WHERE kind = 'InferenceRequested'")
    await world.post({2: DIGEST})
    await world.mine(FINAL_BLOCKS)
    await index_once(world, indexed)
    await repaired(world, indexed)
    assert await indexed.fetchval("SELECT status FROM chain.request WHERE id = 2") == "fulfilled"


async def test_repair__while_the_tables_are_emptied__says_so(
    world: World, indexed: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `rebuild` does, or a reorganisation after every look."""
    look = Verifier._look

    async def look_and_lose(verifier: Verifier, part: BlockRange) -> Any:
        found = await look(verifier, part)
        async with indexed.acquire() as connection, connection.transaction():
            await empty_tables(connection)
        return found

    monkeypatch.setattr(Verifier, "_look", look_and_lose)
    await indexed.execute("DELETE FROM chain.payment")
    with pytest.raises(IndexMoves, match=r"blocks \d+ to \d+"):
        await repaired(world, indexed)


async def test_verify__does_not_ask_the_index_of_logs_that_may_have_fooled_us(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    await history(world)
    await world.mine(FINAL_BLOCKS)

    async def script(body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == "eth_getLogs":
            return result(body, [])
        return None

    async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
        await index_once(world, pool, rpc=rpc)
        found = await verified(world, pool, rpc)
        asked = {call["method"] for call in node.calls[-20:] if isinstance(call, dict)}
        assert "eth_getLogs" not in asked
    assert {one.kind for one in found} == {Kind.MISSING_LOG}
    assert len(found) == await log_count(world)


async def log_count(world: World) -> int:
    head = await world.head()
    logs = await world.rpc.logs_in_range(0, head.number, world.contracts.addresses())
    return len(logs)


async def test_bloom_filters_that_are_empty__are_not_relied_on(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    await history(world)
    await world.mine(FINAL_BLOCKS)

    async def script(body: Any) -> Any:
        if isinstance(body, dict):
            return None
        headers = [await world.rpc.request(call["method"], call["params"]) for call in body]
        empty = {"logsBloom": "0x" + "00" * 256}
        return [result(call, h | empty) for call, h in zip(body, headers, strict=True)]

    await index_once(world, pool)
    async with scripted_node(anvil.url, script) as node, Rpc([node.url]) as rpc:
        await pool.execute("DELETE FROM chain.log WHERE kind = 'InferenceRequested'")
        # The other logs that are stored show that the filters deny what is there.
        found = await verified(world, pool, rpc)
        assert [one.kind for one in found].count(Kind.MISSING_LOG) == 2
        await pool.execute(DAMAGES["all lack"][0])
        assert await verified(world, pool, rpc) == []
        found = await verified(world, pool, rpc, every_block=True)
        assert len(found) == await log_count(world)


async def test_verify__of_a_branch_that_the_node_does_not_follow__says_so(
    world: World, indexed: Pool
) -> None:
    head = (await world.head()).number
    await world.reorg(3, [])
    with pytest.raises(RpcMalformed, match="another block"):
        await verified(world, indexed, last=head)


async def test_range__that_is_not_indexed__refused(world: World, pool: Pool) -> None:
    with pytest.raises(NothingIndexed):
        await choose_range(pool, world.contracts, None, None)
    indexer = await index_once(world, pool)
    head = indexer.status.indexed or 0
    start = world.contracts.start_block
    for first, last in ((start - 1, head), (start, head + 1), (head, start - 1), (head, head - 1)):
        with pytest.raises(NotIndexed):
            await choose_range(pool, world.contracts, first, last)
    chosen = await choose_range(pool, world.contracts, start, head)
    assert chosen.blocks == head - start + 1


async def test_repair__beside_a_running_indexer_and_another_repair__tables_as_fresh(
    world: World, indexed: Pool, fresh_pool: Pool
) -> None:
    await indexed.execute("DELETE FROM chain.log WHERE block_number % 2 = 0")
    await indexed.execute("UPDATE chain.request SET fee_wei = 3")
    indexer = world.indexer(indexed)
    async with running(indexer):

        async def live() -> None:
            for number in range(12):
                await world.submit(str(number).encode())
                if number == 6:
                    await world.reorg(2, [])

        await asyncio.gather(live(), repaired(world, indexed), repaired(world, indexed))
        await caught_up(indexer, world)
    await index_once(world, fresh_pool)
    assert differences(await tables(indexed), await tables(fresh_pool)) == {}


async def test_repair__killed_between_any_two_statements__whole_parts_or_none(
    world: World, indexed: Pool, fresh_pool: Pool
) -> None:
    await index_once(world, fresh_pool)
    fresh = await tables(fresh_pool)
    await indexed.execute("DELETE FROM chain.log WHERE kind IN ('Staked', 'WorkerPaid')")
    await indexed.execute("DELETE FROM chain.request")
    before = await tables(indexed)
    killed = 0
    while True:
        try:
            await repaired(world, BreakingPool(indexed, after=killed + 1))  # type: ignore[arg-type]
        except Killed:
            killed += 1
            assert await tables(indexed) in (before, fresh)
            continue
        break
    assert killed > 20, "the statements were not counted"
    assert differences(await tables(indexed), fresh) == {}


async def test_derived__of_a_range_without_rows__nothing(world: World, pool: Pool) -> None:
    async with pool.acquire() as connection:
        found = await check_derived(connection, Decoder(world.contracts), 0, 100)
    assert found.differences == []
