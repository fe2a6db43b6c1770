"""A small deterministic text model without dependencies: a Markov chain over the prompt's words.

The chain is learnt from the prompt and a short built-in text; each draw comes from a stream keyed
by keccak256 of the prompt, so that every byte of the prompt changes the output.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from eth_utils.crypto import keccak

from inferd.workers.backends.base import ComputeThreads, StopAsked, prompt_text
from inferd.workers.backends.manifest import manifest_of
from inferd.workers.job import Completion, Job, WorkerFailed

_DEFAULT_TOKENS = 48
_MAX_TOKENS = 512
_MAX_INPUT_BYTES = 4_000_000
_POLL_S = 0.02
_LONGEST_WORD = 32

_PRIMER_TEXT = (
    "a chain of blocks keeps every promise that was made to it and the answer to a question is "
    "worth the work it took while the network listens for the next word and a machine that learns "
    "from what it reads will say it again in another order because order is all it knows of us so "
    "ask plainly and wait a little for the light on the water moves as slowly as the price of gas "
    "in winter and then it turns"
)


class MarkovBackend:
    """One token is one word; output and its length follow from prompt and max_tokens alone."""

    def __init__(self, *, name: str = "markov", latency_s: float = 0.0, threads: int = 4) -> None:
        """`latency_s` is slept before each answer, to stand for a slower model in load tests."""
        self._name = name
        self._latency_s = latency_s
        self._threads = ComputeThreads(name, threads)

    @property
    def name(self) -> str:
        return self._name

    @property
    def prior_ms(self) -> float:
        return 5.0 + 1000 * self._latency_s

    @property
    def max_output_bytes(self) -> int:
        return _MAX_TOKENS * (4 * _LONGEST_WORD + 1)

    @property
    def loaded(self) -> bool:
        return True

    @property
    def load_ms(self) -> float:
        return 0.0

    async def start(self) -> None:
        """There is nothing to load."""

    async def unload(self) -> None:
        """Nor to free."""

    async def run(self, job: Job) -> Completion:
        text = prompt_text(job, _MAX_INPUT_BYTES)
        count = min(job.max_tokens or _DEFAULT_TOKENS, _MAX_TOKENS)
        words = await self._threads.run(lambda stop: self._generate(text, count, stop))
        return Completion(
            output=" ".join(words).encode(),
            media_type="text/plain; charset=utf-8",
            manifest=manifest_of(
                model=self._name,
                weights="none",
                backend="inferd-markov",
                version="1",
                sampling={"order": 1, "seed": "keccak256(input)", "max_tokens": count},
                prompt_tokens=len(_words(text)),
                completion_tokens=len(words),
                finish_reason="length",
            ),
        )

    async def close(self) -> None:
        await self._threads.close()

    def _generate(self, text: str, count: int, stop: StopAsked) -> list[str]:
        until = time.monotonic() + self._latency_s
        while (left := until - time.monotonic()) > 0 and not stop():
            time.sleep(min(left, _POLL_S))
        draws = _stream(text.encode())
        followers: dict[str, list[str]] = {}
        vocabulary: list[str] = []
        for words in (_words(_PRIMER_TEXT), _words(text)):
            vocabulary += words
            for word, follower in itertools.pairwise(words):
                followers.setdefault(word, []).append(follower)
        produced = [vocabulary[next(draws) % len(vocabulary)]]
        while len(produced) < count:
            if stop():
                raise WorkerFailed("stopped")
            known = followers.get(produced[-1])
            # A jump now and then leaves loops, and spreads the prompt's hash over the whole text.
            source = vocabulary if known is None or next(draws) % 4 == 0 else known
            produced.append(source[next(draws) % len(source)])
        return produced


def _words(text: str) -> list[str]:
    """Cut at white space, and within overlong words, whose repetition would make huge outputs."""
    return [
        word[at : at + _LONGEST_WORD]
        for word in text.split()
        for at in range(0, len(word), _LONGEST_WORD)
    ]


def _stream(key: bytes) -> Iterator[int]:
    """Endless 32-bit numbers from keccak256; the same on every version of Python."""
    state = keccak(key)
    while True:
        for at in range(0, 32, 4):
            yield int.from_bytes(state[at : at + 4], "big")
        state = keccak(state)
