"""A request is computed once, and its answer is there until it is acknowledged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from msgspec.structs import replace

from indexer.types import Hash32
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import CompactSignature, group_digest, recover
from inferd.protocol.worker_api import (
    JOBS,
    SIGN,
    ErrorBody,
    ErrorCode,
    JobDone,
    JobRunning,
    SignAnswer,
    SignRequest,
    decode,
    encode,
    of_hex,
    signed_item,
)
from inferd.protocol.worker_api_signing import ANSWER_HEADER, is_vouched_for
from inferd.workers.job import BadInput, Job, WorkerBusy, WorkerFailed
from tests.workers.service.support import (
    API_DOMAIN,
    RESULTS_DOMAIN,
    WORKER,
    Operator,
    a_request,
    an_agent,
    read,
)
from tests.workers.support import Scripted, until


class Held:
    """Back ends whose answers wait until the test lets them go; no two are the same."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.ended = 0

    async def __call__(self, job: Job) -> bytes:
        try:
            await self.go.wait()
        finally:
            self.ended += 1
        return b"%d to %s" % (self.ended, job.input)


def code_of(answer: object) -> str:
    assert isinstance(answer, ErrorBody), answer
    return answer.code


@pytest.mark.parametrize("size_bytes", [10, 300_000])
async def test_an_answer_is_signed_as_a_whole_for_the_call_it_answers(
    tmp_path: Path, size_bytes: int
) -> None:
    async def long(job: Job) -> bytes:
        return bytes(size_bytes)

    asked = a_request()
    calls = [("POST", JOBS, encode(asked)), ("GET", f"{asked.id.path}?wait_ms=1", b"")]
    nonces = [Hash32(bytes([number]) * 32) for number in (1, 2)]
    answers = []
    async with an_agent(tmp_path, Scripted(answer=long)) as (_, operator):
        for (method, target, body), nonce in zip(calls, nonces, strict=True):
            header = operator.header(method, target, body, nonce=nonce)
            answers.append(await operator.send(method, target, body, header=header))
    for said, (status, body, headers) in zip(nonces, answers, strict=True):
        assert status == 200
        for nonce in nonces:
            for text in (body, body.replace(b"text/", b"html/")):
                holds = is_vouched_for(
                    headers[ANSWER_HEADER], text, nonce=nonce, worker=WORKER, domain=API_DOMAIN
                )
                assert holds is (nonce == said and text == body)


async def test_an_answer_is_signed_and_the_same_each_time(tmp_path: Path) -> None:
    backend = Scripted()
    async with an_agent(tmp_path, backend) as (_, operator):
        job = a_request(7, b"question")
        done = await operator.ask(job)
        assert isinstance(done, JobDone)
        assert done.output == b"answer to question"
        signed_item(done, job.id, WORKER, RESULTS_DOMAIN)
        assert await operator.ask(job) == await operator.look(job.id) == done
    async with an_agent(tmp_path, backend) as (_, operator):
        assert await operator.ask(job) == await operator.look(job.id) == done
    assert len(backend.calls) == 1


async def test_many_who_ask_at_once_cause_one_computation(tmp_path: Path) -> None:
    held = Held()
    backend = Scripted(held)
    async with an_agent(tmp_path, backend) as (agent, operator):
        asking = [asyncio.create_task(operator.ask(a_request())) for _ in range(10)]
        second = asyncio.create_task(operator.ask(a_request(attempt=2)))
        await until(lambda: agent.jobs.running)
        assert await operator.look(a_request().id) == JobRunning()
        held.go.set()
        answers = await asyncio.gather(*asking, second)
        assert len({answer.digest for answer in answers if isinstance(answer, JobDone)}) == 1
        assert all(isinstance(answer, JobDone) for answer in answers)
    assert len(backend.calls) == 1


async def test_the_answer_goes_once_all_have_acknowledged_it(tmp_path: Path) -> None:
    backend = Scripted()
    async with an_agent(tmp_path, backend) as (_, operator):
        first, second = a_request(), a_request(attempt=2)
        done = await operator.ask(first)
        assert await operator.ask(second) == done
        assert await operator.drop(first.id) == 200
        assert code_of(await operator.look(first.id)) == "unknown_job"
        assert await operator.look(second.id) == done, "the other attempt still waits for it"
        assert await operator.drop(second.id) == await operator.drop(second.id) == 200
        assert code_of(await operator.look(second.id)) == "unknown_job"
        # What is deterministic is computed anew to the same digest, under the same signature.
        again = await operator.ask(a_request(attempt=3))
        assert isinstance(again, JobDone)
        assert isinstance(done, JobDone)
        assert replace(again, compute_ms=done.compute_ms) == done
    assert len(backend.calls) == 2


