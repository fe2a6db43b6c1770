"""Sentence embeddings by `wordllama`, whose weights are inside its wheel. Never goes online.

Input: UTF-8. A JSON array of strings is a list of texts, anything else is one text.
Output: canonical JSON without spaces,
  {"model":NAME,"dimensions":256,"embeddings":[[...],...]}
one unit vector per text, each component with exactly six decimals and never "-0.000000". Six
decimals absorb the last bits in which processors differ.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import time
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from indexer.errors import OperatorError
from inferd.workers.backends.base import ComputeThreads, StopAsked, prompt_text
from inferd.workers.backends.loading import Loading
from inferd.workers.job import BadInput, Completion, Job, WorkerFailed

_DIMENSIONS = 256
_MAX_INPUT_BYTES = 65_536  # a token takes about 3 kB while it is averaged
_MAX_TEXTS = 1_024


class EmbeddingModelMissing(OperatorError):
    """`wordllama` is not installed, or without its weights."""

    code: ClassVar[str] = "embedding_model_missing"


class WordLlamaBackend:
    """256 dimensions, means of token vectors; about 50 microseconds per short text."""

    def __init__(self, *, name: str = "wordllama", threads: int = 2) -> None:
        self._name = name
        self._threads = ComputeThreads(name, threads)
        self._model: Any = None
        self._version = ""
        self._load_ms = 0.0
        self._loading = Loading(self._start)

    @property
    def name(self) -> str:
        return self._name

    @property
    def prior_ms(self) -> float:
        return 20.0

    @property
    def loaded(self) -> bool:
        return self._model is not None

    @property
    def load_ms(self) -> float:
        return self._load_ms

    async def start(self) -> None:
        """Raises EmbeddingModelMissing."""
        if self._model is None:
            await self._loading.join()

    async def unload(self) -> None:
        await self._loading.settle()
        self._model = None

    async def run(self, job: Job) -> Completion:
        if self._model is None:
            raise WorkerFailed("the embedding model is not loaded")
        texts = _texts(prompt_text(job, _MAX_INPUT_BYTES))
        output, tokens = await self._threads.run(lambda stop: self._embed(texts, stop))
        return Completion(
            output=output,
            media_type="application/json",
            manifest={
                "model": self._name,
                "weights": "l2_supercat_256",
                "backend": f"wordllama {self._version}",
                "encoding": "unit vectors, six decimals",
                "prompt_tokens": tokens,
                "completion_tokens": 0,
                "finish_reason": "stop",
            },
        )

    async def close(self) -> None:
        await self._threads.close()
        await self.unload()

    async def _start(self) -> None:
        began_s = time.perf_counter()
        self._model, self._version = await asyncio.to_thread(_load)
        self._load_ms = 1000 * (time.perf_counter() - began_s)

    def _embed(self, texts: list[str], stop: StopAsked) -> tuple[bytes, int]:
        rows: list[str] = []
        tokens = 0
        for at, text in enumerate(texts):
            if stop():
                raise WorkerFailed("stopped")
            # One text at a time: a batch is padded to its longest text, which one hostile text
            # among many would turn into gigabytes.
            encoded = self._model.tokenize(text)
            count = len(encoded[0].ids)
            if count == 0:
                raise BadInput(f"text {at} is empty")
            tokens += count
            vector = self._model.embed([text], norm=True, batch_size=1)[0]
            if not np.isfinite(vector).all():
                raise BadInput(f"text {at} has no direction")
            rows.append(",".join(_fixed(value) for value in vector.tolist()))
        body = "],[".join(rows)
        name = json.dumps(self._name)
        text_out = f'{{"model":{name},"dimensions":{_DIMENSIONS},"embeddings":[[{body}]]}}'
        return text_out.encode(), tokens


def _fixed(value: float) -> str:
    written = f"{value:.6f}"
    return "0.000000" if written == "-0.000000" else written


def _texts(text: str) -> list[str]:
    try:
        texts = msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, RecursionError):
        return [text]
    if not 1 <= len(texts) <= _MAX_TEXTS:
        raise BadInput(f"{len(texts)} texts; 1 to {_MAX_TEXTS} are embedded at once")
    return texts


def _load() -> tuple[Any, str]:
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise EmbeddingModelMissing(
            "the Python package `wordllama` is not installed",
            help_text="pip install 'inferd[embedded]'",
        )
    # Importing wordllama configures the root logger; the daemon's own set-up has to survive it.
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    import wordllama  # noqa: PLC0415

    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
    root.setLevel(level)
    try:
        model = wordllama.WordLlama.load(
            cache_dir=Path(spec.origin).parent, dim=_DIMENSIONS, disable_download=True
        )
    except FileNotFoundError as error:
        raise EmbeddingModelMissing(
            "the installed `wordllama` has no weights inside",
            help_text="pip install --force-reinstall 'inferd[embedded]'",
        ) from error
    return model, str(wordllama.__version__)
