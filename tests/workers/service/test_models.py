"""One agent with several models: each job goes to its own, and slots, memory and log are shared."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from inferd.protocol.typed_data import CompactSignature
from inferd.protocol.worker_api import (
    HEALTH,
    ErrorBody,
    Heartbeat,
    JobDone,
    JobRunning,
    SignedHeartbeat,
    decode,
    of_hex,
    signed_item,
)
from inferd.workers.backends.memory import ModelMemory
from inferd.workers.backends.opening import Stock
from inferd.workers.job import Job
from tests.workers.service.support import (
    RESULTS_DOMAIN,
    WORKER,
    Operator,
    a_request,
    an_agent,
)
from tests.workers.support import Scripted, until


def three(room: int = 2) -> tuple[Stock, list[Scripted]]:
    """Each takes one part of a memory with that many."""
    backends = [Scripted(named(name), name=name, loaded=False, load_ms=7.0) for name in "abc"]
    memory = ModelMemory(10 * room, dict.fromkeys("abc", 10))
    return Stock(tuple(backends), memory), backends


def named(name: str) -> Any:
    async def answer(job: Job) -> bytes:
        return name.encode() + b" says " + job.input

    return answer


async def heartbeat(operator: Operator) -> Heartbeat:
    _, body, _ = await operator.send("GET", HEALTH)
    return decode(decode(body, SignedHeartbeat).heartbeat, Heartbeat)


async def test_jobs_go_to_their_models_and_the_heartbeat_tells_of_all(tmp_path: Path) -> None:
    stock, _ = three()
    async with an_agent(tmp_path, stock) as (agent, operator):
        for number, model in enumerate("abcab", 1):
            job = a_request(number, b"hello", model=model)
            done = await operator.ask(job)
            assert isinstance(done, JobDone), done
            assert done.output == model.encode() + b" says hello"
            signed_item(done, job.id, WORKER, RESULTS_DOMAIN)
        said = await heartbeat(operator)
        assert {one.name: one.loaded for one in said.models} == {"a": True, "b": True, "c": False}
        assert {(one.load_ms, one.tokens_per_s) for one in said.models} == {(7.0, 50.0)}
        assert operator.session is not None
        async with operator.session.get(agent.metrics_url + "/metrics") as response:
            page = await response.text()
        assert 'inferd_agent_model_loaded{model="b"} 1.0' in page
        assert 'inferd_agent_model_loaded{model="c"} 0.0' in page
        refused = await operator.ask(a_request(9, b"hello", model="d"))
        assert isinstance(refused, ErrorBody)
        assert refused.message == "text does not serve this model"


async def test_the_slots_are_of_all_models_together(tmp_path: Path) -> None:
    stock, backends = three(3)
    go = asyncio.Event()

    async def waits(job: Job) -> bytes:
        await go.wait()
        return b"done"

    for backend in backends:
        backend.answer = waits
    async with an_agent(tmp_path, stock, slots=2, queue=1) as (_, operator):
        for number, model in enumerate("abc", 1):
            running = await operator.ask(a_request(number, model=model, wait_ms=0))
            assert isinstance(running, JobRunning)
        await until(lambda: sum(len(one.calls) for one in backends) == 2)
        said = await heartbeat(operator)
        assert (said.slots, said.running, said.queued) == (2, 2, 1)
        busy = await operator.ask(a_request(4, model="a"))
        assert isinstance(busy, ErrorBody)
        assert busy.code == "busy"
        go.set()
        assert isinstance(await operator.look(a_request(3).id, 20_000), JobDone)


async def test_a_deadline_passes_while_a_model_waits_for_memory(tmp_path: Path) -> None:
    stock, (holder, other, _) = three(1)
    go = asyncio.Event()

    async def waits(job: Job) -> bytes:
        await go.wait()
        return b"done"

    holder.answer = waits
    async with an_agent(tmp_path, stock, slots=2) as (_, operator):
        await operator.ask(a_request(1, model="a", wait_ms=0))
        await until(lambda: holder.calls)
        late = await operator.ask(a_request(2, model="b", deadline_in_s=2.5))
        assert isinstance(late, ErrorBody)
        assert late.message == "no answer before the request's deadline"
        assert (other.started, holder.unloaded) == (0, 0)
        go.set()
        assert isinstance(await operator.look(a_request(1).id, 20_000), JobDone)
        assert isinstance(await operator.ask(a_request(3, model="b")), JobDone)


async def test_a_request_has_one_digest_whichever_model_is_asked(tmp_path: Path) -> None:
    stock, _ = three(3)
    async with an_agent(tmp_path, stock) as (_, operator):
        first = await operator.ask(a_request(1, model="a"))
        other = await operator.ask(a_request(1, model="b", attempt=2))
        assert isinstance(first, JobDone)
        assert isinstance(other, ErrorBody)
        assert other.code == "conflict"
    # Another process with the same log, which has only the other model.
    async with an_agent(tmp_path, Scripted(named("b"), name="b")) as (_, operator):
        other = await operator.ask(a_request(1, model="b", attempt=3))
        assert isinstance(other, ErrorBody)
        assert other.code == "conflict"
        again = await operator.look(a_request(1).id)
        assert isinstance(again, JobDone)
        assert CompactSignature(of_hex(again.signature)) == of_hex(first.signature)
