"""One job at a worker on another machine, and all that can go wrong between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web
from eth_keys.datatypes import PrivateKey

from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import group_digest, recover
from inferd.protocol.worker_api import JobDone, JobId, as_hex
from inferd.protocol.worker_api_signing import ANSWER_HEADER
from inferd.workers.job import (
    Declined,
    Job,
    RefusedToSign,
    WorkerBusy,
    WorkerFailed,
    WorkerLied,
)
from inferd.workers.retries import RetryBudget
from tests.workers.remote.scripted import (
    RESULTS_DOMAIN,
    Fault,
    ScriptedWorker,
    listening,
    remote,
    signed,
    wrong_key,
)
from tests.workers.support import a_job, until


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedWorker]:
    async with listening(ScriptedWorker()) as worker:
        yield worker


def job_of(job: Job) -> JobId:
    return JobId(job.request_id, job.commitment, job.attempt)


async def cut(request: web.Request) -> web.StreamResponse:
    """The connection breaks before the worker has heard anything."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def after_computing(scripted: ScriptedWorker) -> Fault:
    """The worker computes, and its answer is lost on the way."""

    async def lose(request: web.Request) -> web.StreamResponse:
        await scripted.handle(request)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return lose


def saying(status: int, code: str = "", **headers: str) -> Fault:
    async def say(request: web.Request) -> web.StreamResponse:
        body = {"code": code, "message": "the prompt was: secret"}
        return web.json_response(body, status=status, headers=headers)

    return say


def body_of(content: bytes) -> Fault:
    async def say(request: web.Request) -> web.StreamResponse:
        return web.Response(body=content)

    return say


async def test_a_job_is_computed_and_its_answer_kept_until_it_is_dropped(
    scripted: ScriptedWorker,
) -> None:
    job = a_job(7, b"hello")
    async with remote(scripted) as worker:
        result = await worker.compute(job)
        assert result.output == b"answer to hello"
        assert result.worker == scripted.address
        assert result.digest == digest_of(result.output)
        assert scripted.kept
        await worker.drop(job)
    assert scripted.dropped == [job_of(job)]
    assert scripted.asked == scripted.computed == [job_of(job)]


@pytest.mark.parametrize("how", ["before", "after", "half-open"])
async def test_a_lost_answer_is_asked_for_again_and_computed_once(
    scripted: ScriptedWorker, how: str
) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await scripted.handle(request)
        await asyncio.Event().wait()
        raise AssertionError

    fault = {"before": cut, "after": after_computing(scripted), "half-open": silent}[how]
    scripted.faults = [fault, fault] if how != "half-open" else [fault]
    # The half-open connection is given up after the time-out and what was asked to be waited.
    job = a_job(deadline_in_s=2 if how == "half-open" else 600)
    async with remote(scripted, timeout_s=1 if how == "half-open" else 20) as worker:
        assert (await worker.compute(job)).output == b"answer to hello"
    assert scripted.computed == [job_of(job)]


async def test_retries_come_out_of_the_budget(scripted: ScriptedWorker) -> None:
    scripted.faults = [cut] * 5
    async with remote(scripted, budget=RetryBudget(reserve=2.0)) as worker:
        with pytest.raises(WorkerFailed, match="too much is asked again"):
            await worker.compute(a_job())
    assert len(scripted.faults) == 2, "one first try and two retries"


async def test_a_long_computation_is_polled_for(scripted: ScriptedWorker) -> None:
    scripted.gate = asyncio.Event()
    async with remote(scripted) as worker:
        # The worker is asked to wait no longer than until the deadline.
        computing = asyncio.create_task(worker.compute(a_job(deadline_in_s=2)))
        await until(lambda: scripted.polled)
        scripted.gate.set()
        assert (await computing).output == b"answer to hello"
    assert len(scripted.asked) == 1


async def test_a_worker_that_forgot_a_job_is_asked_as_the_first_time(
    scripted: ScriptedWorker,
) -> None:
    async def running(request: web.Request) -> web.StreamResponse:
        return web.json_response({"state": "running"}, status=202)

    scripted.faults = [running]
    async with remote(scripted) as worker:
        assert (await worker.compute(a_job())).output == b"answer to hello"
    assert scripted.polled
    assert len(scripted.asked) == 1


