"""Text generation by llama.cpp inside this process, through the prebuilt `xllamacpp`.

One model instance with one slot per concurrent request. Sampling is greedy with a mild repetition
penalty and no prompt cache, so that a prompt gives the same bytes again on the same build, where it
is computed alone: slots that compute at the same time share a batch, which changes last bits.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

from indexer.errors import OperatorError
from inferd.workers.backends.base import ComputeThreads, StopAsked, prompt_text
from inferd.workers.backends.loading import Loading
from inferd.workers.backends.manifest import hash_of_text, manifest_of
from inferd.workers.job import BadInput, Completion, Job, WorkerFailed
from inferd.workers.model_files import ModelFile

_SYSTEM_PROMPT = "You are a helpful assistant."
_REPEAT_PENALTY = "1.1"  # without it a model this small falls into loops
_BYTES_PER_TOKEN = 32  # more than any tokenizer's mean; keeps absurd inputs from being tokenized
_LONGEST_TOKEN = 256  # in bytes; the longest are runs of spaces
_READ_AT_ONCE = 8 << 20
_BATCH_TOKENS = 128  # reading the prompt can be interrupted between two batches


class TextModelUnusable(OperatorError):
    """llama.cpp is not installed, or cannot load the model file."""

    code: ClassVar[str] = "text_model_unusable"


@dataclass(slots=True)
class _Answer:
    """What the stream of one completion has told so far."""

    parts: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: dict[str, Any] | None = None

    def take(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            self.error = chunk["error"]
            return
        for choice in chunk.get("choices", ()):
            self.parts.append(choice["delta"].get("content") or "")
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        usage = chunk.get("usage")
        if usage:
            self.prompt_tokens = usage["prompt_tokens"]
            self.completion_tokens = usage["completion_tokens"]


class LlamaCppBackend:
    """A chat model. The input is one user message; the model's own chat template is applied."""

    def __init__(
        self,
        file: ModelFile,
        *,
        name: str,
        slots: int = 2,
        threads: int | None = None,
        context_tokens: int = 2048,
        default_tokens: int = 128,
        max_tokens: int = 512,
    ) -> None:
        """`context_tokens` is what one request may hold, prompt and answer together.

        `threads` defaults to half the usable cores: llama.cpp's threads wait for each other by
        spinning, which costs far more than it gains as soon as something else needs a core.
        """
        self._file = file
        self._name = name
        self._slots = slots
        self._cpu_threads = threads or max(1, min(8, len(os.sched_getaffinity(0)) // 2))
        self._context_tokens = context_tokens
        self._default_tokens = default_tokens
        self._max_tokens = max_tokens
        self._threads = ComputeThreads(name, slots)
        self._server: Any = None
        self._version = ""
        self._load_ms = 0.0
        self._loading = Loading(self._start)
        self._closing = threading.Event()

    @property
    def name(self) -> str:
        return self._name

    @property
    def prior_ms(self) -> float:
        return 4000.0

    @property
    def max_output_bytes(self) -> int:
        return self._max_tokens * _LONGEST_TOKEN

    @property
    def loaded(self) -> bool:
        return self._server is not None

    @property
    def load_ms(self) -> float:
        return self._load_ms

    async def start(self) -> None:
        """Raises TextModelUnusable."""
        if self._server is None:
            await self._loading.join()

    async def unload(self) -> None:
        await self._loading.settle()
        await self._threads.settle()
        # This joins llama.cpp's own threads, some 50 ms. In a thread it would hold up the loop as
        # well: xllamacpp keeps the interpreter's lock.
        self._server = None

    async def run(self, job: Job) -> Completion:
        if self._server is None:
            raise WorkerFailed("the text model is not loaded")
        text = prompt_text(job, self._context_tokens * _BYTES_PER_TOKEN)
        max_tokens = min(job.max_tokens or self._default_tokens, self._max_tokens)
        sampling = {
            "temperature": 0,
            "seed": job.seed,
            "repeat_penalty": float(_REPEAT_PENALTY),
            "max_tokens": max_tokens,
        }
        answer = await self._threads.run(lambda stop: self._complete(text, sampling, stop))
        output = "".join(answer.parts).encode(errors="replace")
        if len(output) > self.max_output_bytes:
            raise WorkerFailed(f"the answer has {len(output)} bytes, more than its tokens can have")
        return Completion(
            output=output,
            media_type="text/plain; charset=utf-8",
            manifest=manifest_of(
                model=self._name,
                weights=self._file.weights,
                quantisation=self._file.quantisation,
                backend="llama.cpp, xllamacpp",
                version=self._version,
                sampling={**sampling, "repeat_penalty": _REPEAT_PENALTY},
                prompt_tokens=answer.prompt_tokens,
                completion_tokens=answer.completion_tokens,
                finish_reason=answer.finish_reason or "",
                file_sha256=self._file.sha256,
                system_prompt_sha256=hash_of_text(_SYSTEM_PROMPT),
            ),
        )

    async def close(self) -> None:
        self._closing.set()
        await self._threads.close()
        await self.unload()

    async def _start(self) -> None:
        began_s = time.perf_counter()
        self._server, self._version = await asyncio.to_thread(self._load)
        self._load_ms = 1000 * (time.perf_counter() - began_s)

    def _load(self) -> tuple[Any, str]:
        if importlib.util.find_spec("xllamacpp") is None:
            raise TextModelUnusable(
                "the Python package `xllamacpp` is not installed",
                help_text="pip install 'inferd[embedded]'",
            )
        import xllamacpp  # noqa: PLC0415

        params = xllamacpp.CommonParams()
        params.model.path = str(self._file.path)
        params.n_parallel = self._slots
        params.n_ctx = self._context_tokens * self._slots
        params.n_batch = params.n_ubatch = _BATCH_TOKENS
        params.cpuparams.n_threads = self._cpu_threads
        params.cpuparams_batch.n_threads = self._cpu_threads
        params.cpuparams.poll = params.cpuparams_batch.poll = 0
        params.cache_ram_mib = 0
        # A mapped file is read as it is by then: overwritten, it would give other answers under the
        # hash of the old one, and cut shorter, it would kill this process by SIGBUS.
        params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
        params.verbosity = -1
        params.ui = False
        params.endpoint_metrics = True
        # It also listens on a free loopback port; without this key others on the machine could
        # use it.
        params.api_keys = [secrets.token_hex(16)]
        try:
            if self._file.has_changed():
                raise self._another_file()
            self._read_through()
            server = xllamacpp.Server(params)
            # Its loop answers this. Dropped before that has begun, it would never end, and as it
            # keeps the interpreter's lock, no thread of this process would go on.
            server.handle_metrics()
            if self._file.has_changed():
                del server  # not to stay in the frame that the exception keeps
                raise self._another_file()
        except (RuntimeError, OSError) as error:
            raise TextModelUnusable(
                f"llama.cpp cannot load {self._file.path}: {error}",
                help_text="check that it is a GGUF file and that there is memory for it",
            ) from error
        return server, str(xllamacpp.__version__)

    def _read_through(self) -> None:
        """Into the system's cache: xllamacpp keeps the interpreter's lock while it loads, and with
        a slow disk this whole process would stop for as long."""
        with self._file.path.open("rb", buffering=0) as file:
            while file.read(_READ_AT_ONCE):
                if self._closing.is_set():
                    raise TextModelUnusable(
                        f"the load of {self._file.path} was cut short",
                        help_text="the worker was told to end: start it again",
                    )

    def _another_file(self) -> TextModelUnusable:
        return TextModelUnusable(
            f"{self._file.path} is another file than the worker started with",
            help_text="restart the worker: its results name the file's hash",
        )

    def _complete(self, text: str, sampling: dict[str, Any], stop: StopAsked) -> _Answer:
        answer = _Answer()

        def on_chunk(chunk: dict[str, Any]) -> bool:
            answer.take(chunk)
            return stop()

        if stop():
            raise WorkerFailed("stopped")
        # No frame holds the server: whoever keeps an exception keeps its frames, and so the model.
        self._server.handle_chat_completions(
            {
                "messages": [
                    {"role": "system", "content": _SYSTEM_PROMPT},
                    {"role": "user", "content": text},
                ],
                "stream": True,
                "stream_options": {"include_usage": True},
                "return_progress": True,  # a chunk per batch of the prompt: a chance to stop
                "cache_prompt": False,
                **sampling,
            },
            on_chunk,
        )
        if answer.error is not None:
            if answer.error.get("type") == "exceed_context_size_error":
                tokens, room = answer.error.get("n_prompt_tokens"), answer.error.get("n_ctx")
                raise BadInput(f"the prompt has {tokens} tokens, the model reads at most {room}")
            raise WorkerFailed(f"llama.cpp answered with error {answer.error.get('code')}")
        # xllamacpp ends the stream without a word when a callback fails or a chunk cannot be read.
        if answer.finish_reason is None:
            raise WorkerFailed("stopped" if stop() else "llama.cpp ended in mid-answer")
        return answer
