"""A network that fails between the dispatcher and a real agent.

Whatever happens to the bytes on their way, each request has one result, the back end has computed
it once where the protocol promises that, nobody is blamed for what the network did as long as the
lease held, and nothing is left: no slot, no task, no kept answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from indexer.database import Pool
from indexer.types import Address
from inferd.net.guarded import GuardedClient
from inferd.net.reach import OWN_MACHINE_AND_NETWORKS
from inferd.protocol.request import model_id
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import CompactSignature, group_digest, recover
from inferd.workers import reputation
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job
from inferd.workers.leases import FailureKind, Lease, failure_kind
from inferd.workers.pool import WorkerPool
from inferd.workers.remote import worker as remote_module
from inferd.workers.remote.client import Operator, WorkerClient
from inferd.workers.remote.worker import Announced, RemoteOffer, RemoteWorker
from inferd.workers.retries import RetryBudget
from tests.faults.worker_proxy import Call, Fault, WorkerProxy, between
from tests.workers.remote.scripted import OPERATOR, OPERATOR_KEY
from tests.workers.service import support as agents
from tests.workers.service.doomed_agent import Order, processes, run
from tests.workers.support import MODEL, Scripted, a_job, lease_for, until

_OWNER = Address(b"\x22" * 20)
_TIMEOUT_S = 2.0
_POLL_S = 0.5
"""So that a connection that is silent for ever is given up after 4.5 s."""


@dataclass
class Line:
    """A dispatcher, the network, and the agent at its other end."""

    database: Pool
    pool: WorkerPool
    dispatcher: Dispatcher
    proxy: WorkerProxy
    folder: Path
    outcomes: list[str]
    budget: RetryBudget

    async def serve(self, job: Job, *, attempt: int = 1, lease_ms: int = 100_000) -> Lease:
        lease = await lease_for(
            self.database, job, agents.WORKER, attempt=attempt, lease_ms=lease_ms
        )
        self.dispatcher.start(lease, job)
        return lease

    async def end_of(self, lease: Lease) -> tuple[str, FailureKind | None]:
        row = await self.database.fetchrow(
            "SELECT state, failure FROM node.lease WHERE id = $1", lease.id
        )
        return row["state"], failure_kind(row["failure"]) if row["failure"] else None

    async def until_at_rest(self, ended: int) -> None:
        """So many endings are written, and nothing is under way."""
        await until(lambda: len(self.outcomes) >= ended, 100)
        await until(self._rests, 100)
        assert self.pool.in_flight(agents.WORKER) == 0
        assert self.pool.standing(agents.WORKER).rests_s == 0.0

    def _rests(self) -> bool:
        dispatcher = self.dispatcher
        return not (dispatcher.running or dispatcher.waiting_late or dispatcher._drops)

    async def results(self) -> dict[int, bytes]:
        """Outputs by request, each signed by the worker for that request."""
        rows = await self.database.fetch("SELECT * FROM node.result")
        found: dict[int, bytes] = {}
        for row in rows:
            item = ResultItem(row["request_id"], row["commitment"], row["digest"])
            signed = group_digest(agents.RESULTS_DOMAIN, pack_items([item]))
            assert recover(signed, CompactSignature(row["signature"])) == agents.WORKER
            assert row["digest"] == digest_of(row["output"])
            assert row["request_id"] not in found
            found[row["request_id"]] = row["output"]
        return found

    async def counts(self) -> tuple[int, ...]:
        """Good, late, failed, timeouts, lies."""
        async with self.database.acquire() as connection:
            (one,) = await reputation.load(connection, agents.WORKER)
        return one.good, one.late, one.failed, one.timeouts, one.lies

    def at_the_agent(self, table: str) -> int:
        """Rows of its log."""
        (file,) = self.folder.glob("worker-*/*.db")
        with contextlib.closing(sqlite3.connect(file)) as db:
            return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@asynccontextmanager
async def a_line(
    database: Pool, agent_url: str, folder: Path, budget: RetryBudget
) -> AsyncIterator[Line]:
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(between(agent_url))
        http = await stack.enter_async_context(GuardedClient(OWN_MACHINE_AND_NETWORKS))
        operator = Operator(
            OPERATOR.address, OPERATOR.signer, agents.API_DOMAIN, agents.RESULTS_DOMAIN
        )
        client = WorkerClient(http, proxy.url, agents.WORKER, operator, timeout_s=_TIMEOUT_S)
        worker = RemoteWorker(client, budget, max_output_bytes=10_000)
        offer = RemoteOffer(MODEL, 50.0, loaded=True, load_ms=0.0)
        worker.announced = Announced({model_id(MODEL): offer}, 4, 1000)
        await database.execute(
            "INSERT INTO chain.worker VALUES ($1, $2, $3, '', 4, 1000, true, true, 1, 0, 1)",
            agents.WORKER,
            _OWNER,
            [model_id(MODEL)],
        )
        workers, outcomes = WorkerPool([]), list[str]()
        workers.join(worker, held=None)
        dispatcher = Dispatcher(
            workers, database, fence=None, on_change=outcomes.append, budget=budget
        )
        yield Line(database, workers, dispatcher, proxy, folder, outcomes, budget)
        await dispatcher.close()
    await until(lambda: not asyncio.all_tasks() - {*before, asyncio.current_task()})


@pytest.fixture
async def backend() -> Scripted:
    return Scripted()


@pytest.fixture
async def line(
    pool: Pool, tmp_path: Path, backend: Scripted, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Line]:
    monkeypatch.setattr(remote_module, "_POLL_S", _POLL_S)
    operator = agents.Operator("", OPERATOR_KEY)
    async with agents.an_agent(tmp_path, backend, operator, slots=4) as (agent, _):
        async with a_line(pool, agent.url, tmp_path, RetryBudget()) as line:
            yield line
        assert agent.jobs.running == agent.jobs.queued == 0


def job(number: int) -> Job:
    return a_job(number, b"%d" % number)


async def cut_before(call: Call) -> None:
    call.reset()


async def cut_after(call: Call) -> None:
    await call.ask()
    call.reset()


async def closed_after(call: Call) -> None:
    await call.ask()
    call.close()


async def cut_in_the_answer(call: Call) -> None:
    answer = await call.ask()
    await call.say(answer[: len(answer) - 20])
    call.reset()


async def closed_in_the_answer(call: Call) -> None:
    answer = await call.ask()
    await call.say(answer[: len(answer) - 20])
    call.close()


async def cut_in_the_head(call: Call) -> None:
    answer = await call.ask()
    await call.say(answer[:30])
    call.close()


async def cut_in_the_question(call: Call) -> None:
    await call.half_ask(len(call.sent) - 20)
    call.reset()


async def half_open(call: Call) -> None:
    await call.ask()
    await call.silence()


async def half_open_unheard(call: Call) -> None:
    await call.silence()


@pytest.mark.parametrize(
    "fault",
    [
        cut_before,
        cut_after,
        closed_after,
        cut_in_the_answer,
        closed_in_the_answer,
        cut_in_the_head,
        cut_in_the_question,
        half_open,
        half_open_unheard,
    ],
)
async def test_a_broken_exchange_costs_a_question_and_no_computation(
    line: Line, backend: Scripted, fault: Fault
) -> None:
    line.proxy.jobs = [fault]
    lease = await line.serve(job(1))
    await line.until_at_rest(1)
    assert line.proxy.faulty == ["POST"]
    assert await line.end_of(lease) == ("done", None)
    assert await line.results() == {1: b"answer to 1"}
    assert len(backend.calls) == 1
    assert await line.counts() == (1, 0, 0, 0, 0)
    assert line.pool.standing(agents.WORKER).failure_share == 0.0
    assert line.at_the_agent("output") == line.at_the_agent("asker") == 0
    assert line.budget.tokens < RetryBudget().tokens


async def test_a_poll_that_breaks_is_asked_again(line: Line, backend: Scripted) -> None:
    go = asyncio.Event()

    async def when_told(asked: Job) -> bytes:
        await go.wait()
        return b"answer to " + asked.input

    backend.answer = when_told
    line.proxy.jobs = [Call.pass_on, cut_after, cut_before, cut_in_the_answer]
    await line.serve(job(1))
    await until(lambda: len(line.proxy.faulty) == 4, 60)
    go.set()
    await line.until_at_rest(1)
    assert line.proxy.faulty[1] == "GET"
    assert await line.results() == {1: b"answer to 1"}
    assert len(backend.calls) == 1
    assert await line.counts() == (1, 0, 0, 0, 0)


async def test_a_delay_within_the_lease_is_nothing(line: Line, backend: Scripted) -> None:
    go = asyncio.Event()

    async def late(call: Call) -> None:
        answer = await call.ask()
        go.set()
        await call.say(answer)

    async def late_to_the_agent(call: Call) -> None:
        await go.wait()
        await call.pass_on()

    line.proxy.jobs = [late_to_the_agent, late]
    await line.serve(job(1))
    await until(lambda: line.proxy.faulty)
    await line.serve(job(2))
    await line.until_at_rest(2)
    assert await line.results() == {1: b"answer to 1", 2: b"answer to 2"}
    assert [call.request_id for call in backend.calls] == [2, 1]
    assert await line.counts() == (2, 0, 0, 0, 0)


async def test_one_call_that_is_delivered_twice_is_heard_once(
    line: Line, backend: Scripted
) -> None:
    async def twice(call: Call) -> None:
        answer = await call.ask()
        again = await call.ask()
        assert b" 401 " in again.partition(b"\r\n")[0], "its nonce was used"
        await call.say(answer)

    line.proxy.jobs, line.proxy.drops = [twice], [twice]
    await line.serve(job(1))
    await line.until_at_rest(1)
    assert (line.proxy.faulty, line.proxy.passed) == (["POST", "DELETE"], [])
    assert await line.results() == {1: b"answer to 1"}
    assert len(backend.calls) == 1
    assert await line.counts() == (1, 0, 0, 0, 0)


async def test_the_refusal_of_a_repeated_call_fails_a_lease_and_loses_no_answer(
    line: Line, backend: Scripted
) -> None:
    """Who repeats calls is a relay of the worker's own, so the failure is the worker's."""

    async def the_second_answer(call: Call) -> None:
        await call.ask()
        await call.pass_on()

    line.proxy.jobs = [the_second_answer]
    lease = await line.serve(job(1))
    await line.until_at_rest(1)
    assert await line.end_of(lease) == ("failed", FailureKind.FAILED)
    await line.serve(job(1), attempt=2)
    await line.until_at_rest(2)
    assert await line.results() == {1: b"answer to 1"}
    assert len(backend.calls) == 1
    assert await line.counts() == (1, 0, 1, 0, 0)


@pytest.mark.parametrize("breaks", [(), (cut_after, cut_in_the_answer), (half_open,)])
async def test_an_answer_after_its_lease_is_used(
    line: Line, backend: Scripted, breaks: tuple[Fault, ...]
) -> None:
    """The lease runs out on a computed answer; what is asked after it may break as well."""
    line.proxy.jobs = [half_open, *breaks]
    lease = await line.serve(job(1), lease_ms=1_000)
    await line.until_at_rest(2)
    assert await line.end_of(lease) == ("failed", FailureKind.TIMEOUT)
    assert line.outcomes == ["timeout", "stored"]
    assert await line.results() == {1: b"answer to 1"}
    assert len(backend.calls) == 1
    assert await line.counts() == (0, 1, 0, 1, 0)
    assert line.at_the_agent("output") == 0


async def test_answers_that_overtake_each_other_keep_their_requests(
    line: Line, backend: Scripted
) -> None:
    overtaken = asyncio.Event()

    async def first(call: Call) -> None:
        answer = await call.ask()
        await overtaken.wait()
        await call.say(answer)

    line.proxy.jobs = [first]
    await line.serve(job(1))
    await until(lambda: line.proxy.faulty)
    await line.serve(job(2))
    await until(lambda: line.outcomes == ["stored"], 60)
    overtaken.set()
    await line.until_at_rest(2)
    assert await line.results() == {1: b"answer to 1", 2: b"answer to 2"}
    assert len(backend.calls) == 2
    assert await line.counts() == (2, 0, 0, 0, 0)


async def test_answers_to_each_others_requests_are_not_believed(line: Line) -> None:
    """Each is the worker's own, well signed: but for the other request."""
    answers: list[bytes] = []
    both = asyncio.Event()

    async def cross(call: Call) -> None:
        answers.append(mine := await call.ask())
        if len(answers) == 2:
            both.set()
        await both.wait()
        (other,) = [one for one in answers if one is not mine]
        await call.say(other)

    line.proxy.jobs = [cross, cross]
    leases = [await line.serve(job(1)), await line.serve(job(2))]
    await line.until_at_rest(2)
    assert [await line.end_of(lease) for lease in leases] == [("failed", FailureKind.LIED)] * 2
    assert await line.results() == {}
    assert line.pool.in_flight(agents.WORKER) == 0
    for number in (1, 2):
        await line.serve(job(number), attempt=2)
    await line.until_at_rest(4)
    assert await line.results() == {1: b"answer to 1", 2: b"answer to 2"}
    assert await line.counts() == (2, 0, 0, 0, 2)


