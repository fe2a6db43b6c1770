"""Sentence embeddings by `wordllama`, whose weights are inside its wheel. Never goes online."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from indexer.errors import OperatorError
from inferd.workers.backends.base import ComputeThreads, StopAsked, prompt_text
from inferd.workers.backends.embeddings import ENCODING, encode_embeddings, most_bytes, texts_of
from inferd.workers.backends.loading import Loading
from inferd.workers.backends.manifest import manifest_of
from inferd.workers.job import BadInput, Completion, Job, WorkerFailed

_DIMENSIONS = 256
_MAX_INPUT_BYTES = 65_536  # a token takes about 3 kB while it is averaged


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
    def max_output_bytes(self) -> int:
        return most_bytes(self._name, _DIMENSIONS)

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
        texts = texts_of(prompt_text(job, _MAX_INPUT_BYTES))
        output, tokens = await self._threads.run(lambda stop: self._embed(texts, stop))
        return Completion(
            output=output,
            media_type="application/json",
            manifest=manifest_of(
                model=self._name,
                weights="l2_supercat_256",
                quantisation="F32",
                backend="wordllama",
                version=self._version,
                sampling={},
                prompt_tokens=tokens,
                completion_tokens=0,
                finish_reason="stop",
                encoding=ENCODING,
            ),
        )

    async def close(self) -> None:
        await self._threads.close()
        await self.unload()

    async def _start(self) -> None:
        began_s = time.perf_counter()
        self._model, self._version = await asyncio.to_thread(_load)
        self._load_ms = 1000 * (time.perf_counter() - began_s)

    def _embed(self, texts: list[str], stop: StopAsked) -> tuple[bytes, int]:
        vectors: list[list[float]] = []
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
            vectors.append(vector.tolist())
        return encode_embeddings(self._name, _DIMENSIONS, vectors), tokens


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