async def test_no_second_digest_where_the_output_is_gone(tmp_path: Path) -> None:
    held = Held()
    held.go.set()
    async with an_agent(tmp_path, Scripted(held)) as (_, operator):
        job = a_request()
        done = await operator.ask(job)
        assert isinstance(done, JobDone)
        await operator.drop(job.id)
        refused = await operator.ask(replace(job, attempt=2))
        assert code_of(refused) == "failed"
        assert "another answer before" in refused.message  # type: ignore[union-attr]
        other = ResultItem(1, job.id.commitment, digest_of(b"2 to hello"))
        status, _, _ = await operator.send("POST", SIGN, encode(SignRequest(pack_items([other]))))
        assert status == 409


async def test_another_content_is_a_conflict(tmp_path: Path) -> None:
    held = Held()
    async with an_agent(tmp_path, Scripted(held)) as (agent, operator):
        running = asyncio.create_task(operator.ask(a_request()))
        await until(lambda: agent.jobs.running)
        others = [
            replace(a_request(), input=b"other"),
            replace(a_request(), max_tokens=5),
            replace(a_request(attempt=2), model="other"),
        ]
        for other in others:
            assert code_of(await operator.ask(other)) == "conflict"
        held.go.set()
        done = await running
        for other in others:
            assert code_of(await operator.ask(other)) == "conflict"
        sooner = replace(a_request(), deadline_s=a_request().deadline_s - 100)
        assert await operator.ask(sooner) == done, "a requester may cancel meanwhile"


async def test_slots_and_queue_are_bounds(tmp_path: Path) -> None:
    held = Held()
    async with an_agent(tmp_path, Scripted(held), slots=2, queue=1) as (agent, operator):
        asking = [asyncio.create_task(operator.ask(a_request(number))) for number in (1, 2, 3)]
        await until(lambda: (agent.jobs.running, agent.jobs.queued) == (2, 1))
        status, body, headers = await operator.send("POST", "/v1/jobs", encode(a_request(4)))
        assert (status, decode(body, ErrorBody).code) == (503, "busy")
        assert int(headers["Retry-After"]) >= 1
        held.go.set()
        assert all(isinstance(answer, JobDone) for answer in await asyncio.gather(*asking))
        assert isinstance(await operator.ask(a_request(4)), JobDone)


async def test_who_joins_a_computation_is_bounded(tmp_path: Path) -> None:
    held = Held()
    async with an_agent(tmp_path, Scripted(held)) as (_, operator):
        for attempt in range(64):
            assert await operator.ask(a_request(attempt=attempt, wait_ms=0)) == JobRunning()
        assert code_of(await operator.ask(a_request(attempt=64, wait_ms=0))) == "busy"
        assert await operator.ask(a_request(attempt=5, wait_ms=0)) == JobRunning()
        held.go.set()
        assert isinstance(await operator.look(a_request(attempt=63).id, 20_000), JobDone)


async def test_a_cancelled_job_ends_and_frees_its_slot(tmp_path: Path) -> None:
    held = Held()
    async with an_agent(tmp_path, Scripted(held), slots=1, queue=0) as (agent, operator):
        job = a_request()
        asked = asyncio.create_task(operator.ask(job))
        await until(lambda: agent.jobs.running)
        assert await operator.drop(job.id) == 200
        assert code_of(await asked) == "unknown_job"
        await until(lambda: held.ended == 1 and not agent.jobs.running + agent.jobs.queued)
        held.go.set()
        assert isinstance(await operator.ask(a_request(2)), JobDone)
        assert isinstance(await operator.ask(job), JobDone), "and it can be asked anew"


async def test_one_attempt_cancelled_leaves_the_other(tmp_path: Path) -> None:
    held = Held()
    async with an_agent(tmp_path, Scripted(held)) as (agent, operator):
        asked = asyncio.create_task(operator.ask(a_request(attempt=2)))
        await until(lambda: agent.jobs.running)
        await operator.ask(a_request(attempt=1, wait_ms=0))
        await operator.drop(a_request(attempt=1).id)
        held.go.set()
        assert isinstance(await asked, JobDone)


