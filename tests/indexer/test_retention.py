"""What was settled long ago goes, whole; what anybody still waits for stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from indexer.database import Connection, Pool
from indexer.forget import count_requests
from indexer.recheck import Recheck
from indexer.verify import BlockRange, Verifier
from inferd.cli.client import NodeClient, NotFound
from inferd.node import retention
from inferd.node.api import ApiState, build_api
from inferd.node.health import Health
from inferd.node.retention import Retention
from inferd.node.server import bind, serve, url_of
from inferd.node.settings import ApiSettings
from inferd.outputs.sweep import drop_outputs
from tests.indexer.test_commit import BreakingPool, Killed
from tests.indexer.test_recheck import DIGEST, FINAL_BLOCKS, recheck_all
from tests.indexer.test_verify import repaired, verified
from tests.indexer.world import World, differences, index_once, tables

DAYS = 90
WINDOW = 8


async def no_fence(connection: Connection) -> None:
    pass


def job(pool: Pool, days: int = DAYS) -> Retention:
    return Retention(pool, no_fence, settled_days=days)


async def pass_days(world: World, days: int) -> None:
    await world.rpc.request("evm_increaseTime", [days * 86_400])
    await world.mine(FINAL_BLOCKS)


async def catch_up(world: World, pool: Pool) -> None:
    await index_once(world, pool, window_blocks=WINDOW)
    await recheck_all(Recheck(world.rpc, pool, world.contracts))


async def node_rows(pool: Pool, request_id: int, *, nonce: int = 1) -> int:
    """What a node has of a settled request: a lease, a result, a closed transaction; its id."""
    key = request_id, await commitment_of(pool, request_id)
    await pool.execute(
        "INSERT INTO node.lease (request_id, commitment, worker, attempt, state, expires_at)"
        " VALUES ($1, $2, '', 1, 'done', now())",
        *key,
    )
    await pool.execute(
        "INSERT INTO node.result (request_id, commitment, worker, lease_id, digest, output,"
        " media_type, manifest, signature, compute_ms)"
        " VALUES ($1, $2, '', 1, '', 'the output', '', '{}', '', 1)",
        *key,
    )
    intent: int = await pool.fetchval(
        "INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit, reason,"
        " inputs, closed_at) VALUES ('post', '', 'confirmed', '\\x07', '', '', 1, '', '{}',"
        " now() - interval '91 days') RETURNING id"
    )
    await pool.execute(
        "INSERT INTO node.tx_item VALUES ($1, $2, $3, '', false, 'settled')", intent, *key
    )
    await pool.execute(
        "INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,"
        " priority_fee_wei, gas_limit, raw, state) VALUES ($1, $2, 1, '\\x07', $3, 1, 1, 1, '',"
        " 'mined')",
        nonce.to_bytes(4, "big"),
        intent,
        nonce,
    )
    return intent


async def commitment_of(pool: Pool, request_id: int) -> bytes:
    found: bytes = await pool.fetchval(
        "SELECT commitment FROM chain.request WHERE id = $1", request_id
    )
    return found


async def ids(pool: Pool, table: str = "chain.request", column: str = "id") -> list[int]:
    rows = await pool.fetch(f"SELECT DISTINCT {column} AS id FROM {table} ORDER BY 1")
    return [row["id"] for row in rows if row["id"] is not None]


@pytest.fixture
async def old(world: World, pool: Pool) -> Pool:
    """Requests 1 and 2 settled 91 days ago, 3 open since; all of it final and compared again."""
    await world.register()
    for text in (b"one", b"two", b"three"):
        await world.submit(text, deadline_in_s=365 * 86_400)
    await world.post({1: DIGEST, 2: DIGEST})
    await pass_days(world, DAYS + 1)
    await catch_up(world, pool)
    await pool.execute("INSERT INTO node.sender VALUES (1, '\\x07', 1000)")
    for request_id in (1, 2, 3):
        await node_rows(pool, request_id, nonce=request_id)
    return pool


async def test_settled_long_ago__gone_with_logs_and_outputs__and_nothing_else(
    world: World, old: Pool
) -> None:
    before = await tables(old)
    await job(old).run()
    assert await ids(old) == [3]
    for table in ("chain.log", "node.result", "node.lease", "node.tx_item"):
        assert await ids(old, table, "request_id") == [3]
    assert await ids(old, "node.tx_intent") == await ids(old, "node.tx_item", "intent_id")
    after = await tables(old)
    for table in ("cursor", "block", "quarantine", "worker", "payment"):
        assert after[table] == before[table]
    async with old.acquire() as connection:
        assert await count_requests(connection) == {"fulfilled": 2, "pending": 1}
    await job(old).run()
    assert await tables(old) == after


async def test_forgotten__the_api_says_so(old: Pool) -> None:
    await job(old).run()
    listener = bind(ApiSettings(port=0))
    listener.listen()
    serving = asyncio.create_task(serve(build_api(ApiState(Health(), db=old)), listener))
    async with NodeClient(url_of(listener)) as client:
        for ask in (client.request, client.why, client.result):
            with pytest.raises(NotFound, match="settled long ago"):
                await ask(1)
        assert (await client.request(3)).id == 3
        with pytest.raises(NotFound, match="has no request 9"):
            await client.request(9)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_forgotten__is_not_missing__and_not_brought_back(world: World, old: Pool) -> None:
    await job(old).run()
    after = await tables(old)
    assert await verified(world, old) == []
    assert await repaired(world, old) == []
    await old.execute("DELETE FROM chain.recheck")
    recheck = Recheck(world.rpc, old, world.contracts)
    await recheck_all(recheck)
    assert recheck.status.repaired_blocks == 0
    assert await tables(old) == after
    # Damage beside it is still found, and mended without it.
    await old.execute("DELETE FROM chain.request")
    await old.execute("DELETE FROM chain.log WHERE kind IN ('InferenceRequested', 'WorkerPaid')")
    assert await verified(world, old) != []
    await repaired(world, old)
    assert differences(await tables(old), after) == {}
    await world.post({3: DIGEST})
    await catch_up(world, old)
    async with old.acquire() as connection:
        assert await count_requests(connection) == {"fulfilled": 3}


async def test_forgotten__while_a_repair_is_between_reading_and_writing__not_brought_back(
    world: World, old: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Verifier._look

    async def look_and_lose(verifier: Verifier, part: BlockRange) -> Any:
        found = await look(verifier, part)
        await job(old).run()
        return found

    monkeypatch.setattr(Verifier, "_look", look_and_lose)
    await old.execute("DELETE FROM chain.payment")
    await repaired(world, old)
    assert await ids(old) == [3]
    assert await ids(old, "chain.log", "request_id") == [3]
    monkeypatch.undo()
    await job(old).run()
    assert await verified(world, old) == []


KEPT = {
    "too young": "UPDATE chain.log SET timestamp_s = timestamp_s + 2 * 86400 WHERE request_id = 1",
    "its consumer was not called": "UPDATE chain.request SET delivery = 2 WHERE id = 1",
    "its consumer failed": "UPDATE chain.request SET delivery = 2, callback_failures = 1"
    " WHERE id = 1",
    "its payment is held back": "INSERT INTO chain.log SELECT block_hash, 99, block_number,"
    " timestamp_s, tx_hash, tx_index, address, 'PaymentHeld', 1, NULL, topics, data"
    " FROM chain.log WHERE request_id = 1 AND kind = 'InferenceFulfilled'",
    "its dispute is open": "INSERT INTO chain.log SELECT block_hash, 99 + n, block_number,"
    " timestamp_s, tx_hash, tx_index, address,"
    " CASE n WHEN 0 THEN 'PaymentHeld' ELSE 'DisputeOpened' END, 1, NULL, topics, data"
    " FROM chain.log, generate_series(0, 1) n WHERE request_id = 1 AND kind = 'InferenceFulfilled'",
    "something came of late": "UPDATE chain.log SET block_number = (SELECT max(number)"
    " FROM chain.block) WHERE request_id = 1 AND kind = 'InferenceRequested'",
    "within the reach of a reorganisation": "UPDATE chain.block SET number = 1 WHERE number ="
    " (SELECT min(number) FROM chain.block)",
    "not compared with the chain again": "UPDATE chain.recheck SET block_number = 2",
    "never compared with the chain again": "DELETE FROM chain.recheck",
    "in a live transaction": "UPDATE node.tx_item SET live = true WHERE request_id = 1",
    "a worker computes it": "UPDATE node.lease SET state = 'active' WHERE request_id = 1",
}


@pytest.mark.parametrize("reason", KEPT)
async def test_kept__while(reason: str, world: World, old: Pool) -> None:
    await old.execute(KEPT[reason])
    await job(old).run()
    assert 1 in await ids(old)
    assert 1 in await ids(old, "node.result", "request_id")
    assert 1 in await ids(old, "node.tx_item", "request_id")
    async with old.acquire() as connection:
        assert await count_requests(connection) == {"fulfilled": 2, "pending": 1}


async def test_released_payment__goes(world: World, old: Pool) -> None:
    await old.execute(KEPT["its dispute is open"])
    await old.execute("UPDATE chain.log SET kind = 'DisputeRuled' WHERE kind = 'DisputeOpened'")
    await job(old).run()
    assert await ids(old) == [3]


async def test_transaction__of_a_nonce_that_may_come_back__stays(world: World, old: Pool) -> None:
    await old.execute("UPDATE node.sender SET next_nonce = 514")
    await job(old).run()
    # Nonce 1 is out of reach, nonce 2 is not, and the third is of a request that is still open.
    assert await ids(old, "node.tx_attempt", "nonce") == [2, 3]


async def test_transaction__that_anchors_a_decision__stays_as_long_as_that(
    world: World, old: Pool
) -> None:
    await old.execute(
        "INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, pending, assigned,"
        " kept, refused, duration_us) VALUES (1, '', 1, '', 1, 1, 0, 0, 1)"
    )
    await old.execute(
        "INSERT INTO node.decision (round_id, request_id, commitment, kind, reason, intent_id)"
        " SELECT id, 1, '', 'assign', '',"
        " (SELECT min(id) FROM node.tx_intent) FROM node.round"
    )
    await job(old).run()
    assert await ids(old, "node.tx_item", "request_id") == [1, 3]
    await old.execute("DELETE FROM node.decision")
    await job(old).run()
    assert await ids(old, "node.tx_item", "request_id") == [3]


async def test_zero_days__keeps_everything_and_counts(world: World, old: Pool) -> None:
    before = await tables(old)
    await job(old, days=0).run()
    assert await tables(old) == before
    assert await old.fetchval("SELECT fulfilled FROM chain.tally") == 2


async def test_many__page_by_page_past_those_that_stay(
    world: World, old: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_AT_ONCE", 1)
    await old.execute(KEPT["its consumer failed"])
    await job(old).run()
    assert await ids(old) == [1, 3]
    assert await ids(old, "node.tx_item", "request_id") == [1, 3]


async def test_counts__after_a_repair__counted_anew(world: World, old: Pool) -> None:
    await old.execute("UPDATE chain.request SET status = 'refunded' WHERE id = 1")
    await job(old, days=0).run()
    assert await old.fetchval("SELECT refunded FROM chain.tally") == 1
    await repaired(world, old)
    async with old.acquire() as connection:
        assert await count_requests(connection) == {"fulfilled": 2, "pending": 1}


async def test_a_leader_that_was_replaced__forgets_nothing(world: World, old: Pool) -> None:
    class Replaced(Exception):
        pass

    async def fence(connection: Connection) -> None:
        raise Replaced

    before = await tables(old)
    with pytest.raises(Replaced):
        await Retention(old, fence, settled_days=DAYS).run()
    assert await tables(old) == before


async def test_killed_between_any_two_statements__each_request_whole_or_gone(
    world: World, old: Pool
) -> None:
    killed = 0
    while True:
        try:
            await job(BreakingPool(old, after=killed)).run()  # type: ignore[arg-type]
        except Killed:
            killed += 1
            whole = await ids(old)
            assert whole in ([1, 2, 3], [3])
            assert await ids(old, "chain.log", "request_id") == whole
            assert await ids(old, "node.result", "request_id") == whole
            async with old.acquire() as connection:
                assert await count_requests(connection) == {"fulfilled": 2, "pending": 1}
            continue
        break
    assert killed > 12, "the statements were not counted"
    assert await ids(old) == [3]


async def test_outputs_go_after_their_time__of_what_is_over_alone(
    old: Pool,
) -> None:
    async def kept() -> list[int]:
        rows = await old.fetch(
            "SELECT request_id FROM node.result WHERE output IS NOT NULL ORDER BY 1"
        )
        return [row["request_id"] for row in rows]

    assert await drop_outputs(old, no_fence, after_days=7) == 0
    await old.execute("UPDATE node.result SET computed_at = now() - interval '8 days'")
    assert await drop_outputs(old, no_fence, after_days=0) == 0
    assert await drop_outputs(old, no_fence, after_days=9) == 0
    # Request 3 is open, and a transaction has request 2 in hand.
    await old.execute("UPDATE node.tx_item SET live = true WHERE request_id = 2")
    await drop_outputs(old, no_fence, after_days=7)
    assert await kept() == [2, 3]
    await old.execute("UPDATE node.tx_item SET live = false")
    # Somebody still has to call its consumer.
    await old.execute("UPDATE chain.request SET delivery = 2 WHERE id = 2")
    await drop_outputs(old, no_fence, after_days=7)
    assert await kept() == [2, 3]
    await old.execute("UPDATE chain.request SET delivery = 0 WHERE id = 2")
    await drop_outputs(old, no_fence, after_days=7)
    assert await kept() == [3]
    assert await old.fetchval("SELECT count(*) FROM node.result") == 3
