"""What rounds saw, stored with them, and what of it is forgotten."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from indexer.database import Pool
from inferd.node import audits
from inferd.node.upkeep import Upkeep
from inferd.outputs.files import OutputFiles
from inferd.settlement.decisions import SELECT_DECISION, origin_of, rebuilt_leaf
from scheduler import recording
from scheduler.allowance import Limits, Quota
from scheduler.audit import leaf, merkle_proof
from scheduler.model import RequestKey
from scheduler.plan import plan
from scheduler.policies import policy_named
from scheduler.replay import candidates, replayed
from tests.node.house import House, house, no_fence

__all__ = ["house"]

LIMITS = Limits(Quota(1.0, 100.0), {b"slow": Quota(0.001, 100.0), b"free": Quota(0.0, 100.0)})


@pytest.fixture
def upkeep(pool: Pool, tmp_path: Path) -> Upkeep:
    return Upkeep(
        pool,
        no_fence,
        input_hours=24,
        outputs=OutputFiles(tmp_path, above_bytes=0),
        settled_days=0,
        output_days=0,
        snapshot_hours=24,
        snapshot_bytes=1_000,
        own_accounts=tuple,
        limits=lambda: LIMITS,
        on_expiry=lambda: None,
    )


async def recorded(house: House) -> recording.Recording:
    async with house.db.acquire() as connection:
        newest = await connection.fetchval("SELECT max(id) FROM node.round")
        stored = await audits.load_recorded(connection, newest)
    assert stored is not None
    return recording.decode(recording.decompress(stored))


async def test_each_round_computed_once_more_decides_the_same(house: House) -> None:
    """Also rounds that know of earlier ones: retries, requests that wait, learnt speeds."""
    house.rounds.record_up_to = 100
    for number in range(1, 14):
        await house.request(number, fee_wei=10**9 if number % 4 == 0 else 10**16)
        decided = await house.rounds.round()
        assert decided is not None
        seen = await recorded(house)
        assert plan(seen.snapshot, policy_named(seen.policy)) == decided
        for one in (*decided.assigned, *decided.kept, *decided.refused):
            assert replayed(seen, policy_named(seen.policy), one.key) == one
        if number % 3 == 0:
            await house.settle_down()


async def test_the_digest_is_in_the_leaves(house: House) -> None:
    house.rounds.record_up_to = 100
    await house.request(1)
    decided = await house.rounds.round()
    assert decided is not None
    row = await house.db.fetchrow(
        f"SELECT {SELECT_DECISION} FROM node.decision d JOIN node.round r ON r.id = d.round_id"
    )
    origin = origin_of(row)
    assert origin.snapshot_digest == recording.digest(recording.encode(await recorded(house)))
    assert rebuilt_leaf(row) == leaf(decided.assigned[0], origin)


async def test_whom_a_round_could_choose_from(house: House) -> None:
    house.rounds.record_up_to = 100
    commitment = await house.request(1)
    decided = await house.rounds.round()
    assert decided is not None
    seen = await recorded(house)
    offered = candidates(seen, RequestKey(1, commitment))
    assert {one.worker for one in offered} == {worker.address for worker in house.workers}
    assert decided.assigned[0].worker in {one.worker for one in offered}
    (chosen,) = (one for one in offered if one.worker == decided.assigned[0].worker)
    assert chosen.p90_ms == pytest.approx(decided.assigned[0].numbers.p90_ms)
    assert candidates(seen, RequestKey(9, commitment)) == []
    assert replayed(seen, policy_named(seen.policy), RequestKey(9, commitment)) is None


async def test_a_round_with_too_many_requests_is_not_recorded(house: House) -> None:
    house.rounds.record_up_to = 1
    await house.request(1)
    await house.request(2)
    await house.rounds.round()
    row = await house.db.fetchrow("SELECT snapshot_digest FROM node.round")
    assert row["snapshot_digest"] is None
    assert await house.db.fetchval("SELECT count(*) FROM node.round_snapshot") == 0


async def test_snapshots_go_after_their_hours_and_their_digests_stay(
    house: House, upkeep: Upkeep
) -> None:
    house.rounds.record_up_to = 100
    await house.request(1)
    await house.rounds.round()
    await upkeep.forget_snapshots()
    assert await house.db.fetchval("SELECT count(*) FROM node.round_snapshot") == 1
    await house.db.execute("UPDATE node.round SET created_at = now() - interval '25 hours'")
    await upkeep.forget_snapshots()
    assert await house.db.fetchval("SELECT count(*) FROM node.round_snapshot") == 0
    assert await house.db.fetchval("SELECT count(snapshot_digest) FROM node.round") == 1


async def test_the_newest_snapshots_are_kept_up_to_a_size(pool: Pool, upkeep: Upkeep) -> None:
    for size in (10, 400, 500, 450):
        round_id = await pool.fetchval(
            "INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, pending,"
            " assigned, kept, refused, duration_us) VALUES (1, '', 1, 'p', 0, 0, 0, 0, 0)"
            " RETURNING id"
        )
        await pool.execute("INSERT INTO node.round_snapshot VALUES ($1, $2)", round_id, bytes(size))
    await upkeep.forget_snapshots()
    rows = await pool.fetch("SELECT octet_length(encoding) AS size FROM node.round_snapshot")
    assert sorted(row["size"] for row in rows) == [450, 500]


async def a_decision(pool: Pool, intent: int | None, *, days_old: int) -> None:
    round_id = await pool.fetchval(
        "INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, pending, assigned,"
        " kept, refused, duration_us, created_at)"
        " VALUES (1, '', 1, 'p', 0, 0, 0, 0, 0, now() - $1 * interval '1 day') RETURNING id",
        days_old,
    )
    await pool.execute(
        "INSERT INTO node.decision (round_id, request_id, commitment, kind, reason, intent_id)"
        " VALUES ($1, 1, '', 'assign', 'assigned', $2)",
        round_id,
        intent,
    )


async def test_decisions_of_one_tree_are_forgotten_together(pool: Pool, upkeep: Upkeep) -> None:
    """What is left of a tree could not be proved any more."""
    for intent, days_old in ((1, 40), (1, 10), (2, 40), (2, 35), (None, 40), (3, 1)):
        await a_decision(pool, intent, days_old=days_old)
    await upkeep.forget_old_rounds()
    rows = await pool.fetch("SELECT intent_id FROM node.decision ORDER BY id")
    assert [row["intent_id"] for row in rows] == [1, 1, None, 3]
    assert await pool.fetchval("SELECT count(*) FROM node.round") == 4


async def test_requesters_are_forgotten_by_upkeep(pool: Pool, upkeep: Upkeep) -> None:
    await pool.execute(
        "INSERT INTO node.length_stat (model_id, tenant, updated_at)"
        " VALUES ('m', 'gone', now() - interval '40 days'), ('m', 'here', now())"
    )
    await upkeep.forget_requesters()
    assert await pool.fetchval("SELECT count(*) FROM node.length_stat") == 1


async def test_a_bucket_that_has_filled_up_is_forgotten(pool: Pool, upkeep: Upkeep) -> None:
    """Anyone can ask from a new address each time, and every round reads the table."""
    minute_ago_s = time.time() - 60
    for tenant, tokens, deficit in (
        (b"usual", 50.0, 0.0),
        (b"empty", 10.0, 0.0),
        (b"owed", 100.0, 5.0),
        (b"slow", 50.0, 0.0),
        (b"free", -50.0, 0.0),
    ):
        await pool.execute(
            "INSERT INTO node.tenant VALUES ($1, $2, $3, $4)", tenant, tokens, minute_ago_s, deficit
        )
    await upkeep.forget_requesters()
    rows = await pool.fetch("SELECT tenant FROM node.tenant ORDER BY tenant")
    assert [row["tenant"] for row in rows] == [b"empty", b"owed", b"slow"]


async def test_proofs_are_made_off_the_event_loop(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proof hashes thousands of leaves, and rounds run on the loop that answers."""
    await pool.execute(
        "INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input,"
        " max_tokens, memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei,"
        " deadline_s, submitted_deadline_s, created_block, created_block_hash, created_log_index,"
        " created_tx_hash, created_at_s)"
        " VALUES (1, '', '', '', 0, '', 1, 0, 0, 1, true, 0, 1, 1, 1, 1, '', 0, '', 1)"
    )
    await a_decision(pool, 1, days_old=1)
    await pool.execute("UPDATE node.decision SET leaf = $1, leaf_version = 2", bytes(32))
    threads = []

    def proof(leaves: list[bytes], member: bytes) -> list[bytes]:
        threads.append(threading.current_thread())
        return merkle_proof(leaves, member)

    monkeypatch.setattr(audits, "merkle_proof", proof)
    async with pool.acquire() as connection:
        found = await audits.load_decisions_of(connection, 1)
    assert [one.proof for one in found.decisions] == [[]]
    assert threads and threading.main_thread() not in threads
