"""Leases at workers on other machines: late, doubled, lying, busy, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web
from eth_keys.datatypes import PrivateKey

from indexer.database import Pool
from indexer.types import Address
from inferd.protocol.private import INPUT_MAGIC
from inferd.protocol.request import model_id
from inferd.workers import endings, reputation
from inferd.workers.dispatch import Dispatcher
from inferd.workers.endings import Ending, Failure
from inferd.workers.job import Job
from inferd.workers.leases import FailureKind, Lease, failure_kind
from inferd.workers.pool import WorkerPool
from inferd.workers.remote.worker import RemoteWorker
from scheduler.patience import Patience
from tests.workers.remote.scripted import ScriptedWorker, listening, remote, signed, wrong_key
from tests.workers.support import MODEL, a_job, lease_for, until

OWNER = Address(b"\x22" * 20)


class House:
    def __init__(self, database: Pool) -> None:
        self.database = database
        self.pool = WorkerPool([])
        self.outcomes: list[str] = []
        self.dispatcher = self._dispatcher()
        self.stack = AsyncExitStack()

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.pool,
            self.database,
            fence=None,
            on_change=self.outcomes.append,
            proved=lambda: 0.0,
        )

    async def hire(self, number: int) -> ScriptedWorker:
        scripted = ScriptedWorker(PrivateKey(bytes([number]) * 32))
        await self.stack.enter_async_context(listening(scripted))
        worker: RemoteWorker = await self.stack.enter_async_context(remote(scripted))
        await self.database.execute(
            "INSERT INTO chain.worker VALUES ($1, $2, $3, '', 4, 1000, true, true, 1, 0, 1)",
            scripted.address,
            OWNER,
            [model_id(MODEL)],
        )
        self.pool.join(worker, held=None)
        async with self.database.acquire() as connection:
            await self.pool.views(connection)
        return scripted

    async def serve(
        self, job: Job, worker: ScriptedWorker, expected: Patience | None = None, **lease: int
    ) -> Lease:
        granted = await lease_for(self.database, job, worker.address, **lease)
        self.dispatcher.start(granted, job, expected)
        return granted

    async def end_of(self, lease: Lease) -> tuple[str, FailureKind | None]:
        row = await self.database.fetchrow(
            "SELECT state, failure FROM node.lease WHERE id = $1", lease.id
        )
        return row["state"], failure_kind(row["failure"]) if row["failure"] else None

    async def results(self) -> list[tuple[int, bytes]]:
        rows = await self.database.fetch("SELECT request_id, worker FROM node.result ORDER BY 1, 2")
        return [tuple(row) for row in rows]

    async def counts(self, worker: ScriptedWorker) -> tuple[int, ...]:
        async with self.database.acquire() as connection:
            found = await reputation.load(connection, worker.address)
        if not found:
            return (0, 0, 0, 0, 0)
        (one,) = found
        return one.good, one.late, one.failed, one.timeouts, one.lies


@pytest.fixture
async def house(pool: Pool) -> AsyncIterator[House]:
    made = House(pool)
    yield made
    await made.dispatcher.close()
    await made.stack.aclose()


async def test_a_stored_answer_is_acknowledged_and_counted(house: House) -> None:
    worker = await house.hire(1)
    lease = await house.serve(a_job(1), worker)
    await until(lambda: worker.dropped)
    assert await house.end_of(lease) == ("done", None)
    assert await house.results() == [(1, worker.address)]
    assert await house.counts(worker) == (1, 0, 0, 0, 0)
    assert worker.dropped == worker.computed


async def test_a_late_answer_is_used_where_nobody_else_gave_one(house: House) -> None:
    worker = await house.hire(1)
    worker.gate = asyncio.Event()
    lease = await house.serve(a_job(1), worker, lease_ms=300)
    await until(lambda: "timeout" in house.outcomes)
    assert await house.end_of(lease) == ("failed", FailureKind.TIMEOUT)
    assert worker.dropped == [], "it is not cancelled"
    assert house.dispatcher.waiting_late == 1
    worker.gate.set()
    await until(lambda: worker.dropped)
    assert await house.results() == [(1, worker.address)]
    assert await house.counts(worker) == (0, 1, 0, 1, 0)
    assert house.dispatcher.waiting_late == 0
    assert len(worker.asked) == 1


async def test_what_is_learnt_of_a_late_worker_is_how_long_it_was_waited_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.patience.MIN_TIME_OUT_S", 0.0)
    worker = await house.hire(1)
    worker.gate = asyncio.Event()
    patient = Patience(p90_ms=50, p99_ms=100, inclusion_s=1.0)
    await house.serve(a_job(1), worker, patient, lease_ms=50_000)
    await until(lambda: "timeout" in house.outcomes)
    waited_ms = await house.database.fetchval("SELECT peak_ms FROM node.service_stat")
    assert waited_ms == pytest.approx(200), "two p99s, not its lease of 50 s"


async def test_a_late_answer_is_given_up_once_another_worker_has_answered(house: House) -> None:
    slow, good = await house.hire(1), await house.hire(2)
    slow.gate = asyncio.Event()
    await house.serve(a_job(1), slow, lease_ms=300)
    await until(lambda: "timeout" in house.outcomes)
    await house.serve(a_job(1), good, attempt=2)
    await until(lambda: slow.dropped and good.dropped)
    assert await house.results() == [(1, good.address)]
    assert house.dispatcher.waiting_late == 0
    assert slow.computed == []
    assert (await house.counts(slow), await house.counts(good)) == (
        (0, 0, 0, 1, 0),
        (1, 0, 0, 0, 0),
    )


HURRIED = Patience(p90_ms=200, p99_ms=100_000, inclusion_s=1.0)
"""Nine of ten answers would be here after 0.2 s."""


async def test_a_second_worker_answers_where_the_slack_runs_out(house: House) -> None:
    hung, good = await house.hire(1), await house.hire(2)
    hung.gate = asyncio.Event()
    lease = await house.serve(a_job(1, deadline_in_s=60), hung, HURRIED, lease_ms=59_000)
    await until(lambda: good.dropped and hung.dropped)
    assert await house.end_of(lease) == ("done", None)
    assert await house.results() == [(1, good.address)], "its own result"
    assert await house.counts(good) == (1, 0, 0, 0, 0)
    assert await house.counts(hung) == (0, 0, 0, 0, 0)
    rows = await house.database.fetch("SELECT worker FROM node.service_stat")
    assert [row["worker"] for row in rows] == [good.address], "and its own experience"
    assert house.pool.in_flight(hung.address) == house.pool.in_flight(good.address) == 0
    assert house.pool.standing(hung.address).slow_share == 1.0


async def test_no_second_worker_is_asked_for_a_private_answer(house: House) -> None:
    """It has not the key; and if it had, its answer would be another."""
    hung, good = await house.hire(1), await house.hire(2)
    hung.gate = asyncio.Event()
    private = a_job(1, INPUT_MAGIC + b"and so on", deadline_in_s=60)
    await house.serve(private, hung, HURRIED, lease_ms=59_000)
    await house.serve(a_job(2, deadline_in_s=60), hung, HURRIED, lease_ms=59_000)
    await until(lambda: good.dropped)
    hung.gate.set()
    await until(lambda: len(house.outcomes) == 2)
    assert await house.results() == [(1, hung.address), (2, good.address)]
    assert [job.request_id for job in good.asked] == [2]


async def test_no_second_worker_is_asked_while_another_lease_could_follow(house: House) -> None:
    slow, other = await house.hire(1), await house.hire(2)
    slow.gate = asyncio.Event()
    lease = await house.serve(a_job(1, deadline_in_s=600), slow, HURRIED, lease_ms=1_500)
    await until(lambda: house.outcomes)
    assert await house.end_of(lease) == ("failed", FailureKind.TIMEOUT)
    assert other.asked == []


async def test_the_first_answer_counts_though_a_second_was_asked(house: House) -> None:
    first, second = await house.hire(1), await house.hire(2)
    first.gate, second.gate = asyncio.Event(), asyncio.Event()
    await house.serve(a_job(1, deadline_in_s=60), first, HURRIED, lease_ms=59_000)
    await until(lambda: second.asked)
    first.gate.set()
    await until(lambda: first.dropped and second.dropped)
    assert await house.results() == [(1, first.address)]
    assert second.computed == []
    assert house.pool.standing(second.address).failure_share == 0.0


async def test_where_the_first_fails_the_second_answers_alone(house: House) -> None:
    first, second = await house.hire(1), await house.hire(2)
    first.gate = asyncio.Event()
    first.mangle = lambda job, done: wrong_key(job, done.output)
    second.gate = asyncio.Event()
    lease = await house.serve(a_job(1, deadline_in_s=60), first, HURRIED, lease_ms=59_000)
    await until(lambda: second.asked)
    first.gate.set()
    await until(lambda: first.dropped)
    second.gate.set()
    await until(lambda: second.dropped)
    assert await house.end_of(lease) == ("done", None)
    assert await house.results() == [(1, second.address)]
    assert house.pool.standing(first.address).failure_share == 1.0


IMPATIENT = Patience(p90_ms=200, p99_ms=200, inclusion_s=1.0)
"""The first is given up after the least time-out of 5 s."""


async def test_a_first_that_is_given_up_is_cancelled_once_the_second_has_answered(
    house: House,
) -> None:
    first, second = await house.hire(1), await house.hire(2)
    first.gate, second.gate = asyncio.Event(), asyncio.Event()
    await house.serve(a_job(1, deadline_in_s=60), first, IMPATIENT, lease_ms=59_000)
    await until(lambda: second.asked)
    await until(lambda: house.pool.standing(first.address).failure_share == 1.0)
    second.gate.set()
    await until(lambda: first.dropped and second.dropped)
    assert await house.results() == [(1, second.address)]
    assert first.computed == []


async def test_a_second_that_is_given_up_is_cancelled_where_the_first_fails_too(
    house: House,
) -> None:
    first, second = await house.hire(1), await house.hire(2)
    first.gate, second.gate = asyncio.Event(), asyncio.Event()
    first.mangle = lambda job, done: wrong_key(job, done.output)
    lease = await house.serve(a_job(1, deadline_in_s=6), first, HURRIED, lease_ms=5_000)
    await until(lambda: second.asked)
    first.gate.set()
    await until(lambda: house.outcomes)
    await until(lambda: second.dropped)
    assert await house.end_of(lease) == ("failed", FailureKind.LIED)
    assert second.computed == []


async def test_a_lie_is_counted_with_what_it_was(house: House) -> None:
    liar = await house.hire(1)
    liar.mangle = lambda job, done: wrong_key(job, done.output)
    lease = await house.serve(a_job(1), liar)
    await until(lambda: house.outcomes)
    assert await house.end_of(lease) == ("failed", FailureKind.LIED)
    assert await house.results() == []
    assert await house.counts(liar) == (0, 0, 0, 0, 1)
    async with house.database.acquire() as connection:
        (failure,) = await reputation.last_failures(connection, liar.address, 5)
    assert (failure.request_id, failure.failure) == (1, "lied: the signature is another key's")
    failed = await house.database.fetchval("SELECT failed FROM node.service_stat")
    assert failed == 1, "and against its reliability"


async def test_an_output_that_is_too_large_costs_a_try_and_nothing_else(house: House) -> None:
    worker = await house.hire(1)
    worker.mangle = lambda job, done: signed(job, bytes(10_001), worker.key)
    lease = await house.serve(a_job(1), worker)
    await until(lambda: house.outcomes and worker.dropped)
    assert await house.end_of(lease) == ("failed", FailureKind.DECLINED)
    assert await house.counts(worker) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("status", "code", "kind", "attempts"),
    [(503, "busy", FailureKind.BUSY, 0), (422, "bad_input", FailureKind.DECLINED, 1)],
)
async def test_a_worker_may_say_no_at_no_cost(
    house: House, status: int, code: str, kind: FailureKind, attempts: int
) -> None:
    worker = await house.hire(1)

    async def no(request: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"code": code, "message": ""}, status=status, headers={"Retry-After": "30"}
        )

    worker.faults = [no]
    lease = await house.serve(a_job(1), worker)
    await until(lambda: house.outcomes)
    assert await house.end_of(lease) == ("failed", kind)
    assert kind.counts is bool(attempts), "whether it was a try of the request"
    assert await house.counts(worker) == (0, 0, 0, 0, 0)
    assert await house.database.fetchval("SELECT count(*) FROM node.service_stat") == 0
    assert house.pool.standing(worker.address).failure_share == 0.0
    assert (house.pool.standing(worker.address).rests_s > 0) is (kind is FailureKind.BUSY)


async def test_who_works_next_finds_what_was_being_computed(house: House) -> None:
    worker = await house.hire(1)
    worker.gate = asyncio.Event()
    await house.serve(a_job(1), worker)
    await until(lambda: worker.asked)
    await house.dispatcher.close()
    assert worker.dropped == []
    worker.gate.set()
    await until(lambda: worker.kept)
    await house.database.execute("UPDATE node.lease SET state = 'expired'")
    house.dispatcher = house._dispatcher()
    await house.serve(a_job(1), worker)
    await until(lambda: worker.dropped)
    assert await house.results() == [(1, worker.address)]
    assert len(worker.computed) == 1


async def test_nothing_is_waited_for_after_the_end(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not the answer to a lease that runs out while the end is waited for."""
    worker = await house.hire(1)
    worker.gate, let_go = asyncio.Event(), asyncio.Event()

    async def stubborn(job: Job) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            await let_go.wait()

    monkeypatch.setattr(house.pool.worker(worker.address), "late", stubborn)
    await house.serve(a_job(1), worker, lease_ms=300)
    await until(lambda: house.dispatcher.waiting_late == 1 and house.dispatcher.running == 0)
    await house.serve(a_job(2), worker, lease_ms=1_000)
    closing = asyncio.create_task(house.dispatcher.close())
    await until(lambda: house.dispatcher.running == 0)
    let_go.set()
    await closing
    assert house.dispatcher.waiting_late == 0