@pytest.mark.parametrize("drops", [(cut_before, cut_after), (half_open,), (cut_before,) * 3])
async def test_an_acknowledgement_that_is_lost_harms_nobody(
    line: Line, backend: Scripted, drops: tuple[Fault, ...]
) -> None:
    line.proxy.drops = list(drops)
    await line.serve(job(1))
    await line.until_at_rest(1)
    assert await line.results() == {1: b"answer to 1"}
    assert len(backend.calls) == 1
    assert await line.counts() == (1, 0, 0, 0, 0)
    # After three it is left to the agent's own time.
    assert line.at_the_agent("output") == (1 if len(drops) == 3 else 0)


_ANY = [
    Call.pass_on,
    cut_before,
    cut_after,
    closed_after,
    cut_in_the_answer,
    cut_in_the_head,
    cut_in_the_question,
]


async def test_in_a_storm_each_request_has_one_answer(line: Line, backend: Scripted) -> None:
    """Most calls break. Leases may fail for it, as too much is asked again; answers are not lost,
    and none is computed twice."""
    dice = random.Random(7)
    line.proxy.jobs = dice.choices(_ANY, k=200)
    line.proxy.drops = dice.choices(_ANY, k=60)
    open_, attempt, ended = set(range(1, 25)), 0, 0
    while open_:
        attempt += 1
        for number in sorted(open_):
            await line.serve(job(number), attempt=attempt)
        ended += len(open_)
        await line.until_at_rest(ended)
        open_ -= set(await line.results())
        if attempt > 3:
            line.proxy.jobs.clear()
    assert await line.results() == {n: b"answer to %d" % n for n in range(1, 25)}
    assert sorted(call.request_id for call in backend.calls) == list(range(1, 25))
    good, late, failed, timeouts, lies = await line.counts()
    assert (good, late, timeouts, lies) == (24, 0, 0, 0)
    assert failed == ended - 24


