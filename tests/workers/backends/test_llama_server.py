"""Somebody else's server for real: llama.cpp's, over HTTP, with SmolLM2. Never its speed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from inferd.workers.backends.check import check_backend
from inferd.workers.backends.openai.backend import OpenAIBackend
from inferd.workers.backends.openai.errors import ApiKeyRefused, ModelMissing
from inferd.workers.backends.opening import opened
from inferd.workers.job import BadInput, WorkerFailed
from inferd.workers.model_files import ModelFile
from tests.workers.backends.llama import Llama, llama
from tests.workers.support import a_job

LONG = b"Tell me a very long story."


@pytest.fixture(scope="module")
def server(smollm2: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    with llama(smollm2, tmp_path_factory.mktemp("llama"), "chat") as started:
        yield started


@pytest.fixture
async def backend(server: Llama, tmp_path: Path) -> AsyncIterator[OpenAIBackend]:
    async with opened(server.choice(), cache_dir=tmp_path) as made:
        assert isinstance(made, OpenAIBackend)
        yield made


async def test_it_answers_the_same_again_and_says_how_it_was_made(
    backend: OpenAIBackend, smollm2: ModelFile
) -> None:
    job = a_job(1, b"What is the capital of France?", max_tokens=8)
    first = await backend.run(job)
    assert b"Paris" in first.output
    assert await backend.run(job) == first
    manifest = first.manifest
    assert manifest["backend"] == "llama.cpp server"
    assert manifest["weights"] == "SmolLM2"
    assert manifest["quantisation"] == smollm2.quantisation
    assert manifest["version"]
    assert 0 < manifest["completion_tokens"] <= 8
    assert manifest["prompt_tokens"] > 8
    assert manifest["finish_reason"] in ("length", "stop")
    assert manifest["tokens_counted_by"] == "server"
    assert manifest["sampling"] == {
        "temperature": 0,
        "seed": job.seed,
        "max_tokens": 8,
        "cache_prompt": False,
    }


async def test_the_check_measures_it(backend: OpenAIBackend) -> None:
    report = await check_backend(backend)
    assert report.deterministic
    assert report.answer_tokens
    assert report.tokens_per_s
    assert report.memory_mb
    assert report.memory_mb > 50
    assert report.memory_of == "the model at its server"
    assert json.loads(json.dumps(report.as_json()))["weights"] == "SmolLM2"
    assert report.server_slots == 2
    assert any("Q4_1" in line for line in report.lines())


async def test_a_prompt_that_is_too_long_is_bad(backend: OpenAIBackend) -> None:
    with pytest.raises(BadInput):
        await backend.run(a_job(1, b"word " * 600))


async def test_cancelling_and_the_deadline_free_its_slot(
    server: Llama, backend: OpenAIBackend
) -> None:
    running = asyncio.create_task(backend.run(a_job(1, LONG, max_tokens=400)))
    await server.until_slots(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await server.until_slots(0)
    with pytest.raises(WorkerFailed, match="no answer in time"):
        await backend.run(a_job(2, LONG, max_tokens=400, deadline_in_s=1.2))
    await server.until_slots(0)


async def test_completions(server: Llama, tmp_path: Path) -> None:
    async with opened(server.choice(api="completions"), cache_dir=tmp_path) as backend:
        completion = await backend.run(a_job(1, b"The capital of France is", max_tokens=3))
    assert b"Paris" in completion.output
    assert completion.manifest["api"] == "completions"


async def test_another_key_and_another_model_are_told_at_the_start(
    server: Llama, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("other")
    with pytest.raises(ApiKeyRefused):
        async with opened(server.choice(api_key_file=tmp_path / "key"), cache_dir=tmp_path):
            pass
    with pytest.raises(ModelMissing, match="'SmolLM2'"):
        async with opened(server.choice(model="gpt-5"), cache_dir=tmp_path):
            pass


async def test_embeddings(smollm2: ModelFile, tmp_path: Path) -> None:
    with llama(smollm2, tmp_path, "embeddings") as server:
        choice = server.choice(api="embeddings")
        async with opened(choice, cache_dir=tmp_path) as backend:
            texts = json.dumps(["a cat", "stock markets"]).encode()
            completion = await backend.run(a_job(1, texts))
            assert await backend.run(a_job(1, texts)) == completion
            told = json.loads(completion.output)
            assert told["model"] == "smollm2"
            assert told["dimensions"] == 576
            for vector in told["embeddings"]:
                assert sum(value**2 for value in vector) == pytest.approx(1, abs=1e-3)
            # It says HTTP 500 to what does not fit its batch: nothing to blame the text for.
            with pytest.raises(WorkerFailed, match="HTTP 500"):
                await backend.run(a_job(2, b"word " * 2_000))