@pytest.mark.parametrize(
    ("error", "code", "status", "again"),
    [
        (BadInput("not UTF-8"), ErrorCode.BAD_INPUT, 422, 1),
        (WorkerFailed("no"), ErrorCode.FAILED, 500, 1),
        (WorkerBusy("later"), ErrorCode.BUSY, 503, 2),
        (ValueError("with the secret prompt"), ErrorCode.FAILED, 500, 1),
    ],
)
async def test_a_failure_is_an_answer_too(
    tmp_path: Path, error: Exception, code: ErrorCode, status: int, again: int
) -> None:
    async def fail(job: Job) -> bytes:
        raise error

    backend = Scripted(fail)
    async with an_agent(tmp_path, backend) as (_, operator):
        job = a_request()
        answer = await operator.send("POST", "/v1/jobs", encode(job))
        assert (answer[0], code_of(read(answer))) == (status, code)
        assert b"secret" not in answer[1]
        assert code_of(await operator.ask(job)) == code
        assert len(backend.calls) == again, "busy is no answer; what failed is not tried again"
        await operator.drop(job.id)
        await operator.ask(job)
        assert len(backend.calls) == again + 1


async def test_a_deadline_ends_it(tmp_path: Path) -> None:
    held = Held()
    async with an_agent(tmp_path, Scripted(held)) as (_, operator):
        late = await operator.ask(a_request(1, deadline_in_s=-1))
        assert code_of(late) == "failed"
        assert "deadline" in code_of(late) + late.message  # type: ignore[union-attr]
        cut = await operator.ask(a_request(2, deadline_in_s=3.5))
        assert code_of(cut) == "failed"
        assert held.ended == 1


async def test_a_model_that_it_has_not(tmp_path: Path) -> None:
    async with an_agent(tmp_path, Scripted()) as (_, operator):
        assert code_of(await operator.ask(a_request(model="other"))) == "failed"


async def test_groups_of_its_own_results_are_signed_and_no_others(tmp_path: Path) -> None:
    async with an_agent(tmp_path, Scripted()) as (_, operator):
        items = []
        for number in (1, 2, 3):
            job = a_request(number, b"%d" % number)
            done = await operator.ask(job)
            assert isinstance(done, JobDone)
            items.append(signed_item(done, job.id, WORKER, RESULTS_DOMAIN)[0])
            await operator.drop(job.id)

        async def sign(wanted: list[ResultItem]) -> tuple[int, bytes]:
            body = encode(SignRequest(pack_items(wanted)))
            status, answer, _ = await operator.send("POST", SIGN, body)
            return status, answer

        status, answer = await sign(items)
        signature = CompactSignature(of_hex(decode(answer, SignAnswer).signature))
        group = group_digest(RESULTS_DOMAIN, pack_items(items))
        assert (status, recover(group, signature)) == (200, WORKER)
        foreign = ResultItem(9, items[0].commitment, items[0].digest)
        changed = ResultItem(1, items[0].commitment, Hash32(bytes(32)))
        for wanted in ([], [*items, foreign], [changed]):
            status, answer = await sign(wanted)
            assert (status, decode(answer, ErrorBody).code) == (409, "refused_to_sign")


async def test_operators_do_not_see_each_others_jobs(tmp_path: Path) -> None:
    one, other = Operator(""), Operator("", PrivateKey(b"\x42" * 32))
    async with an_agent(tmp_path, Scripted(), one, other):
        job = a_request()
        done = await one.ask(job)
        assert code_of(await other.look(job.id)) == "unknown_job"
        assert await other.drop(job.id) == 200
        assert await one.look(job.id) == done
        assert await other.ask(job) == done, "who has the same input has the same answer"
        await one.drop(job.id)
        assert await other.look(job.id) == done


async def test_a_stop_lets_jobs_end_and_gives_the_others_back(tmp_path: Path) -> None:
    quick, stuck = Held(), Held()

    async def by_input(job: Job) -> bytes:
        return await (quick if job.input == b"quick" else stuck)(job)

    async with an_agent(tmp_path, Scripted(by_input)) as (agent, operator):
        first = asyncio.create_task(operator.ask(a_request(1, b"quick")))
        other = asyncio.create_task(operator.ask(a_request(2, b"stuck")))
        await until(lambda: agent.jobs.running == 2)
        draining = asyncio.create_task(agent.jobs.drain(3.0))
        await asyncio.sleep(0)
        assert code_of(await operator.ask(a_request(3))) == "busy"
        quick.go.set()
        assert isinstance(await first, JobDone)
        assert code_of(await other) == "busy"
        await draining
        assert stuck.ended == 1