async def test_a_result_that_was_lost_in_the_database_is_kept_at_the_worker(house: House) -> None:
    worker = await house.hire(1)

    async def no_fence(connection: object) -> None:
        raise ConnectionResetError

    house.dispatcher = Dispatcher(
        house.pool, house.database, fence=no_fence, on_change=house.outcomes.append
    )
    lease = await lease_for(house.database, a_job(1), worker.address, lease_ms=300)
    house.dispatcher.start(lease, a_job(1, deadline_in_s=1))
    await until(lambda: house.dispatcher.running == 0)
    assert worker.kept
    assert worker.dropped == []


async def test_a_transaction_that_is_repeated_counts_nothing_twice(house: House) -> None:
    worker = await house.hire(1)
    (remote_worker,) = house.pool.workers
    made: list[Ending] = []
    for number, failure in ((1, None), (2, Failure(FailureKind.FAILED, "broken"))):
        job = a_job(number)
        lease = await lease_for(house.database, job, worker.address)
        outcome: Any = failure or await remote_worker.compute(job)
        made.append(Ending(lease, job, outcome, 100.0, 0.0))

    async def write(which: Sequence[Ending]) -> None:
        async with house.database.acquire() as connection, connection.transaction():
            written = await endings.write(connection, which)
            await reputation.record(connection, which, written)

    for _ in range(3):
        await write(made)
    assert await house.counts(worker) == (1, 0, 1, 0, 0)


async def test_a_hedged_result_that_is_written_again_is_stored_as_it_was(house: House) -> None:
    first, second = await house.hire(1), await house.hire(2)
    job = a_job(1)
    lease = await lease_for(house.database, job, first.address)
    result = await house.pool.worker(second.address).compute(job)
    ending = Ending(lease, job, result, 100.0, 0.0)
    for anew in (True, False):
        async with house.database.acquire() as connection, connection.transaction():
            (written,) = await endings.write(connection, [ending])
        assert (written.stored, written.in_time, written.anew) == (True, True, anew)


async def test_only_the_newest_failures_are_kept(house: House) -> None:
    await house.database.execute(
        """
        INSERT INTO node.worker_failure (lease_id, worker, model_id, request_id, failure, at)
        SELECT n, '\\x01', '\\x02', n, 'failed: x', now() + n * interval '1 second'
        FROM generate_series(1, 70) n
        """
    )
    async with house.database.acquire() as connection:
        await reputation.forget_failures(connection)
        kept = await reputation.last_failures(connection, Address(b"\x01"), 100)
    assert [one.request_id for one in kept] == list(range(70, 20, -1))
