"""A model behind OpenAI's API: what is asked, what comes out, and a server at its worst."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from inferd.workers.backends.choice import OpenAIOptions
from inferd.workers.backends.manifest import encode_manifest
from inferd.workers.backends.openai import http
from inferd.workers.backends.openai.backend import OpenAIBackend
from inferd.workers.job import BadInput, WorkerBusy, WorkerFailed
from tests.workers.backends.scripted_server import (
    DONE,
    HELLO,
    Answer,
    Asked,
    Scripted,
    event,
    hello,
    piece,
    refusal,
    serving,
    usage,
)
from tests.workers.support import a_job, until

CONTEXT = {"code": "context_length_exceeded", "type": "invalid_request_error"}


@contextlib.asynccontextmanager
async def ready(script: Scripted, **options: Any) -> AsyncIterator[OpenAIBackend]:
    """Started on a server that greets, which then does what the test says."""
    async with serving(script):
        options = {"base_url": f"{script.url}/v1", "model": "m", **options}
        backend = OpenAIBackend(OpenAIOptions(**options), name="on-chain")
        await backend.start()
        script.asked.clear()
        try:
            yield backend
        finally:
            await backend.close()


async def run_against(answer: Answer, **options: Any) -> Any:
    script = Scripted()
    async with ready(script, **options) as backend:
        script.answer = answer
        return await backend.run(a_job(model="on-chain"))


async def test_what_is_asked_and_what_comes_out() -> None:
    script = Scripted()
    async with ready(script, system_prompt="Be brief.", quantisation="FP8") as backend:
        job = a_job(7, "Grüße".encode(), max_tokens=9)
        completion = await backend.run(job)
        (asked,) = script.asked
    assert asked.request.path == "/v1/chat/completions"
    assert asked.body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Grüße"},
        ],
        "temperature": 0,
        "seed": job.seed,
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert completion.output == b"Hello"
    assert completion.media_type == "text/plain; charset=utf-8"
    manifest = completion.manifest
    assert encode_manifest(manifest)
    sampling = {"temperature": 0, "seed": job.seed, "max_tokens": 9}
    assert manifest.pop("system_prompt_sha256")
    assert manifest == {
        "model": "on-chain",
        "weights": "m",
        "quantisation": "FP8",
        "backend": "vLLM",
        "version": "0.9",
        "api": "chat",
        "sampling": sampling,
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "tokens_counted_by": "server",
        "finish_reason": "stop",
    }


async def test_completions_go_on_with_the_prompt() -> None:
    async def told(asked: Asked) -> web.StreamResponse:
        first = event({"choices": [{"index": 0, "text": " Paris", "finish_reason": None}]})
        last = event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
        return await asked.stream(first, last, DONE)

    script = Scripted(told)
    async with ready(script, api="completions") as backend:
        completion = await backend.run(a_job(1, b"The capital is"))
    assert script.asked[0].request.path == "/v1/completions"
    assert script.asked[0].body["prompt"] == "The capital is"
    assert "messages" not in script.asked[0].body
    assert completion.output == b" Paris"
    assert completion.manifest["completion_tokens"] == 1
    assert completion.manifest["tokens_counted_by"] == "worker"
    assert completion.manifest["prompt_tokens"] is None


async def test_lengths_are_bounded_by_the_options() -> None:
    script = Scripted()
    async with ready(script, default_tokens=5, max_tokens=50) as backend:
        for asked, sent in ((0, 5), (7, 7), (10**9, 50)):
            await backend.run(a_job(1, max_tokens=asked))
            assert script.asked[-1].body["max_tokens"] == sent


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refusal(401, {"message": "key sk-1234"}), "HTTP 401"),
        (refusal(404), "HTTP 404"),
        (refusal(500, {"code": "internal"}), r"HTTP 500 \(internal\)"),
        (refusal(429, {"code": "insufficient_quota"}), "insufficient_quota"),
        (refusal(400, {"message": "hello is not nice"}), "HTTP 400"),
        (refusal(302, Location="http://127.0.0.1:1/"), "HTTP 302"),
        (lambda asked: asked.stream(b"data: {not json\n\n"), "no piece of an answer"),
        (lambda asked: asked.stream(event({"choices": 7})), "no piece of an answer"),
        (lambda asked: asked.stream(b"\x00\xff" * 1000), "ended in mid-answer"),
        (lambda asked: asked.stream(b"data: " + b"x" * 300_000), "event of more than"),
        (lambda asked: asked.stream(*[b"data: " + b"x" * 9_000 + b"\n"] * 40), "event of more"),
        (lambda asked: asked.stream(piece("Hel")), "ended in mid-answer"),
        (lambda asked: asked.stream(piece("Hel"), DONE), "ended in mid-answer"),
        (lambda asked: asked.stream(piece("x" * 2_000), piece(finish="stop")), "of more than"),
        (lambda asked: asked.stream(event({"error": {"code": "boom"}})), r"error \(boom\)"),
        (lambda asked: asked.stream(event({"error": "said hello"})), "an error$"),
    ],
)
async def test_a_faulty_answer_fails_the_attempt_and_is_not_repeated(
    answer: Answer, reason: str
) -> None:
    with pytest.raises(WorkerFailed, match=reason) as failed:
        await run_against(answer, max_output_bytes=1_024)
    for foreign in ("hello", "sk-1234", "not json"):
        assert foreign not in failed.value.reason


async def test_what_is_no_stream_is_refused() -> None:
    async def page(_: Asked) -> web.Response:
        return web.Response(text="<h1>hello</h1>", content_type="text/html")

    async def packed(_: Asked) -> web.Response:
        made = web.Response(body=b"x" * 1_000_000, content_type="text/event-stream")
        made.enable_compression(web.ContentCoding.gzip)
        return made

    for answer, reason in ((page, "does not stream"), (packed, "packs its answer")):
        with pytest.raises(WorkerFailed, match=reason):
            await run_against(answer)


async def test_a_stream_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_STREAM_BYTES", 100_000)
    ended = asyncio.Event()

    async def endless(asked: Asked) -> web.StreamResponse:
        response = await asked.stream()
        try:
            while True:
                await response.write(b": nothing\n\n" + event({"choices": []}))
        finally:
            ended.set()

    with pytest.raises(WorkerFailed, match="a stream of more than"):
        await run_against(endless, max_tokens=1, max_output_bytes=1_024)
    async with asyncio.timeout(20):
        await ended.wait()


async def test_who_hangs_up_in_mid_answer_failed() -> None:
    async def hangs_up(asked: Asked) -> web.StreamResponse:
        response = await asked.stream(piece("Hel"))
        assert asked.request.transport is not None
        asked.request.transport.abort()
        return response

    with pytest.raises(WorkerFailed, match="it hung up"):
        await run_against(hangs_up)


async def test_a_drip_is_cut_by_the_time_for_one_answer() -> None:
    async def drips(asked: Asked) -> web.StreamResponse:
        response = await asked.stream()
        for byte in b"data: " + b" " * 100_000:
            await response.write(bytes([byte]))
            await asyncio.sleep(0.01)
        return response

    with pytest.raises(WorkerFailed, match="no answer in time"):
        await run_against(drips, timeout_s=4)


async def test_silence_is_cut_by_the_time_between_two_pieces() -> None:
    async def silent(asked: Asked) -> web.StreamResponse:
        response = await asked.stream(piece("Hel"))
        await asked.hang()
        return response

    with pytest.raises(WorkerFailed, match="no answer in time"):
        await run_against(silent, idle_timeout_s=4)


async def test_a_whole_answer_counts_though_its_stream_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "_USAGE_WITHIN_S", 0.1)

    async def lingers(asked: Asked) -> web.StreamResponse:
        response = await asked.stream(piece("Hel"), piece("lo", "stop"))
        await asked.hang()
        return response

    completion = await run_against(lingers)
    assert completion.output == b"Hello"
    assert completion.manifest["tokens_counted_by"] == "worker"


async def test_cancelling_and_the_deadline_hang_up() -> None:
    script = Scripted()

    async def slow(asked: Asked) -> web.StreamResponse:
        response = await asked.stream(piece("Hel"))
        await asked.hang()
        return response

    async with ready(script) as backend:
        script.answer = slow
        running = asyncio.create_task(backend.run(a_job()))
        await until(lambda: script.open == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: script.open == 0)
        with pytest.raises(WorkerFailed, match="no answer in time"):
            await backend.run(a_job(deadline_in_s=1.5))
        await until(lambda: script.open == 0)
        script.answer = hello
        assert (await backend.run(a_job())).output == b"Hello"


async def test_cancelling_before_the_first_byte_hangs_up() -> None:
    script = Scripted()

    async def mute(asked: Asked) -> web.StreamResponse:
        await asked.hang()
        return web.Response()

    async with ready(script) as backend:
        script.answer = mute
        running = asyncio.create_task(backend.run(a_job()))
        await until(lambda: script.open == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: script.open == 0)


async def test_a_server_that_was_away_is_asked_anew_what_it_is() -> None:
    script = Scripted()

    async def hangs_up(asked: Asked) -> web.StreamResponse:
        assert asked.request.transport is not None
        asked.request.transport.abort()
        return web.Response()

    async with ready(script) as backend:
        script.facts["/version"] = {"version": "1.0"}
        assert (await backend.run(a_job())).manifest["version"] == "0.9", "nobody asked"
        script.answer = hangs_up
        with pytest.raises(WorkerFailed, match="it hung up"):
            await backend.run(a_job())
        script.answer = hello
        script.asked.clear()
        answers = await asyncio.gather(*(backend.run(a_job(number)) for number in (1, 2, 3)))
        assert {answer.manifest["version"] for answer in answers} == {"1.0"}
        assert len(script.asked) == 4, "learnt once, answered three times"
        script.answer = hangs_up
        with pytest.raises(WorkerFailed, match="it hung up"):
            await backend.run(a_job())
        script.models = {"data": []}
        with pytest.raises(WorkerFailed, match="has no model 'm'"):
            await backend.run(a_job())


async def test_empty_events_and_odd_ends_are_passed_over() -> None:
    async def odd(asked: Asked) -> web.StreamResponse:
        nothing = event({"choices": None})
        return await asked.stream(b"data: \n\n", nothing, piece("ok", "stop"), b"data: [DONE] \n\n")

    assert (await run_against(odd)).output == b"ok"


async def test_a_busy_server_is_left_alone_as_long_as_it_asks() -> None:
    script = Scripted()
    async with ready(script) as backend:
        script.answer = refusal(503)
        with pytest.raises(WorkerBusy) as busy:
            await backend.run(a_job())
        assert busy.value.retry_after_s is None
        script.answer = refusal(429, **{"Retry-After": "3600"})
        with pytest.raises(WorkerBusy) as busy:
            await backend.run(a_job())
        assert busy.value.retry_after_s == 60.0, "at most a minute"
        script.answer = hello
        script.asked.clear()
        with pytest.raises(WorkerBusy) as busy:
            await backend.run(a_job())
        assert script.asked == []
        assert 0 < (busy.value.retry_after_s or 0) <= 60
        backend._rests_until = time.monotonic()
        assert (await backend.run(a_job())).output == b"Hello"


async def test_a_prompt_is_bad_only_where_not_one_token_of_answer_fits() -> None:
    async def holds_ten(asked: Asked) -> web.StreamResponse:
        """A prompt is as long as its text."""
        prompt = len(asked.body["messages"][-1]["content"])
        if prompt + asked.body["max_tokens"] > 10:
            return web.json_response({"error": CONTEXT}, status=400)
        return await asked.stream(*HELLO[:3], usage(prompt, 1), DONE)

    models = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 10}]}
    script = Scripted(models=models)
    async with ready(script) as backend:
        script.answer = holds_ten
        completion = await backend.run(a_job(1, b"1234567", max_tokens=100))
        assert [asked.body["max_tokens"] for asked in script.asked] == [100, 1, 3]
        assert completion.manifest["sampling"]["max_tokens"] == 3
        with pytest.raises(BadInput, match="more tokens"):
            await backend.run(a_job(1, b"1234567890", max_tokens=1))
    with pytest.raises(WorkerFailed, match="together"):
        await run_against(holds_ten)  # it never told how much fits


@pytest.mark.parametrize("hostile", [b"", b"\xff\xfe\x00"])
async def test_what_is_no_text_is_refused_for_good(hostile: bytes) -> None:
    script = Scripted()
    async with ready(script) as backend:
        with pytest.raises(BadInput):
            await backend.run(a_job(1, hostile))
        assert script.asked == []


def vectors(*rows: list[float]) -> Answer:
    async def answer(asked: Asked) -> web.Response:
        assert asked.body["encoding_format"] == "float"
        assert "max_tokens" not in asked.body
        made = [
            {"index": at, "embedding": rows[at % len(rows)]}
            for at in reversed(range(len(asked.body["input"])))
        ]
        return web.json_response({"data": made, "usage": {"prompt_tokens": 4}})

    return answer


async def test_embeddings_are_encoded_as_those_of_other_back_ends() -> None:
    script = Scripted(vectors([3.0, 4.0], [-1e-9, 2e300]))
    async with ready(script, api="embeddings") as backend:
        completion = await backend.run(a_job(1, json.dumps(["a", "b"]).encode(), max_tokens=5))
        assert completion.output == (
            b'{"model":"on-chain","dimensions":2,'
            b'"embeddings":[[0.600000,0.800000],[0.000000,1.000000]]}'
        )
        assert len(completion.output) <= backend.max_output_bytes
        assert completion.media_type == "application/json"
        assert completion.manifest["prompt_tokens"] == 4
        with pytest.raises(BadInput, match="text 1 is empty"):
            await backend.run(a_job(1, b'["a",""]'))
        for rows, reason in (
            ([0.0, 0.0], "without a direction"),
            ([1.0], "1 dimensions, not 2"),
        ):
            script.answer = vectors(rows)
            with pytest.raises(WorkerFailed, match=reason):
                await backend.run(a_job())
        script.answer = refusal(400, CONTEXT)
        with pytest.raises(WorkerFailed):
            await backend.run(a_job(1, b'["a","b"]'))
        with pytest.raises(BadInput, match="more tokens"):
            await backend.run(a_job(1, b"a"))


async def test_more_texts_than_fit_the_output_are_another_workers() -> None:
    script = Scripted(vectors([0.5] * 40))
    async with ready(script, api="embeddings", max_output_bytes=1_024) as backend:
        with pytest.raises(WorkerFailed, match="max_output_bytes"):
            await backend.run(a_job(1, b'["a","b","c"]'))
        assert script.asked == []
