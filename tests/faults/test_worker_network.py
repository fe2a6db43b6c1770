"""A network that fails between the dispatcher and a real agent.

Whatever happens to the bytes on their way, each request has one result, the back end has computed
it once where the protocol promises that, nobody is blamed for what the network did as long as the
lease held, and nothing is left: no slot, no task, no kept answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from indexer.database import Pool
from inferd.workers.job import Job
from inferd.workers.leases import FailureKind
from inferd.workers.remote import worker as remote_module
from inferd.workers.retries import RetryBudget
from tests.faults.worker_line import (
    POLL_S,
    Line,
    a_line,
    closed_after,
    closed_in_the_answer,
    cut_after,
    cut_before,
    cut_in_the_answer,
    cut_in_the_head,
    cut_in_the_question,
    half_open,
    half_open_unheard,
    job,
)
from tests.faults.worker_proxy import Call, Fault
from tests.workers.remote.scripted import OPERATOR_KEY
from tests.workers.service import support as agents
from tests.workers.service.doomed_agent import Order, processes, run
from tests.workers.support import MODEL, Scripted, until


@pytest.fixture
async def backend() -> Scripted:
    return Scripted()


@pytest.fixture
async def line(
    pool: Pool, tmp_path: Path, backend: Scripted, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Line]:
    monkeypatch.setattr(remote_module, "_POLL_S", POLL_S)
    operator = agents.Operator("", OPERATOR_KEY)
    async with agents.an_agent(tmp_path, backend, operator, slots=4) as (agent, _):
        async with a_line(pool, agent.url, tmp_path, RetryBudget()) as line:
            yield line
        assert agent.jobs.running == agent.jobs.queued == 0


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


async def test_answers_to_each_others_requests_are_not_believed(
    line: Line, backend: Scripted
) -> None:
    """Each is the worker's own, well signed: but for the other request. So it has not lied."""
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
    assert [await line.end_of(lease) for lease in leases] == [("failed", FailureKind.FAILED)] * 2
    assert await line.results() == {}
    assert line.pool.in_flight(agents.WORKER) == 0
    for number in (1, 2):
        await line.serve(job(number), attempt=2)
    await line.until_at_rest(4)
    assert await line.results() == {1: b"answer to 1", 2: b"answer to 2"}
    assert await line.counts() == (2, 0, 2, 0, 0)
    assert len(backend.calls) == 2


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
    running = processes().Process(target=run, args=(Order(folder, 1, die_at, (MODEL,)),))
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
    monkeypatch.setattr(remote_module, "_POLL_S", POLL_S)
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
