"""The built-in models: outputs follow from the prompt, and bad prompts are refused clearly."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferd.workers.backends.base import Backend
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.backends.wordllama import WordLlamaBackend
from inferd.workers.job import BadInput, Completion
from tests.workers.support import a_job


@pytest.fixture(params=[MarkovBackend, WordLlamaBackend])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    made: Callable[[], Backend] = request.param
    started = made()
    await started.start()
    yield started
    await started.close()


@pytest.fixture
async def markov() -> AsyncIterator[MarkovBackend]:
    made = MarkovBackend()
    yield made
    await made.close()


@pytest.fixture
async def wordllama() -> AsyncIterator[WordLlamaBackend]:
    made = WordLlamaBackend()
    await made.start()
    yield made
    await made.close()


async def test_same_prompt_same_bytes_other_prompt_other_bytes(backend: Backend) -> None:
    first = await backend.run(a_job(1, b"The cat sat on the mat."))
    again = await backend.run(a_job(2, b"The cat sat on the mat."))
    other = await backend.run(a_job(1, b"The dog sat on the mat."))
    assert first == again
    assert first.output != other.output
    assert first.output
    json.dumps(first.manifest)
    assert first.manifest["model"] == backend.name


@pytest.mark.parametrize("hostile", [b"", b"\xff\xfe\x00", b"ok \xc3\x28", b"\xed\xa0\x80"])
async def test_what_is_no_text_is_refused_for_good(backend: Backend, hostile: bytes) -> None:
    with pytest.raises(BadInput) as refused:
        await backend.run(a_job(1, hostile))
    assert refused.value.reason


async def test_nul_characters_and_odd_text_are_computed(backend: Backend) -> None:
    for text in (b"a\x00b", "\u202e\U0001f600 \ufffd".encode(), b"\x00", b'["unclosed', b"[1]"):
        assert (await backend.run(a_job(1, text))).output


async def test_a_megabyte_of_prompt_has_a_clear_outcome(backend: Backend) -> None:
    for text in (b"x" * 1_000_000, b"word " * 200_000):
        try:
            completion = await backend.run(a_job(1, text))
        except BadInput as refused:
            assert "bytes" in refused.reason
        else:
            assert len(completion.output) < 100_000


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.text(min_size=1), data=st.data())
async def test_markov_depends_on_every_byte(
    markov: MarkovBackend, text: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.characters(codec="utf-8").filter(lambda c: c != text[at]))
    changed = text[:at] + letter + text[at + 1 :]
    outputs = [
        (await markov.run(a_job(1, prompt.encode(errors="replace")))).output
        for prompt in (text, changed)
    ]
    assert outputs[0] != outputs[1]


async def test_markov_honours_max_tokens(markov: MarkovBackend) -> None:
    for asked, given_ in ((1, 1), (7, 7), (0, 48), (10**9, 512)):
        completion = await markov.run(a_job(1, b"one two three", max_tokens=asked))
        assert completion.manifest["completion_tokens"] == given_
        assert len(completion.output.split(b" ")) == given_


async def test_a_cancelled_computation_frees_its_thread() -> None:
    slow = MarkovBackend(latency_s=60, threads=1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(slow.run(a_job(1)), 0.1)
    started = time.monotonic()
    await slow.close()
    assert time.monotonic() - started < 10


def vectors(completion: Completion) -> np.ndarray:
    return np.array(json.loads(completion.output)["embeddings"])


async def test_embeddings_mean_something(wordllama: WordLlamaBackend) -> None:
    texts = ["a dog ran in the park", "a puppy played on the lawn", "interest rates rose again"]
    completion = await wordllama.run(a_job(1, json.dumps(texts).encode()))
    dog, puppy, rates = vectors(completion)
    assert np.linalg.norm(dog) == pytest.approx(1, abs=1e-4)
    assert dog @ puppy > dog @ rates + 0.2
    alone = await wordllama.run(a_job(1, texts[0].encode()))
    assert (vectors(alone)[0] == dog).all(), "a text's vector does not depend on its neighbours"


async def test_the_encoding_is_canonical(wordllama: WordLlamaBackend) -> None:
    completion = await wordllama.run(a_job(1, b"hello"))
    head = b'{"model":"wordllama","dimensions":256,"embeddings":[['
    assert completion.output.startswith(head)
    assert completion.output.endswith(b"]]}")
    numbers = completion.output[len(head) : -3].split(b",")
    assert len(numbers) == 256
    assert all(len(number.split(b".")[1]) == 6 for number in numbers)
    assert b"-0.000000" not in numbers
    assert completion.media_type == "application/json"


@pytest.mark.parametrize("hostile", [b"[]", b'["a",""]', json.dumps(["a"] * 1025).encode()])
async def test_impossible_lists_are_refused(wordllama: WordLlamaBackend, hostile: bytes) -> None:
    with pytest.raises(BadInput):
        await wordllama.run(a_job(1, hostile))


async def test_one_long_text_among_many_does_not_blow_up(wordllama: WordLlamaBackend) -> None:
    texts = ["word " * 12_000] + ["a"] * 63
    assert vectors(await wordllama.run(a_job(1, json.dumps(texts).encode()))).shape == (64, 256)


async def test_loading_embeddings_leaves_the_root_logger_alone() -> None:
    script = """
import asyncio, logging, socket
def offline(*a, **k): raise AssertionError("went online")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = offline
from inferd.workers.backends.wordllama import WordLlamaBackend
asyncio.run(WordLlamaBackend().start())
assert not logging.getLogger().handlers and logging.getLogger().level == logging.WARNING
"""
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    assert logging.getLogger("workers").level == logging.NOTSET
