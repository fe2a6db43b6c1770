"""Endings written together are what they would be one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.protocol.request import ModelId, model_id
from inferd.protocol.result import digest_of
from inferd.protocol.typed_data import CompactSignature
from inferd.workers import endings, leases, reputation, results
from inferd.workers.dispatch import Dispatcher
from inferd.workers.endings import Ending, Failure, Written
from inferd.workers.job import Job, SignedResult, WorkerFailed
from inferd.workers.leases import FailureKind
from inferd.workers.pool import WorkerPool
from tests.workers.support import MODEL, Scripted, a_job, a_worker, expire, lease_for, until
from tests.workers.test_stats import on_chain

WORKERS = tuple(Address(bytes([number]) * 20) for number in (1, 2))
REQUESTERS = tuple(Address(bytes([number]) * 20) for number in (51, 52))
AT_S = 1_700_000_000.0


def a_result(job: Job, worker: Address, compute_ms: int, tokens: int | None) -> SignedResult:
    output = b"output of %d" % job.request_id
    manifest: dict[str, Any] = {"text": 'quotes " and \\ and ü'}
    if tokens is not None:
        manifest["completion_tokens"] = tokens
    return SignedResult(
        job.key,
        worker,
        digest_of(output),
        output,
        "text/plain",
        manifest,
        CompactSignature(b"\x01" * 64),
        compute_ms,
    )


ONE = st.tuples(
    st.sampled_from([0, 1]),  # worker
    st.sampled_from([0, 1, None]),  # requester; None = a reorganisation took the request
    st.sampled_from(["done", "late", "unwanted", *FailureKind]),
    st.integers(1, 5_000),
    st.none() | st.integers(0, 900),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ONE, min_size=1, max_size=12))
async def test_together_or_one_by_one_the_tables_say_the_same(
    connection: Connection, cases: list[tuple[int, int | None, str, int, int | None]]
) -> None:
    found = []
    for together in (True, False):
        await connection.execute(
            "TRUNCATE node.lease, node.result, node.service_stat, node.length_stat, chain.request"
        )
        given = [
            await _ending(connection, number, *case) for number, case in enumerate(cases, start=1)
        ]
        written: list[Written] = []
        for group in [given] if together else [[one] for one in given]:
            async with connection.transaction():
                written += await endings.write(connection, group)
        found.append((written, *await _tables(connection)))
    (written, rows, ended, stats, lengths), (*plain, stats_one_by_one, lengths_one_by_one) = found
    assert [written, rows, ended] == plain
    for (_, _, outcome, _, _), one in zip(cases, written, strict=True):
        assert one.stored == (outcome in ("done", "late"))
        assert one.in_time == (outcome not in ("late", "unwanted"))
    # Of the fits, nothing: what newcomers are taken for moves with each, and a group sees it once.
    assert stats == stats_one_by_one
    assert [row[:2] for row in lengths] == [row[:2] for row in lengths_one_by_one]
    for row, other in zip(lengths, lengths_one_by_one, strict=True):
        assert row[2:] == pytest.approx(other[2:])


async def _ending(
    connection: Connection,
    number: int,
    worker: int,
    requester: int | None,
    outcome: str,
    compute_ms: int,
    tokens: int | None,
) -> Ending:
    job = a_job(number, max_tokens=512)
    if requester is not None:
        await on_chain(connection, job, REQUESTERS[requester])
    lease = await lease_for(connection, job, WORKERS[worker])
    result = a_result(job, WORKERS[worker], compute_ms, tokens)
    if outcome in ("late", "unwanted"):
        await expire(connection, lease)
    if outcome == "unwanted":
        other = a_result(job, WORKERS[1 - worker], 1, None)
        await results.store(connection, [(other, lease.id, True)])
    if outcome in ("done", "late", "unwanted"):
        return Ending(lease, job, result, 100.0, AT_S + number)
    failure = Failure(FailureKind(outcome), "said so")
    return Ending(lease, job, failure, 100.0, AT_S + number)


async def _tables(connection: Connection) -> list[list[tuple[Any, ...]]]:
    queries = (
        "SELECT request_id, worker, digest, output, media_type, manifest::text, signature,"
        " compute_ms FROM node.result ORDER BY 1, 2",
        "SELECT request_id, state, failure FROM node.lease ORDER BY 1",
        "SELECT worker, completed, failed, successes, failures, observations, peak_at_s"
        " FROM node.service_stat ORDER BY 1",
        "SELECT tenant, length(ended), log_factor FROM node.length_stat ORDER BY 1",
    )
    return [[tuple(row) for row in await connection.fetch(query)] for query in queries]


async def test_two_of_one_request_are_not_written_together(pool: Pool) -> None:
    """Which of them is wanted depends on which comes first: the late one that comes after another
    is none."""
    opened = asyncio.Event()

    async def fence(connection: Connection) -> None:
        await opened.wait()

    worker, other = a_worker(pool, Scripted()), a_worker(pool, Scripted(), seed=2)
    crowd = WorkerPool([worker, other])
    dispatcher = Dispatcher(crowd, pool, fence=fence, on_change=lambda _: None)
    job = a_job(1)
    late = await lease_for(pool, job, worker.address)
    await expire(pool, late)
    # The first is being written while the two others come.
    for of, by in ((a_job(2), worker), (job, other), (job, worker)):
        again = (of, by) == (job, worker)
        lease = late if again else await lease_for(pool, of, by.address)
        dispatcher.start(lease, of)
        await until(lambda by=by: crowd.in_flight(by.address) == 0)
        await asyncio.sleep(0.05)
    opened.set()
    await until(lambda: dispatcher.running == 0)
    rows = await pool.fetch("SELECT worker FROM node.result WHERE request_id = 1")
    assert rows == [(other.address,)]


async def test_what_ends_while_another_is_written_shares_a_transaction(pool: Pool) -> None:
    fenced = 0

    async def fence(connection: Connection) -> None:
        nonlocal fenced
        fenced += 1

    worker = a_worker(pool, Scripted(), slots=100)
    dispatcher = Dispatcher(WorkerPool([worker]), pool, fence=fence, on_change=lambda _: None)
    for number in range(1, 101):
        job = a_job(number)
        dispatcher.start(await lease_for(pool, job, worker.address), job)
    await until(lambda: dispatcher.running == 0)
    assert await pool.fetchval("SELECT count(*) FROM node.result") == 100
    assert await pool.fetchval("SELECT completed FROM node.service_stat") == 100
    assert fenced <= 50, "far fewer transactions than results"


async def test_a_result_that_cannot_be_written_spoils_no_other(pool: Pool) -> None:
    """A number that PostgreSQL does not take, among others of the same group."""
    models = {ModelId(model_id(MODEL)): Scripted()}

    class Odd:
        address, name, slots, memory_mb = Address(b"\x77" * 20), "odd", 100, 1
        opened = asyncio.Event()

        def __init__(self) -> None:
            self.models = models

        async def compute(self, job: Job) -> SignedResult:
            await self.opened.wait()
            return a_result(job, self.address, -1 if job.request_id == 5 else 7, None)

        async def sign_group(self, items: bytes) -> CompactSignature:
            raise NotImplementedError

    worker = Odd()
    await pool.execute("ALTER TABLE node.result ADD CHECK (compute_ms >= 0)")
    dispatcher = Dispatcher(WorkerPool([worker]), pool, fence=None, on_change=lambda _: None)
    for number in range(1, 11):
        job = a_job(number)
        dispatcher.start(await lease_for(pool, job, worker.address), job)
    await asyncio.sleep(0)
    worker.opened.set()
    await until(lambda: dispatcher.running == 0)
    stored = await pool.fetch("SELECT request_id FROM node.result ORDER BY 1")
    assert [row["request_id"] for row in stored] == [n for n in range(1, 11) if n != 5]
    with pytest.raises(Exception, match="check constraint"):
        await dispatcher.watch()


@pytest.mark.parametrize(
    ("media_type", "compute_ms"),
    [
        pytest.param("text/plain", 2**80, id="asyncpg refuses it"),
        pytest.param("text/\ud800", 7, id="asyncpg cannot encode it"),
        pytest.param("text/\x00", 7, id="the server refuses it"),
    ],
)
async def test_a_result_that_no_database_takes_fails_its_lease_at_once(
    pool: Pool, media_type: str, compute_ms: int
) -> None:
    """It is not retried as if the database were away, and stops neither others nor the node."""

    class Odd:
        address, name, slots, memory_mb = Address(b"\x77" * 20), "odd", 100, 1
        models: ClassVar = {ModelId(model_id(MODEL)): Scripted()}

        async def compute(self, job: Job) -> SignedResult:
            result = a_result(job, self.address, 7, None)
            if job.request_id != 2:
                return result
            return replace(result, media_type=media_type, compute_ms=compute_ms)

        async def sign_group(self, items: bytes) -> CompactSignature:
            raise NotImplementedError

    ended: list[str] = []
    worker = Odd()
    dispatcher = Dispatcher(WorkerPool([worker]), pool, fence=None, on_change=ended.append)
    for number in range(1, 5):
        job = a_job(number)
        dispatcher.start(await lease_for(pool, job, worker.address), job)
    await until(lambda: dispatcher.running == 0)
    stored = await pool.fetch("SELECT request_id FROM node.result ORDER BY 1")
    assert [row["request_id"] for row in stored] == [1, 3, 4]
    failures = await pool.fetch("SELECT request_id, failure FROM node.lease WHERE failure <> ''")
    assert failures == [(2, "failed: its result cannot be stored")]
    assert sorted(ended) == ["failed", "stored", "stored", "stored"]
    watching = asyncio.create_task(dispatcher.watch())
    await asyncio.sleep(0)
    assert not watching.done()
    watching.cancel()


async def test_a_sweep_passes_over_a_lease_whose_end_is_being_written(pool: Pool) -> None:
    job, other = a_job(1), a_job(2)
    lease = await lease_for(pool, job, WORKERS[0], lease_ms=1)
    overdue = await lease_for(pool, other, WORKERS[0], lease_ms=1)
    await asyncio.sleep(0.01)
    async with pool.acquire() as writer, writer.transaction():
        assert (await leases.lock(writer, [lease.id]))[lease.id].state == "active"
        async with pool.acquire() as sweeper:
            await sweeper.execute("SET lock_timeout = '2s'")
            assert [one.id for one in await leases.expire_overdue(sweeper)] == [overdue.id]
        assert await leases.end(writer, [(lease.id, None)]) == {lease.id}
    async with pool.acquire() as sweeper:
        assert await leases.expire_overdue(sweeper) == []


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ONE, min_size=1, max_size=8), st.booleans(), st.sets(st.integers(1, 8)))
async def test_written_twice_it_counts_once(
    connection: Connection,
    cases: list[tuple[int, int | None, str, int, int | None]],
    again_one_by_one: bool,
    expired: set[int],
) -> None:
    """As after a commit whose answer was lost, whoever shares the second transaction."""
    await connection.execute(
        "TRUNCATE node.lease, node.result, node.service_stat, node.length_stat, chain.request"
    )
    given = [await _ending(connection, number, *case) for number, case in enumerate(cases, start=1)]
    for ending in given:
        if ending.lease.key.id in expired:
            await expire(connection, ending.lease)
    async with connection.transaction():
        first = await endings.write(connection, given)
    tables = await _tables(connection)
    second: list[Written] = []
    for group in [[one] for one in given] if again_one_by_one else [given]:
        async with connection.transaction():
            second += await endings.write(connection, group)
    assert [replace(one, anew=True) for one in second] == first
    assert not any(one.anew and (one.stored or one.in_time) for one in second)
    assert await _tables(connection) == tables


async def test_a_result_after_its_own_time_out_is_stored_and_counts_once(
    connection: Connection,
) -> None:
    job = a_job(1)
    await on_chain(connection, job, REQUESTERS[0])
    lease = await lease_for(connection, job, WORKERS[0])
    timeout = Ending(lease, job, Failure(FailureKind.TIMEOUT, "late"), 100.0, AT_S)
    result = replace(timeout, outcome=a_result(job, WORKERS[0], 7, None))
    said = []
    for ending in (timeout, timeout, result, result):
        async with connection.transaction():
            written = await endings.write(connection, [ending])
            await reputation.record(connection, [ending], written)
        said += written
    assert said == [
        Written(stored=False, in_time=True, anew=True),
        Written(stored=False, in_time=True, anew=False),
        Written(stored=True, in_time=False, anew=True),
        Written(stored=True, in_time=False, anew=False),
    ]
    (row,) = await reputation.load(connection)
    assert (row.good, row.late, row.timeouts) == (0, 1, 1)
    stat = await connection.fetchrow("SELECT completed, failed FROM node.service_stat")
    assert tuple(stat) == (1, 1)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_commit_whose_answer_is_lost_counts_once(pool: Pool, fails: bool) -> None:
    async def crash(job: Job) -> bytes:
        raise WorkerFailed("out of memory")

    class Lossy:
        """The first commit is done, and its answer is lost."""

        def __init__(self) -> None:
            self.lost = 0

        @asynccontextmanager
        async def acquire(self) -> AsyncIterator[Connection]:
            async with pool.acquire() as connection:
                yield connection
            if not self.lost:
                self.lost += 1
                raise ConnectionResetError

    told: list[str] = []
    lossy = Lossy()
    worker = a_worker(pool, Scripted(crash) if fails else Scripted())
    dispatcher = Dispatcher(WorkerPool([worker]), lossy, fence=None, on_change=told.append)  # type: ignore[arg-type]
    job = a_job(1)
    dispatcher.start(await lease_for(pool, job, worker.address), job)
    await until(lambda: dispatcher.running == 0)
    assert lossy.lost == 1
    assert told == ["failed" if fails else "stored"]
    row = await pool.fetchrow("SELECT completed, failed FROM node.service_stat")
    assert tuple(row) == ((0, 1) if fails else (1, 0))
