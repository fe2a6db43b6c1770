"""Requests with a quorum, from the round that gives them away to what is agreed on."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from indexer.database import Connection, Pool
from indexer.types import Address, Hash32
from inferd.node.claims import Claims
from inferd.node.others import Others
from inferd.node.snapshot import RoundInputs
from inferd.node.views import one_request
from inferd.node.wakeup import Wakeup
from inferd.node.why import why
from inferd.protocol.private import INPUT_MAGIC
from inferd.protocol.quorum import Answer, agreed
from inferd.protocol.request import model_id
from inferd.settlement.quorum import TALLY
from inferd.workers import leases
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job
from inferd.workers.pool import WorkerPool
from scheduler.model import GasModel, Rules
from tests.node.house import House, fails, hangs, house, no_fence, rest
from tests.workers.support import MODEL, Scripted, a_worker

__all__ = ["house"]


async def lies(job: Job) -> bytes:
    return b"something else"


def says(text: bytes) -> Callable[[Job], Awaitable[bytes]]:
    async def answer(job: Job) -> bytes:
        return text

    return answer


class Crowd:
    """Workers of different owners, each with one slot, and rounds over them."""

    def __init__(self, house: House, number: int, slots: int = 1) -> None:
        self.house, self.db = house, house.db
        self.backends = [Scripted() for _ in range(number)]
        self.workers = sorted(
            (
                a_worker(house.db, backend, seed=10 + seed, slots=slots)
                for seed, backend in enumerate(self.backends)
            ),
            key=lambda worker: worker.address,
        )
        self.backends = [worker.models[model_id(MODEL)] for worker in self.workers]
        self.pool = WorkerPool(self.workers)
        self.dispatcher = Dispatcher(
            self.pool, house.db, fence=no_fence, on_change=lambda outcome: None
        )
        house.dispatcher = self.dispatcher
        house.rounds = replace(house.rounds, dispatcher=self.dispatcher, inputs=self.inputs)

    async def register(self, owners: list[int] | None = None) -> None:
        await self.db.execute("TRUNCATE chain.worker")
        for worker, owner in zip(self.workers, owners or range(len(self.workers)), strict=True):
            await self.db.execute(
                "INSERT INTO chain.worker VALUES ($1, $2, $3, '', 4, 1000, true, true, 1, 0, 1)",
                worker.address,
                bytes([200 + owner]) * 20,
                [model_id(MODEL)],
            )

    async def inputs(self, connection: Connection) -> RoundInputs:
        own = [bytes([200 + owner]) * 20 for owner in range(len(self.workers))]
        return RoundInputs(
            workers=await self.pool.views(connection, list(map(Address, own))),
            gas=GasModel(45_000, 14_000, 5_500),
            rules=Rules(poster_bps=2_000, expected_batch=1, max_attempts=3),
            now_s=time.time(),
            max_gas=15_000_000,
        )

    async def round(self) -> None:
        await self.house.rounds.round()
        await self.house.settle_down()

    async def answers(self, request_id: int = 1) -> dict[bytes, bytes]:
        rows = await self.db.fetch(
            "SELECT worker, output FROM node.result WHERE request_id = $1", request_id
        )
        return {row["worker"]: row["output"] for row in rows}

    async def leases(self) -> list[str]:
        rows = await self.db.fetch("SELECT state FROM node.lease ORDER BY id")
        return [row["state"] for row in rows]

    async def pending(self) -> int:
        await self.house.rounds.round()
        return self.house.rounds._state.planner.pending

    @property
    def calls(self) -> int:
        return sum(len(backend.calls) for backend in self.backends)


@pytest.fixture
async def crowd(house: House) -> AsyncIterator[Crowd]:
    made = Crowd(house, 5)
    await made.register()
    yield made
    await made.dispatcher.close()


async def test_as_many_are_asked_at_once_as_it_lacks__within_one_lease(crowd: Crowd) -> None:
    everybody = asyncio.Barrier(3)

    async def together(job: Job) -> bytes:
        await everybody.wait()
        return b"the answer"

    for backend in crowd.backends:
        backend.answer = together
    await crowd.house.request(1, quorum=3)
    await crowd.round()
    assert set((await crowd.answers()).values()) == {b"the answer"}
    assert len(await crowd.answers()) == crowd.calls == 3
    assert await crowd.leases() == ["done"]
    assert all(crowd.pool.in_flight(worker.address) == 0 for worker in crowd.workers)
    assert await crowd.pending() == 0
    good = await crowd.db.fetch("SELECT good FROM node.reputation")
    assert [row["good"] for row in good] == [1, 1, 1]
    async with crowd.db.acquire() as connection:
        view = await one_request(connection, {}, 1)
    assert view is not None
    assert (view.state, view.answers, view.agreeing) == ("computed", 3, 3)


async def test_who_claims_a_lease_asks_the_others_of_its_quorum(house: House) -> None:
    crowd = Crowd(house, 4)
    await crowd.register()
    asked = 0

    async def one_lies(job: Job) -> bytes:
        nonlocal asked
        asked += 1
        return b"something else" if asked == 2 else b"the answer"

    for backend in crowd.backends:
        backend.answer = one_lies
    await crowd.house.request(1, quorum=3)
    crowd.house.rounds.dispatcher = None
    claims = Claims(
        crowd.db,
        crowd.pool,
        crowd.dispatcher,
        {model_id(MODEL): MODEL},
        process="another",
        fence=no_fence,
        bell=Wakeup(),
        look=Others(crowd.db, {}).look_on,
    )
    for calls in (3, 4):
        await crowd.house.rounds.round()
        await claims.take()
        await crowd.house.settle_down()
        assert crowd.calls == calls
    assert sorted(len(backend.calls) for backend in crowd.backends) == [1, 1, 1, 1]
    assert await crowd.leases() == ["done", "done"]


async def test_who_is_not_free_is_asked_by_a_further_lease(crowd: Crowd) -> None:
    for worker in crowd.workers[2:]:
        crowd.pool.reserve(worker.address)
    await crowd.house.request(1, quorum=3)
    await crowd.round()
    assert set(await crowd.answers()) == {one.address for one in crowd.workers[:2]}
    async with crowd.db.acquire() as connection:
        view = await one_request(connection, {}, 1)
    assert view is not None
    assert "2 agree (2 answered)" in why(view).sentence
    crowd.pool.release(crowd.workers[4].address)
    await crowd.round()
    assert set(await crowd.answers()) == {crowd.workers[n].address for n in (0, 1, 4)}
    assert await crowd.leases() == ["done", "done"]
    attempts = await crowd.db.fetch("SELECT attempt FROM node.lease")
    assert {row["attempt"] for row in attempts} == {1}, "an answer is no failed attempt"
    assert crowd.calls == 3


@pytest.mark.parametrize("answer", [lies, fails], ids=["lies", "fails"])
@pytest.mark.parametrize("place", [0, 1])
async def test_one_that_lies_or_fails__another_is_asked_in_its_place(
    crowd: Crowd, answer: Callable[[Job], Awaitable[bytes]], place: int
) -> None:
    crowd.backends[place].answer = answer
    for worker in crowd.workers[3:]:
        crowd.pool.reserve(worker.address)
    await crowd.house.request(1, quorum=3)
    await crowd.round()
    crowd.pool.release(crowd.workers[3].address)
    await rest(crowd.house)
    await crowd.round()
    outputs = await crowd.answers()
    right = [worker for worker, said in outputs.items() if said == b"answer to prompt"]
    assert len(right) == 3
    assert crowd.workers[3].address in right
    assert await crowd.pending() == 0
    failed = await crowd.db.fetch("SELECT worker, failed FROM node.reputation WHERE failed > 0")
    blamed = [crowd.workers[place].address] if answer is fails else []
    assert [row["worker"] for row in failed] == blamed


async def test_workers_of_one_owner_have_one_voice(crowd: Crowd) -> None:
    await crowd.register([0, 0, 0, 1, 1])
    await crowd.house.request(1, quorum=2)
    await crowd.house.request(2, quorum=3)
    await crowd.round()
    assert len(await crowd.answers(1)) == 2
    owners = await crowd.db.fetch(
        "SELECT DISTINCT owner FROM node.result JOIN chain.worker ON signer = worker"
    )
    assert len(owners) == 2
    assert await crowd.house.decisions(2) == [("keep", "quorum_short")]
    await crowd.db.execute(
        "UPDATE chain.worker SET owner = $1 WHERE signer = $2",
        b"\x09" * 20,
        crowd.workers[4].address,
    )
    await crowd.round()
    await crowd.round()  # Of a stranger nothing is known yet: it is asked by a lease of its own.
    assert len(await crowd.answers(2)) == 3


async def test_all_say_something_else__it_is_given_up_after_so_many(house: House) -> None:
    crowd = Crowd(house, 6)
    await crowd.register()
    for number, backend in enumerate(crowd.backends):
        backend.answer = says(b"answer %d" % number)
    await house.request(1, quorum=2)
    for _ in range(6):
        await crowd.round()
    assert crowd.calls == 5
    assert (await house.decisions(1))[-1] == ("refuse", "no_agreement")
    await crowd.dispatcher.close()


async def test_a_tie_is_no_agreement__and_one_more_decides(crowd: Crowd) -> None:
    for number, backend in enumerate(crowd.backends[:4]):
        backend.answer = says(b"odd" if number % 2 else b"even")
    await crowd.house.request(1, quorum=2)
    for worker in crowd.workers[4:]:
        crowd.pool.reserve(worker.address)
    commitment = (1).to_bytes(19, "big") + b"\0"
    for number in range(4):
        await store(crowd, commitment, number, b"odd" if number % 2 else b"even")
    assert await crowd.pending() == 1
    crowd.backends[4].answer = says(b"odd")
    crowd.pool.release(crowd.workers[4].address)
    await crowd.round()
    assert await crowd.pending() == 0


async def store(crowd: Crowd, commitment: bytes, number: int, output: bytes) -> None:
    worker = crowd.workers[number]
    job = Job(1, commitment, model_id(MODEL), MODEL, b"prompt", 8, int(time.time() + 600))
    backend = crowd.backends[number]
    backend.answer = says(output)
    result = await worker.compute(job)
    await crowd.db.execute(
        "INSERT INTO node.result (request_id, commitment, worker, lease_id, digest, output,"
        " media_type, manifest, signature, compute_ms)"
        " VALUES (1, $1, $2, 1, $3, $4, 'text/plain', '{}', $5, 1)",
        commitment,
        worker.address,
        result.digest,
        output,
        result.signature,
    )


async def test_killed_when_some_have_answered__the_next_leader_asks_for_what_is_missing(
    crowd: Crowd,
) -> None:
    """One answer is stored while the others are computed; then the daemon is gone."""
    crowd.backends[0].answer = crowd.backends[2].answer = hangs
    await crowd.house.request(1, quorum=3)
    await crowd.house.rounds.round()

    async def one_is_there() -> bool:
        return len(await crowd.answers()) == 1

    async with asyncio.timeout(20):
        while not await one_is_there():
            await asyncio.sleep(0.01)
    assert await crowd.leases() == ["active"], "it holds as long as one computes"
    await crowd.dispatcher.close()
    assert await crowd.leases() == ["active"]
    again = Crowd(crowd.house, 5)
    crowd.house.start_anew()
    async with crowd.db.acquire() as connection:
        await leases.abandon_previous(connection)
    await again.round()
    assert len(await again.answers()) == 3
    assert again.calls == 2
    assert await again.pending() == 0
    await again.dispatcher.close()


async def test_an_answer_that_comes_after_its_lease_is_of_use_and_no_failure(
    crowd: Crowd,
) -> None:
    opened = asyncio.Event()

    async def slow(job: Job) -> bytes:
        await opened.wait()
        return b"answer to prompt"

    for backend in crowd.backends:
        backend.answer = slow
    await crowd.house.request(1, quorum=2)
    await crowd.house.rounds.round()
    await crowd.db.execute("UPDATE node.lease SET state = 'expired', ended_at = now()")
    opened.set()
    await crowd.house.settle_down()
    assert len(await crowd.answers()) == 2
    assert await crowd.pending() == 0
    await crowd.db.execute("UPDATE chain.request SET quorum = 3")
    await crowd.db.execute("INSERT INTO node.touched VALUES (1)")
    await crowd.round()
    attempts = await crowd.db.fetch("SELECT attempt FROM node.lease")
    assert [row["attempt"] for row in attempts] == [1, 1]


async def test_a_commit_that_is_repeated_counts_nothing_twice(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all, lost = crowd.dispatcher._write_all, []

    async def answer_lost(together: object) -> object:
        written = await write_all(together)  # type: ignore[arg-type]
        if not lost:
            lost.append(1)
            raise ConnectionResetError
        return written

    monkeypatch.setattr(crowd.dispatcher._endings, "_work", answer_lost)
    crowd.backends[1].answer = fails
    await crowd.house.request(1, quorum=3)
    await crowd.round()
    assert lost
    rows = await crowd.db.fetch("SELECT sum(good) AS good, sum(failed) AS f FROM node.reputation")
    assert tuple(rows[0]) == (2, 1)
    assert len(await crowd.answers()) == 2


async def test_what_is_encrypted_cannot_be_agreed_on(crowd: Crowd) -> None:
    await crowd.house.request(1, quorum=2, input=INPUT_MAGIC + bytes(200))
    await crowd.round()
    assert await crowd.house.decisions(1) == [("refuse", "unsupported")]


async def test_answers_of_inactive_workers_count_again_when_they_are_back(crowd: Crowd) -> None:
    await crowd.house.request(1, quorum=2)
    await crowd.round()
    assert await crowd.pending() == 0
    (first, *_) = sorted(await crowd.answers())
    for worker in crowd.workers:
        crowd.pool.reserve(worker.address)
    await crowd.db.execute("UPDATE chain.worker SET staked = false WHERE signer = $1", first)
    assert await crowd.pending() == 1
    await crowd.db.execute("UPDATE chain.worker SET staked = true WHERE signer = $1", first)
    assert await crowd.pending() == 0


async def test_the_tables_agree_on_what_is_agreed_on(crowd: Crowd) -> None:
    """The same as the pure function says, for whatever is stored."""
    dice = random.Random(5)
    await crowd.house.request(1, quorum=2)
    seen = set()
    for _ in range(60):
        quorum = dice.randint(2, 4)
        await crowd.db.execute("TRUNCATE node.result")
        await crowd.db.execute("UPDATE chain.request SET quorum = $1", quorum)
        owners = [dice.randint(1, 4) for _ in crowd.workers]
        answers = []
        for worker, owner in zip(crowd.workers, owners, strict=True):
            await crowd.db.execute(
                "UPDATE chain.worker SET owner = $1 WHERE signer = $2",
                bytes([owner]) * 20,
                worker.address,
            )
            if dice.random() < 0.15:
                continue
            said, at_s = bytes([dice.randint(1, 2)]) * 32, dice.randint(1, 3)
            answers.append(Answer(worker.address, Address(bytes([owner]) * 20), Hash32(said), at_s))
            await crowd.db.execute(
                "INSERT INTO node.result (request_id, commitment, worker, lease_id, digest,"
                " output, media_type, manifest, signature, compute_ms, computed_at)"
                " SELECT id, commitment, $1, 1, $2, '', '', '{}', '', 1, to_timestamp($3)"
                " FROM chain.request",
                worker.address,
                said,
                at_s,
            )
        row = await crowd.db.fetchrow(
            f"SELECT q.* FROM chain.request r CROSS JOIN LATERAL ({TALLY}) q"
        )
        found = agreed(answers, quorum)
        assert row["agreed"] == bool(found)
        if found:
            assert (row["digest"], row["agreeing"]) == (found[0].digest, len(found))
        seen.add(bool(found))
    assert seen == {True, False}


async def test_a_quorum_of_one_costs_no_look_at_others(house: House, pool: Pool) -> None:
    await house.request(1)
    explained = await pool.fetch(
        f"EXPLAIN (ANALYZE, TIMING OFF) SELECT q.* FROM chain.request r"
        f" CROSS JOIN LATERAL ({TALLY}) q"
    )
    text = "\n".join(row[0] for row in explained)
    assert "One-Time Filter" in text
    assert "never executed" in text
