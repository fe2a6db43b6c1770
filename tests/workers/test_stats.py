"""What is learnt of workers and requesters, in real tables."""

from __future__ import annotations

import random
from typing import Any

import pytest

from indexer.database import Connection
from indexer.types import ZERO_HASH, Address
from inferd.protocol.request import ModelId, model_id
from inferd.protocol.typed_data import CompactSignature
from inferd.workers import length_stats, service_stats
from inferd.workers.job import Job, SignedResult
from inferd.workers.length_stats import ALL
from inferd.workers.service_stats import Experience, Priors, estimate, output_tokens, read_all
from scheduler.model import ServiceEstimate
from scheduler.predict_round import p90_ms, size_of
from tests.workers.support import MODEL, a_job, learn_length

WORKER, OTHER = Address(b"\x01" * 20), Address(b"\x02" * 20)
REQUESTER, STRANGER = Address(b"\x33" * 20), Address(b"\x44" * 20)
MODEL_ID = ModelId(model_id(MODEL))
PRIOR_MS = 640.0
NOW_S = 1_700_000_000.0


async def on_chain(connection: Connection, job: Job, requester: Address = REQUESTER) -> Job:
    await connection.execute(
        "INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input,"
        " max_tokens, memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei,"
        " deadline_s, submitted_deadline_s, created_block, created_block_hash, created_log_index,"
        " created_tx_hash, created_at_s) VALUES ($1, $2, $3, $4, 0, '', 0, 0, 0, 1, true, 0, 1,"
        " $5, $5, 1, $6, 0, $6, 1)",
        job.request_id,
        job.commitment,
        requester,
        job.model_id,
        job.deadline_s,
        bytes(32),
    )
    return job


def a_result(job: Job, worker: Address, compute_ms: int, manifest: dict[str, Any]) -> SignedResult:
    return SignedResult(
        job.key, worker, ZERO_HASH, b"", "text/plain", manifest, CompactSignature(b""), compute_ms
    )


async def answered(
    connection: Connection,
    job: Job,
    compute_ms: int,
    tokens: object = 10,
    *,
    worker: Address = WORKER,
    at_s: float = NOW_S,
) -> None:
    result = a_result(job, worker, compute_ms, {"completion_tokens": tokens})
    told = Experience(worker, job, result, prior_ms=PRIOR_MS, at_s=at_s)
    await service_stats.record(connection, [told])


async def failed(
    connection: Connection, job: Job, *, waited_ms: float | None = None, worker: Address = WORKER
) -> None:
    told = Experience(worker, job, None, prior_ms=PRIOR_MS, at_s=NOW_S, waited_ms=waited_ms)
    await service_stats.record(connection, [told])


async def known(connection: Connection, worker: Address = WORKER) -> ServiceEstimate:
    stats = await read_all(connection)
    prior = Priors(stats).of(MODEL_ID, PRIOR_MS)
    return estimate(stats.get((worker, MODEL_ID)), prior, NOW_S)


def mean_ms(of: ServiceEstimate, tokens: float = 64.0) -> float:
    return of.base_ms + of.per_token_ms * tokens


async def test_estimates_follow_what_is_measured_and_forget(connection: Connection) -> None:
    job = await on_chain(connection, a_job())
    assert mean_ms(await known(connection)) == pytest.approx(PRIOR_MS)
    await failed(connection, job)
    assert mean_ms(await known(connection)) == pytest.approx(PRIOR_MS), "nothing about speed"
    rng = random.Random(1)
    for speed in (10, 2):
        for _ in range(150):
            tokens = rng.randrange(1, 200)
            await answered(connection, job, 100 + speed * tokens, tokens)
        learnt = await known(connection)
        assert learnt.per_token_ms == pytest.approx(speed, rel=0.15)
        assert learnt.base_ms == pytest.approx(100, rel=0.3)
    stat = (await read_all(connection))[WORKER, MODEL_ID]
    assert (stat.completed, stat.failed) == (300, 1)


async def test_failures_lower_the_bound_and_successes_raise_it(connection: Connection) -> None:
    job = await on_chain(connection, a_job())
    newcomer = (await known(connection)).success_lower
    await answered(connection, job, 100)
    better = (await known(connection)).success_lower
    await failed(connection, job)
    assert (await known(connection)).success_lower < newcomer < better


async def test_a_newcomer_is_taken_for_what_the_others_are(connection: Connection) -> None:
    job = await on_chain(connection, a_job())
    for _ in range(60):
        await answered(connection, job, 5_000, 50)
    assert mean_ms(await known(connection, OTHER), 50) == pytest.approx(5_000, rel=0.1)


async def test_a_worker_that_runs_out_of_time_is_expected_later(connection: Connection) -> None:
    """Its results never come: only results in time would be learnt from otherwise."""
    job = await on_chain(connection, a_job())
    for _ in range(60):
        await answered(connection, job, 1_000, 10)
    before = await known(connection)
    for _ in range(10):
        await failed(connection, job, waited_ms=60_000.0)
    after = await known(connection)
    size = size_of(10.0, 0.5)
    assert p90_ms(after, size) > 2 * p90_ms(before, size)
    assert 60_000.0 <= after.ewma_ms <= 60_000.0 * 2 ** (1 / 8)
    assert mean_ms(after) == pytest.approx(mean_ms(before)), "how long it takes stays unknown"