@asynccontextmanager
async def a_process(folder: Path, die_at: str | None = None) -> AsyncIterator[Any]:
    """An agent in a process of its own, and its URL. Its back end never answers the same twice."""
    place = folder / f"worker-0x{agents.WORKER.hex()}" / "agent.json"
    place.unlink(missing_ok=True)
    running = processes().Process(target=run, args=(Order(folder, 1, die_at),))
    running.start()
    try:
        await until(lambda: place.exists() or not running.is_alive(), 60)
        yield running, json.loads(place.read_text())["url"]
    finally:
        running.kill()
        running.join()


async def test_a_process_that_stands_still_is_asked_again_when_it_goes_on(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its system still takes connections and acknowledges what is sent, and nobody answers."""
    monkeypatch.setattr(remote_module, "_POLL_S", _POLL_S)
    async with a_process(tmp_path) as (process, url):
        async with a_line(pool, url, tmp_path, RetryBudget(reserve=1_000)) as line:
            os.kill(process.pid, signal.SIGSTOP)
            await line.serve(job(1))
            await until(lambda: len(line.proxy.passed) == 2, 60)
            assert line.outcomes == []
            os.kill(process.pid, signal.SIGCONT)
            await line.until_at_rest(1)
            assert len(await line.results()) == 1
            assert await line.counts() == (1, 0, 0, 0, 0)
        assert line.at_the_agent("result") == 1
        assert line.at_the_agent("output") == 0


async def test_a_process_that_is_killed_with_an_answer_gives_it_when_it_is_back(
    pool: Pool, tmp_path: Path
) -> None:
    async def marked(call: Call) -> None:
        await call.say(await call.ask(call.sent.replace(b"\r\n", b"\r\nVictim: yes\r\n", 1)))
        call.close()

    async with (
        a_process(tmp_path, "before the response leaves#1") as (process, url),
        a_line(pool, url, tmp_path, RetryBudget(reserve=1_000)) as line,
    ):
        line.proxy.jobs = [marked]
        await line.serve(job(1))
        await asyncio.to_thread(process.join, 60)
        assert process.exitcode == -signal.SIGKILL
        assert line.at_the_agent("output") == 1
        assert line.outcomes == []
        async with a_process(tmp_path) as (_, line.proxy.agent_url):
            await line.until_at_rest(1)
            assert len(await line.results()) == 1
            assert await line.counts() == (1, 0, 0, 0, 0)
            assert line.at_the_agent("result") == 1
