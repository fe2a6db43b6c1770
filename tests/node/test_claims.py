"""Leases that a scheduler grants and several dispatchers take; and what becomes of those of a
dispatcher that is gone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest

from indexer.database import Connection
from indexer.types import Address
from inferd.node import part
from inferd.node.claims import Claims
from inferd.node.leader import Leadership, become_part
from inferd.node.others import Others
from inferd.node.part import beside_leases, bury
from inferd.node.roles import Role
from inferd.node.told import Said, Teller, load_processes
from inferd.node.wakeup import Wakeup
from inferd.protocol.request import model_id
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job
from inferd.workers.leases import Lease
from inferd.workers.pool import WorkerPool
from inferd.workers.quorum import Company
from scheduler.patience import Patience
from tests.node.house import House, house, no_fence
from tests.workers.support import MODEL, a_job, until

__all__ = ["house"]


@dataclass
class Taken:
    """Stands in for a dispatcher that has taken what it was given, and computes for ever."""

    started: list[tuple[Lease, Job, Patience | None]]

    def start(
        self,
        lease: Lease,
        job: Job,
        expected: Patience | None = None,
        company: Company | None = None,
    ) -> None:
        self.started.append((lease, job, expected))


async def see_nobody(_: Connection) -> None:
    """Where no process tells anything."""


def claims_of(
    house: House,
    process: str,
    dispatcher: Any,
    workers: Any = None,
    fence: Any = no_fence,
    **changes: Any,
) -> Claims:
    more: dict[str, Any] = {"names": {model_id(MODEL): MODEL}, "look": see_nobody} | changes
    return Claims(
        house.db,
        workers or WorkerPool(house.workers),
        dispatcher,
        process=process,
        fence=fence,
        bell=Wakeup(),
        **more,
    )


async def granted(house: House, requests: int) -> None:
    """Leases of so many requests, for others to take: two workers have four slots each."""
    house.rounds.dispatcher = None
    for number in range(1, requests + 1):
        await house.request(number)
    await house.rounds.round()


async def take_all(claims: Claims) -> None:
    while await claims.take():
        pass


async def test_each_lease_is_taken_by_one_with_what_its_round_reckoned_with(house: House) -> None:
    await granted(house, 8)
    takers = [Taken([]), Taken([])]
    await asyncio.gather(
        *(take_all(claims_of(house, f"process-{n}", one)) for n, one in enumerate(takers))
    )
    started = [one for taker in takers for one in taker.started]
    assert sorted(job.request_id for _, job, _ in started) == list(range(1, 9))
    for lease, job, expected in started:
        assert (lease.key.id, job.input, job.model) == (job.request_id, b"prompt", MODEL)
        assert expected is not None
        assert 0 < expected.p90_ms <= expected.p99_ms
    rows = await house.db.fetch("SELECT DISTINCT dispatcher FROM node.lease ORDER BY 1")
    assert {row["dispatcher"] for row in rows} <= {"process-0", "process-1"}


async def test_what_one_is_just_taking_the_other_passes_over(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferd.node.claims._AT_ONCE", 3)
    await granted(house, 8)
    first, second = Taken([]), Taken([])
    held, go_on = asyncio.Event(), asyncio.Event()

    async def slow_jobs(*arguments: Any) -> Any:
        held.set()
        await go_on.wait()
        return {}

    with monkeypatch.context() as patched:
        patched.setattr("inferd.node.claims.load_jobs", slow_jobs)
        waiting = asyncio.create_task(claims_of(house, "first", first).take())
        await held.wait()
    try:
        async with asyncio.timeout(30):
            await take_all(claims_of(house, "second", second))
    finally:
        go_on.set()
        await waiting
    assert len(second.started) == 5


async def test_a_dispatcher_takes_nothing_for_workers_that_it_cannot_use(house: House) -> None:
    await granted(house, 8)
    reachable = WorkerPool(house.workers)
    reachable.hold(house.workers[0].address, "its heartbeats have stopped")
    taker, other = Taken([]), Taken([])
    await take_all(claims_of(house, "one", taker, reachable))
    assert {lease.worker for lease, _, _ in taker.started} == {house.workers[1].address}
    await take_all(claims_of(house, "other", other))
    assert {lease.worker for lease, _, _ in other.started} == {house.workers[0].address}
    reachable.hold(house.workers[1].address, "as well")
    assert not await claims_of(house, "none", Taken([]), reachable).take()


async def test_a_model_that_another_dispatcher_was_told_of_sooner_is_computed_too(
    house: House,
) -> None:
    await granted(house, 1)
    names: dict[bytes, str] = {}
    others = Others(house.db, names)
    taker = Taken([])
    claims = claims_of(house, "late", taker, names=names, look=others.look_on)
    await take_all(claims)
    # Nobody knows its name: it is given back, and breaks nothing.
    assert taker.started == []
    rows = await house.db.fetch("SELECT state, failure FROM node.lease")
    assert [tuple(row) for row in rows] == [
        ("expired", "abandoned: its model is not known here, or the request is gone")
    ]
    async with house.db.acquire() as connection, connection.transaction():
        told = Teller("early", "host", [Role.DISPATCH])
        await told.tell(connection, Said(), WorkerPool(house.workers).presences())
    await house.rounds.round()
    await take_all(claims)
    assert [(job.model, lease.attempt) for lease, job, _ in taker.started] == [(MODEL, 1)]


async def test_what_is_taken_late_is_not_computed_beyond_its_time(house: House) -> None:
    await granted(house, 1)
    await house.db.execute(
        "UPDATE node.lease SET leased_at = leased_at - interval '1 hour',"
        " expires_at = clock_timestamp() + interval '2 seconds'"
    )
    taker = Taken([])
    await take_all(claims_of(house, "late", taker))
    assert [0 < lease.duration_s <= 2 for lease, _, _ in taker.started] == [True]


async def test_leases_of_a_process_that_is_gone_are_granted_anew(
    house: House, database: str
) -> None:
    await granted(house, 8)
    async with AsyncExitStack() as stack:
        parts: list[Leadership] = []
        for name in ("dead", "living"):
            leadership = await become_part(database, name, [])
            stack.push_async_callback(leadership.release)
            parts.append(leadership)
        dead, living = parts
        assert dead.process is not None
        assert living.process is not None
        async with house.db.acquire() as connection, connection.transaction():
            for one in parts:
                told = Teller(one.process or "", "host", [Role.DISPATCH])
                await told.tell(connection, Said(ready=True))
        reachable = WorkerPool(house.workers)
        reachable.hold(house.workers[1].address, "of the other")
        await take_all(claims_of(house, dead.process, Taken([]), reachable, dead.fence))
        await take_all(claims_of(house, living.process, Taken([]), None, living.fence))
        async with house.db.acquire() as connection, connection.transaction():
            assert await bury(connection) == (0, 0)
        await dead.release()
        async with asyncio.timeout(30):
            while True:
                async with house.db.acquire() as connection, connection.transaction():
                    buried = await bury(connection)
                if buried != (0, 0):
                    break
        assert buried == (1, 4)
        rows = await house.db.fetch("SELECT worker, state, failure FROM node.lease ORDER BY worker")
        ended = {row["worker"]: (row["state"], row["failure"]) for row in rows}
        assert ended == {
            house.workers[0].address: (
                "expired",
                "abandoned: the process that dispatched it ended",
            ),
            house.workers[1].address: ("active", None),
        }
        async with house.db.acquire() as connection:
            assert [one.id for one in await load_processes(connection)] == [living.process]
        # It tells of none of them, and costs none of them an attempt.
        await house.rounds.round()
        assert await house.db.fetchval("SELECT max(attempt) FROM node.lease") == 1
        assert await house.db.fetchval("SELECT count(*) FROM node.lease") == 12


async def test_what_nobody_takes_is_granted_anew(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await granted(house, 1)
    async with house.db.acquire() as connection, connection.transaction():
        assert await bury(connection) == (0, 0)
    monkeypatch.setattr(part, "_UNCLAIMED_S", 0.0)
    async with house.db.acquire() as connection, connection.transaction():
        assert await bury(connection) == (0, 1)
    await house.rounds.round()
    taker = Taken([])
    await take_all(claims_of(house, "process", taker))
    assert [lease.attempt for lease, _, _ in taker.started] == [1]


async def test_what_workers_are_asked_beside_leases_is_told(house: House) -> None:
    pool = WorkerPool(house.workers)
    dispatcher = Dispatcher(pool, house.db, fence=no_fence, on_change=lambda outcome: None)
    go_on = asyncio.Event()

    async def slow(job: Job) -> bytes:
        await go_on.wait()
        return b"answer"

    for backend in house.backends:
        backend.answer = slow
    await granted(house, 1)
    await take_all(claims_of(house, "process", dispatcher, pool))
    first, other = (worker.address for worker in house.workers)
    (leased,) = dispatcher.leased
    assert dispatcher.leased == {leased: 1}

    async def check(address: Address) -> None:
        async with dispatcher.asked(address, replace(a_job(), request_id=7), 30.0):
            pass

    checks = [asyncio.create_task(check(address)) for address in (first, other, other)]
    await until(lambda: sum(pool.in_flight(one) for one in (first, other)) == 4)
    told = {one.address: one.in_flight for one in beside_leases(pool, dispatcher)}
    assert told == {first: 1, other: 2}
    go_on.set()
    await asyncio.gather(*checks)
    await until(lambda: not dispatcher.running)
    await dispatcher.close()


async def test_a_lease_that_is_taken_is_computed(house: House) -> None:
    await granted(house, 2)
    pool = WorkerPool(house.workers)
    dispatcher = Dispatcher(pool, house.db, fence=no_fence, on_change=lambda outcome: None)
    await take_all(claims_of(house, "process", dispatcher, pool))
    await until(lambda: not dispatcher.running)
    assert [len(await house.answered_by(number)) for number in (1, 2)] == [1, 1]
    await dispatcher.close()