async def test_lengths_are_learnt_per_requester_and_lean_on_the_model(
    connection: Connection,
) -> None:
    ours = await on_chain(connection, a_job(1))
    theirs = await on_chain(connection, a_job(2), STRANGER)
    for _ in range(60):
        await answered(connection, ours, 100, 500)
        await answered(connection, theirs, 100, 20)
    nobody = Address(b"\x55" * 20)
    pairs = [(MODEL_ID, one) for one in (REQUESTER, STRANGER, nobody)]
    lengths = await length_stats.load(connection, pairs)
    means = [lengths.predict(MODEL_ID, one, 0).mean for one in (REQUESTER, STRANGER, nobody)]
    assert means[1] < 60 < means[2] < means[0]
    assert means[0] > 400
    assert lengths.predict(MODEL_ID, REQUESTER, 100).mean == pytest.approx(100, rel=0.1)


async def test_many_requesters_are_read_at_once(connection: Connection) -> None:
    async with connection.transaction():
        for number in range(3):
            await learn_length(connection, MODEL_ID, Address(b"%020d" % number), 700, 0)
    pairs = [(MODEL_ID, Address(b"%020d" % number)) for number in range(1_200)]
    lengths = await length_stats.load(connection, [pairs[2], *pairs[3:], pairs[0]])
    means = [lengths.predict(*pairs[number], 0).mean for number in (0, 2, 1_199)]
    assert means[0] == means[1] > means[2] > 300


async def test_nothing_known_is_a_law_too(connection: Connection) -> None:
    lengths = await length_stats.load(connection, [(MODEL_ID, REQUESTER)])
    assert lengths.predict(MODEL_ID, REQUESTER, 16).mean == pytest.approx(16, rel=0.05)


async def test_the_p90s_that_are_recorded_hold(connection: Connection) -> None:
    """The same numbers as a round computes are judged: tokens, then time."""
    job = await on_chain(connection, a_job())
    rng = random.Random(7)
    lengths_held = times_held = 0
    for number in range(400):
        lengths = await length_stats.load(connection, [(MODEL_ID, REQUESTER)])
        size = size_of(*lengths.predict(MODEL_ID, REQUESTER, 0))
        tokens = max(1, round(rng.lognormvariate(4.0, 0.8)))
        took_ms = round((100 + 20 * tokens) * rng.lognormvariate(0.0, 0.3))
        if number >= 100:
            lengths_held += tokens <= size.p90_tokens
            times_held += took_ms <= p90_ms(await known(connection), size)
        await answered(connection, job, took_ms, tokens)
    assert lengths_held / 300 == pytest.approx(0.9, abs=0.03)
    assert times_held / 300 == pytest.approx(0.9, abs=0.03)


async def test_a_request_that_a_reorganisation_took_teaches_of_its_model_alone(
    connection: Connection,
) -> None:
    await answered(connection, a_job(9), 100, 30)
    rows = await connection.fetch("SELECT tenant FROM node.length_stat")
    assert [row["tenant"] for row in rows] == [ALL]


@pytest.mark.parametrize("said", [None, "ten", -1, 1.5, True])
async def test_tokens_that_are_not_said_teach_no_length(
    connection: Connection, said: object
) -> None:
    job = await on_chain(connection, a_job())
    await answered(connection, job, 100, said)
    assert await connection.fetchval("SELECT count(*) FROM node.length_stat") == 0
    assert (await known(connection)).samples == 1


def test_no_output_counts_as_longer_than_it_may_be() -> None:
    assert output_tokens({"completion_tokens": 10**9}, 64) == 64
    assert output_tokens({"completion_tokens": 70}, 0) == 70


async def test_two_results_at_once_both_count(connection: Connection, pool: Any) -> None:
    job = await on_chain(connection, a_job())
    async with pool.acquire() as one, one.transaction():
        await answered(one, job, 100)
        async with pool.acquire() as other:
            await other.execute("SET lock_timeout = '200ms'")
            with pytest.raises(Exception, match="lock timeout"):
                await answered(other, job, 200)
            await other.execute("RESET lock_timeout")
    await answered(connection, job, 200)
    assert (await known(connection)).samples == 2


async def test_requesters_that_are_gone_are_forgotten(connection: Connection) -> None:
    job = await on_chain(connection, a_job())
    await answered(connection, job, 100)
    await length_stats.forget(connection, 30)
    assert await connection.fetchval("SELECT count(*) FROM node.length_stat") == 2
    await connection.execute("UPDATE node.length_stat SET updated_at = now() - interval '31 days'")
    await length_stats.forget(connection, 30)
    rows = await connection.fetch("SELECT tenant FROM node.length_stat")
    assert [row["tenant"] for row in rows] == [ALL]


async def test_a_row_of_other_bins_is_learnt_again(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO node.length_stat (model_id, tenant, ended, cut) VALUES ($1, '', $2, $2)",
        MODEL_ID,
        bytes(8),
    )
    job = await on_chain(connection, a_job())
    await answered(connection, job, 100, 30)
    assert await connection.fetchval("SELECT min(length(ended)) FROM node.length_stat") > 8