@pytest.mark.parametrize("status", [429, 502, 504])
async def test_what_says_nothing_of_a_job_that_runs_is_no_answer_to_it(
    scripted: ScriptedWorker, status: int
) -> None:
    """Too many questions, or a gateway before the worker: its answer is still to come."""
    scripted.gate = asyncio.Event()
    job = a_job(deadline_in_s=2)
    async with remote(scripted) as worker:
        computing = asyncio.create_task(worker.compute(job))
        await until(lambda: scripted.asked)
        scripted.faults = [saying(status)] * 2
        await until(lambda: not scripted.faults)
        scripted.gate.set()
        assert (await computing).output == b"answer to hello"
        scripted.faults = [saying(status)] * 2
        assert (await worker.late(job)).output == b"answer to hello"
    assert scripted.computed == [job_of(job)]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (saying(503, "busy", **{"Retry-After": "7"}), WorkerBusy),
        (saying(429, "rate"), WorkerBusy),
        (saying(422, "bad_input"), Declined),
        (saying(413, "too_large"), Declined),
        (saying(500, "failed"), WorkerFailed),
        (saying(401, "unauthorised"), WorkerFailed),
        (saying(409, "conflict"), WorkerFailed),
        (saying(302, Location="http://127.0.0.1:1/"), WorkerFailed),
        (saying(418, "x" * 5000), WorkerFailed),
    ],
)
async def test_what_a_worker_says_instead_of_an_answer(
    scripted: ScriptedWorker, fault: Fault, error: type[WorkerFailed]
) -> None:
    scripted.faults = [fault]
    async with remote(scripted) as worker:
        with pytest.raises(error) as caught:
            await worker.compute(a_job())
    assert type(caught.value) is error
    assert "secret" not in caught.value.reason, "its own words may quote the input"
    assert len(caught.value.reason) < 100
    if isinstance(caught.value, WorkerBusy) and "503" in caught.value.reason:
        assert caught.value.retry_after_s == 7.0


def other_digest(job: JobId, done: JobDone) -> JobDone:
    return msgspec.structs.replace(done, output=done.output + b"!")


def of_other_job(job: JobId, done: JobDone) -> JobDone:
    other = JobId(job.request_id + 1, job.commitment, job.attempt)
    return signed(other, done.output, PrivateKey(b"\x31" * 32))


def with_manifest(manifest: dict[str, Any]) -> Any:
    return lambda job, done: msgspec.structs.replace(done, manifest=manifest)


def deep(levels: int) -> dict[str, Any]:
    return {"a": deep(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    "mangle",
    [
        lambda job, done: wrong_key(job, done.output),
        lambda job, done: msgspec.structs.replace(done, signature=as_hex(bytes(64))),
        lambda job, done: msgspec.structs.replace(done, signature=as_hex(b"\xff" * 64)),
        other_digest,
        of_other_job,
        lambda job, done: msgspec.structs.replace(done, media_type="text/html\r\nSet-Cookie: a"),
        lambda job, done: msgspec.structs.replace(done, media_type="x" * 1000),
        with_manifest({"completion_tokens": 11}),
        with_manifest({"completion_tokens": -1}),
        with_manifest({"prompt_tokens": "many"}),
        with_manifest({"model": "nul\0"}),
        with_manifest({"model": "x" * 20_000}),
        with_manifest(deep(30)),
    ],
)
async def test_an_answer_that_is_not_what_it_says_it_is_is_a_lie(
    scripted: ScriptedWorker, mangle: Any
) -> None:
    scripted.mangle = mangle
    async with remote(scripted) as worker:
        with pytest.raises(WorkerLied):
            await worker.compute(a_job(max_tokens=10))
        scripted.vouches = False
        with pytest.raises(WorkerFailed) as failed:
            await worker.compute(a_job(2, max_tokens=10))
    assert type(failed.value) is WorkerFailed, "who was between may have changed it"


async def test_an_answer_that_is_changed_on_its_way_is_no_lie(scripted: ScriptedWorker) -> None:
    """Also where the worker's word for another call comes with it."""
    words: list[str] = []

    async def tampered(request: web.Request) -> web.StreamResponse:
        response = await scripted.handle(request)
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        response.body = response.body.replace(b'"model":', b'"completion_tokens":-1,"model":')
        words.append(response.headers[ANSWER_HEADER])
        response.headers[ANSWER_HEADER] = words[0]
        return response

    async with remote(scripted) as worker:
        for _ in range(2):
            scripted.faults = [tampered]
            with pytest.raises(WorkerFailed, match="is no count") as failed:
                await worker.compute(a_job())
            assert type(failed.value) is WorkerFailed
        assert (await worker.compute(a_job())).output == b"answer to hello"
    assert words[0] != words[1]


@pytest.mark.parametrize("size_bytes", [10_001, 100_000])
async def test_an_output_that_is_too_large_is_no_fault_of_the_worker(
    scripted: ScriptedWorker, size_bytes: int
) -> None:
    """It does not know how much this node takes."""
    scripted.mangle = lambda job, done: signed(job, bytes(size_bytes), scripted.key)
    async with remote(scripted) as worker:
        with pytest.raises(Declined, match="bytes"):
            await worker.compute(a_job())


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"state":"done"}', b"[" * 100_000, bytes(40_000)],
)
async def test_garbage_is_a_failure(scripted: ScriptedWorker, content: bytes) -> None:
    scripted.faults = [body_of(content)]
    async with remote(scripted) as worker:
        with pytest.raises((WorkerFailed, Declined)) as failed:
            await worker.compute(a_job())
    assert not isinstance(failed.value, WorkerLied)


