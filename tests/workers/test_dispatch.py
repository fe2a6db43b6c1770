"""From a lease to a stored result, and everything that can come in between."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from indexer.database import Connection, Pool, connect, open_pool
from indexer.schema import chain_migrations, migrate, migrations_in
from indexer.types import Address
from inferd.node.postgres import EmbeddedPostgres
from inferd.workers import leases, service_stats
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.breaker import Circuit
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import BadInput, Job, WorkerBusy, WorkerFailed
from inferd.workers.leases import FailureKind, failure_kind
from inferd.workers.local import LocalWorker
from inferd.workers.pool import WorkerPool
from tests.workers.support import Scripted, a_job, a_worker, expire, lease_for, until


class House:
    """A dispatcher over scripted workers, and what it has told."""

    def __init__(self, database: Pool, *workers: LocalWorker) -> None:
        self.database = database
        self.pool = WorkerPool(workers)
        self.changes = 0
        self.dispatcher = Dispatcher(self.pool, database, fence=None, on_change=self._changed)

    def _changed(self, outcome: str) -> None:
        self.changes += 1

    async def serve(self, job: Job, worker: LocalWorker, **lease: int) -> leases.Lease:
        granted = await lease_for(self.database, job, worker.address, **lease)
        self.dispatcher.start(granted, job)
        return granted

    async def served(self, job: Job, worker: LocalWorker, **lease: int) -> tuple[str, str | None]:
        granted = await self.serve(job, worker, **lease)
        await until(lambda: self.dispatcher.running == 0)
        return await self.end_of(granted)

    async def end_of(self, lease: leases.Lease) -> tuple[str, str | None]:
        row = await self.database.fetchrow(
            "SELECT state, failure FROM node.lease WHERE id = $1", lease.id
        )
        return row["state"], row["failure"]

    async def stored(self) -> list[tuple[int, bytes, bytes]]:
        rows = await self.database.fetch(
            "SELECT request_id, worker, output FROM node.result ORDER BY 1, 2"
        )
        return [tuple(row) for row in rows]


def raising(error: Exception) -> Scripted:
    async def answer(job: Job) -> bytes:
        raise error

    return Scripted(answer)


class Gate:
    """An answer that waits for the test."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()

    async def __call__(self, job: Job) -> bytes:
        self.reached.set()
        await self.opened.wait()
        return b"late answer"


@pytest.fixture
async def house(pool: Pool) -> AsyncIterator[House]:
    made = House(pool, a_worker(pool, Scripted()))
    yield made
    await made.dispatcher.close()


async def test_a_result_is_stored_with_its_lease_and_its_speed(pool: Pool) -> None:
    backend = Scripted()
    worker = a_worker(pool, backend)
    house = House(pool, worker)
    job = a_job(1, b"secret prompt")
    with capture_logs() as lines:
        assert await house.served(job, worker) == ("done", None)
    assert await house.stored() == [(1, worker.address, b"answer to secret prompt")]
    assert house.changes == 1
    assert house.pool.in_flight(worker.address) == 0
    stat = await pool.fetchrow("SELECT completed, failed FROM node.service_stat")
    assert tuple(stat) == (1, 0)
    assert {line["event"] for line in lines} == {"job_started", "result_stored"}
    assert all(line["trace_id"] == job.commitment.hex()[:16] for line in lines)
    assert all(line["request_id"] == 1 and line["worker"] for line in lines)
    assert "secret" not in str(lines)


async def test_a_timeout_fails_the_lease_and_another_worker_serves(pool: Pool) -> None:
    hung = a_worker(pool, Scripted(Gate()), seed=1)
    good = a_worker(pool, Scripted(), seed=2)
    house = House(pool, hung, good)
    state, failure = await house.served(a_job(1), hung, lease_ms=100)
    assert (state, failure_kind(failure)) == ("failed", FailureKind.TIMEOUT)
    assert house.pool.in_flight(hung.address) == 0
    waited_ms = await pool.fetchval("SELECT peak_ms FROM node.service_stat")
    assert waited_ms == pytest.approx(100), "it is known to take longer than that"
    assert await house.served(a_job(1), good, attempt=2) == ("done", None)
    assert await house.stored() == [(1, good.address, b"answer to hello")]


