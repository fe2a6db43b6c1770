"""What is found out of a back end before its worker offers it."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from indexer.errors import ExitCode
from inferd.workers.backends.check import (
    BackendTooSlow,
    ProbeBusy,
    ProbeFailed,
    check_backend,
    probe_job,
)
from inferd.workers.backends.manifest import manifest_of
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.job import Completion, Job, JobError, WorkerBusy, WorkerFailed
from tests.workers.support import Scripted


class Answering(Scripted):
    async def run(self, job: Job) -> Completion:
        manifest = manifest_of(
            model=self.name,
            weights="w",
            backend="scripted",
            version="1",
            sampling={},
            prompt_tokens=None,
            completion_tokens=None,
            finish_reason="stop",
        )
        return Completion(await self.answer(job), "text/plain", manifest)


async def test_a_model_that_answers_is_measured() -> None:
    backend = MarkovBackend(name="toy")
    report = await check_backend(backend)
    await backend.close()
    assert report.deterministic
    assert report.answer_tokens == 32
    assert report.tokens_per_s
    assert report.memory_mb
    assert report.as_json()["model"] == "toy"
    assert report.lines()[-1] == "the same question gave the same bytes twice"


async def test_that_it_answers_differently_is_recorded() -> None:
    numbers = itertools.count()

    async def counts(_: Job) -> bytes:
        return str(next(numbers)).encode()

    report = await check_backend(Answering(counts))
    assert not report.deterministic
    assert report.tokens_per_s is None
    assert "two different answers" in report.lines()[-1]


@pytest.mark.parametrize(
    ("error", "kind", "exit_code"),
    [
        (WorkerFailed("it is away"), ProbeFailed, ExitCode.CONFIGURATION),
        (WorkerBusy("it is full"), ProbeBusy, ExitCode.TRY_AGAIN),
    ],
)
async def test_one_that_does_not_answer_is_not_offered(
    error: JobError, kind: Any, exit_code: ExitCode
) -> None:
    async def fails(_: Job) -> bytes:
        raise error

    with pytest.raises(kind, match=error.reason) as caught:
        await check_backend(Answering(fails))
    assert caught.value.exit_code is exit_code
    assert caught.value.help_text


async def test_nor_one_that_is_empty_or_too_slow() -> None:
    async def empty(_: Job) -> bytes:
        return b""

    async def sleeps(_: Job) -> bytes:
        await asyncio.sleep(600)
        return b""

    with pytest.raises(ProbeFailed, match="empty"):
        await check_backend(Answering(empty))
    with pytest.raises(BackendTooSlow) as caught:
        await check_backend(Answering(sleeps), within_s=0.01)
    assert caught.value.exit_code is ExitCode.NOT_AS_PROMISED


def test_the_question_belongs_to_no_request() -> None:
    assert probe_job("m", 1.0).request_id == 0