async def test_a_slow_drip_ends_with_its_connection(scripted: ScriptedWorker) -> None:
    ended = asyncio.Event()

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b" ")
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    scripted.faults = [drip] * 3
    async with remote(scripted, timeout_s=1.5, budget=RetryBudget(reserve=0.0)) as worker:
        with pytest.raises(WorkerFailed, match="does not end"):
            await worker.compute(a_job())
        await asyncio.wait_for(ended.wait(), 30)


async def test_cancelling_a_computation_leaves_it_to_who_asks_next(
    scripted: ScriptedWorker,
) -> None:
    scripted.gate = asyncio.Event()
    job = a_job()
    async with remote(scripted) as worker:
        computing = asyncio.create_task(worker.compute(job))
        await until(lambda: scripted.asked)
        computing.cancel()
        await asyncio.wait({computing})
        scripted.gate.set()
        await until(lambda: scripted.kept)
        assert (await worker.late(job)).output == b"answer to hello"
    assert scripted.dropped == []
    assert len(scripted.asked) == 1


async def test_a_late_answer_is_waited_for_through_outages_but_never_begun(
    scripted: ScriptedWorker,
) -> None:
    job = a_job()
    async with remote(scripted) as worker:
        with pytest.raises(WorkerFailed):
            await worker.late(job)
        assert scripted.asked == []
        await worker.compute(job)
        scripted.faults = [cut, cut]
        assert (await worker.late(job)).output == b"answer to hello"


async def test_the_time_that_counts_is_what_passed_here(scripted: ScriptedWorker) -> None:
    """Else a worker could call itself quick."""
    scripted.mangle = lambda job, done: msgspec.structs.replace(done, compute_ms=10**9)
    async with remote(scripted) as worker:
        assert (await worker.compute(a_job())).compute_ms < 10**6
        scripted.gate = asyncio.Event()
        scripted.mangle = lambda job, done: msgspec.structs.replace(done, compute_ms=0)
        computing = asyncio.create_task(worker.compute(a_job(2)))
        await until(lambda: len(scripted.asked) == 2)
        await asyncio.sleep(0.05)
        scripted.gate.set()
        assert (await computing).compute_ms >= 50


async def test_a_group_is_signed_over_http(scripted: ScriptedWorker) -> None:
    job = a_job()
    items = pack_items([ResultItem(1, job.commitment, digest_of(b"x"))])
    async with remote(scripted) as worker:
        signature = await worker.sign_group(items)
    assert recover(group_digest(RESULTS_DOMAIN, items), signature) == scripted.address


async def test_a_refusal_to_sign_is_told(scripted: ScriptedWorker) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": "refused_to_sign", "message": ""}, status=409)

    scripted.handle = handle  # type: ignore[method-assign]
    async with listening(scripted), remote(scripted) as worker:
        with pytest.raises(RefusedToSign, match="refused_to_sign"):
            await worker.sign_group(bytes(60))


async def test_dropping_never_raises_and_gives_up(scripted: ScriptedWorker) -> None:
    scripted.faults = [cut] * 9
    async with remote(scripted) as worker:
        await worker.drop(a_job())
    assert scripted.dropped == []
    assert len(scripted.faults) == 6