@pytest.mark.parametrize(
    ("error", "kind", "blamed"),
    [
        (BadInput("not UTF-8"), FailureKind.BAD_INPUT, False),
        (WorkerBusy("full"), FailureKind.BUSY, False),
        (WorkerFailed("out of memory"), FailureKind.FAILED, True),
        (RuntimeError("quotes the secret prompt \x00"), FailureKind.FAILED, True),
    ],
)
async def test_each_failure_has_its_kind_and_only_real_ones_are_blamed(
    pool: Pool, error: Exception, kind: FailureKind, blamed: bool
) -> None:
    worker = a_worker(pool, raising(error))
    house = House(pool, worker)
    with capture_logs() as lines:
        for number in range(1, 7):
            state, failure = await house.served(a_job(number), worker)
            assert (state, failure_kind(failure)) == ("failed", kind)
            assert "secret" not in str(failure)
    assert "secret" not in str(lines)
    assert house.pool.circuit(worker.address) is (Circuit.OPEN if blamed else Circuit.CLOSED)
    assert house.changes == 6
    assert await pool.fetchval("SELECT sum(failed) FROM node.service_stat") == (
        6 if blamed else None
    )
    assert await house.stored() == []


async def test_bad_bytes_reach_the_node_as_bad_input(pool: Pool) -> None:
    worker = a_worker(pool, MarkovBackend(name="test-model"))
    house = House(pool, worker)
    state, failure = await house.served(a_job(1, b"\xff\x00"), worker)
    assert state == "failed"
    assert failure == "bad_input: the input is not UTF-8 at byte 0"


async def test_a_late_result_is_stored_while_there_is_none(pool: Pool) -> None:
    gate = Gate()
    worker = a_worker(pool, Scripted(gate))
    house = House(pool, worker)
    lease = await house.serve(a_job(1), worker)
    await gate.reached.wait()
    await pool.execute("UPDATE node.lease SET expires_at = now() - interval '1 s'")
    async with pool.acquire() as connection:
        assert [gone.id for gone in await leases.expire_overdue(connection)] == [lease.id]
    gate.opened.set()
    await until(lambda: house.dispatcher.running == 0)
    assert await house.end_of(lease) == ("expired", None)
    assert await house.stored() == [(1, worker.address, b"late answer")]
    assert house.changes == 1


async def test_a_late_result_is_dropped_where_another_worker_has_answered(pool: Pool) -> None:
    gate = Gate()
    late, quick = a_worker(pool, Scripted(gate)), a_worker(pool, Scripted(), seed=2)
    house = House(pool, late, quick)
    lease = await house.serve(a_job(1), late)
    await gate.reached.wait()
    await expire(pool, lease)
    await house.serve(a_job(1), quick, attempt=2)
    await until(lambda: house.dispatcher.running == 1)
    gate.opened.set()
    await until(lambda: house.dispatcher.running == 0)
    assert await house.stored() == [(1, quick.address, b"answer to hello")]


async def test_a_result_under_its_lease_is_stored_beside_another_workers(pool: Pool) -> None:
    """The lease was given, so the work is kept; which one is posted is the node's choice."""
    workers = [a_worker(pool, Scripted(), seed=seed) for seed in (1, 2)]
    house = House(pool, *workers)
    for attempt, worker in enumerate(workers):
        assert await house.served(a_job(1), worker, attempt=attempt) == ("done", None)
    assert {worker for _, worker, _ in await house.stored()} == {w.address for w in workers}


async def test_the_slot_is_counted_from_dispatch_to_the_end_of_computing(pool: Pool) -> None:
    gate = Gate()
    worker = a_worker(pool, Scripted(gate), slots=2)
    house = House(pool, worker)
    for number in (1, 2, 3):
        await house.serve(a_job(number), worker)
    assert house.pool.in_flight(worker.address) == 3, "before any of them has begun"
    await until(lambda: house.changes == 1)
    busy = await pool.fetchval("SELECT failure FROM node.lease WHERE state = 'failed'")
    assert failure_kind(busy) is FailureKind.BUSY
    gate.opened.set()
    await until(lambda: house.dispatcher.running == 0)
    assert house.pool.in_flight(worker.address) == 0
    assert len(await house.stored()) == 2


async def test_shutdown_leaves_the_lease_to_the_next_daemon(pool: Pool) -> None:
    gate = Gate()
    worker = a_worker(pool, Scripted(gate))
    house = House(pool, worker)
    lease = await house.serve(a_job(1), worker)
    await gate.reached.wait()
    await house.dispatcher.close()
    assert await house.end_of(lease) == ("active", None)
    assert house.pool.in_flight(worker.address) == 0
    async with pool.acquire() as connection:
        assert [gone.id for gone in await leases.abandon_previous(connection)] == [lease.id]
    state, failure = await house.end_of(lease)
    assert state == "expired"
    assert not failure_kind(failure).counts
    gate.opened.set()
    assert await house.served(a_job(1), worker, attempt=2) == ("done", None)


async def test_closing_at_once_gives_every_slot_back(house: House) -> None:
    worker = house.pool.workers[0]
    lease = await lease_for(house.database, a_job(1), worker.address)
    house.dispatcher.start(lease, a_job(1))
    await house.dispatcher.close()
    assert house.dispatcher.running == 0
    assert house.pool.in_flight(worker.address) == 0


@pytest.fixture
async def own_server() -> AsyncIterator[EmbeddedPostgres]:
    """A server that may be stopped, with all tables."""
    with tempfile.TemporaryDirectory(prefix="inferd-test-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(Path(folder), durable=False)
        server.ensure_running()
        connection = await connect(server.url)
        await migrate(connection, "chain", chain_migrations())
        await migrate(connection, "node", migrations_in(files("inferd.node") / "migrations"))
        await connection.close()
        yield server
        server.stop()


async def test_postgres_restarting_between_computing_and_storing_loses_nothing(
    own_server: EmbeddedPostgres,
) -> None:
    gate = Gate()
    pool = await open_pool(own_server.url)
    worker = a_worker(pool, Scripted(gate))
    house = House(pool, worker)
    lease = await house.serve(a_job(1), worker, lease_ms=6_000)
    await gate.reached.wait()
    await asyncio.to_thread(own_server.stop)
    try:
        gate.opened.set()
        await asyncio.sleep(6.5)  # past the end of the lease: a computed result outlives it
        assert house.dispatcher.running == 1
        assert house.pool.in_flight(worker.address) == 0
    finally:
        await asyncio.to_thread(own_server.ensure_running)
    await until(lambda: house.dispatcher.running == 0)
    assert await house.end_of(lease) == ("done", None)
    assert await house.stored() == [(1, worker.address, b"late answer")]
    await pool.close()


async def test_a_commit_whose_answer_was_lost_is_not_counted_twice(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = a_worker(pool, Scripted())
    house = House(pool, worker)
    record = service_stats.record
    cut = 0

    async def commit_and_cut(connection: Connection, *rest: Any, **named: Any) -> None:
        nonlocal cut
        cut += 1
        await record(connection, *rest, **named)
        if cut == 1:
            await connection.execute("COMMIT")
            raise ConnectionResetError

    monkeypatch.setattr(service_stats, "record", commit_and_cut)
    assert await house.served(a_job(1), worker) == ("done", None)
    assert len(await house.stored()) == 1
    assert await pool.fetchval("SELECT completed FROM node.service_stat") == 1
    assert house.changes == 1


async def test_a_replaced_daemon_writes_nothing_and_says_so(pool: Pool) -> None:
    class Replaced(Exception):
        pass

    async def fence(connection: Connection) -> None:
        raise Replaced

    worker = a_worker(pool, Scripted())
    changes: list[str] = []
    dispatcher = Dispatcher(WorkerPool([worker]), pool, fence=fence, on_change=changes.append)
    lease = await lease_for(pool, a_job(1), worker.address)
    dispatcher.start(lease, a_job(1))
    with pytest.raises(Replaced):
        await asyncio.wait_for(dispatcher.watch(), 10)
    assert await pool.fetchval("SELECT count(*) FROM node.result") == 0
    assert not changes


async def test_a_lease_of_a_worker_that_has_left_ends_at_no_cost_to_it(house: House) -> None:
    gone = Address(b"\x99" * 20)
    lease = await lease_for(house.database, a_job(1), gone)
    house.dispatcher.start(lease, a_job(1))
    await until(lambda: house.dispatcher.running == 0)
    state, failure = await house.end_of(lease)
    assert (state, failure_kind(failure)) == ("failed", FailureKind.BUSY)
    assert await house.database.fetchval("SELECT count(*) FROM node.reputation") == 0


async def test_many_jobs_over_flaky_workers_are_each_answered_once(pool: Pool) -> None:
    async def flaky(job: Job) -> bytes:
        await asyncio.sleep(0.001)
        if job.request_id % 3 == 0:
            raise WorkerFailed("flaky")
        return b"flaky answer"

    workers = [a_worker(pool, Scripted(flaky), slots=200), a_worker(pool, Scripted(), seed=2)]
    workers[1] = a_worker(pool, Scripted(), seed=2, slots=200)
    house = House(pool, *workers)
    for number in range(100):
        await house.serve(a_job(number), workers[0])
    await until(lambda: house.dispatcher.running == 0)
    failed = await pool.fetch("SELECT request_id FROM node.lease WHERE state = 'failed'")
    for row in failed:
        await house.serve(a_job(row["request_id"]), workers[1], attempt=2)
    await until(lambda: house.dispatcher.running == 0)
    assert [number for number, _, _ in await house.stored()] == list(range(100))
    assert len(failed) == 34
