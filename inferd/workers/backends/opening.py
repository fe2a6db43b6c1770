"""From a choice to a back end that is ready to compute."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from indexer.threads import in_thread
from inferd.workers.backends.base import Backend
from inferd.workers.backends.choice import BackendChoice, LlamaCppOptions
from inferd.workers.backends.command import CommandBackend
from inferd.workers.backends.llamacpp import LlamaCppBackend
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.backends.memory import ModelMemory
from inferd.workers.backends.openai.backend import OpenAIBackend
from inferd.workers.backends.resting import Resting
from inferd.workers.backends.wordllama import WordLlamaBackend
from inferd.workers.model_files import ModelFile, own_model_file, smollm2

_MB = 1 << 20
_WORDLLAMA_MB = 64


@dataclass(frozen=True, slots=True)
class Stock:
    """The models of one worker."""

    backends: tuple[Backend, ...]
    """Each was loaded once, or its server found; those for which there is no room are not now."""
    memory: ModelMemory = field(default_factory=ModelMemory)


@contextlib.asynccontextmanager
async def opened(choice: BackendChoice, *, cache_dir: Path) -> AsyncIterator[Backend]:
    """The chosen back end, its model loaded or its server found; freed at the end.

    Raises the OperatorErrors of its kind: ModelFileUnavailable, TextModelUnusable,
    ServerUnreachable, CommandUnusable and the others of their modules.
    """
    async with stocked([choice], memory_mb=0, cache_dir=cache_dir) as stock:
        yield stock.backends[0]


@contextlib.asynccontextmanager
async def stocked(
    choices: Sequence[BackendChoice], *, memory_mb: int, cache_dir: Path
) -> AsyncIterator[Stock]:
    """All of one worker, freed at the end. Several share `memory_mb`; one alone has what it needs.

    Raises ModelTooLarge, and what `opened` raises.
    """
    async with contextlib.AsyncExitStack() as stack:
        backends: list[Backend] = []
        sizes_mb: dict[str, int] = {}
        for choice in choices:
            backend, size_mb = await _made(choice, cache_dir)
            if choice.unload_after_s:
                backend = Resting(backend, after_s=choice.unload_after_s)
            stack.push_async_callback(backend.close)
            backends.append(backend)
            sizes_mb[backend.name] = choice.resident_mb or size_mb
        memory = ModelMemory(memory_mb if len(backends) > 1 else None, sizes_mb)
        # The first is the one that is surely in memory afterwards.
        for backend in reversed(backends):
            async with memory.holding(backend):
                await backend.start()
        yield Stock(tuple(backends), memory)


async def _made(choice: BackendChoice, cache_dir: Path) -> tuple[Backend, int]:
    """With the MB that its model takes in this process, as far as it is known."""
    if choice.openai is not None:
        return OpenAIBackend(choice.openai, name=choice.model), 0
    if choice.command is not None:
        return CommandBackend(choice.command, name=choice.model, threads=choice.slots), 0
    match choice.backend:
        case "wordllama":
            return WordLlamaBackend(name=choice.model, threads=choice.slots), _WORDLLAMA_MB
        case "markov":
            return MarkovBackend(name=choice.model, threads=choice.slots), 0
    options = choice.llamacpp or LlamaCppOptions()
    file = await _model_file(options, cache_dir)
    backend = LlamaCppBackend(
        file,
        name=choice.model,
        slots=choice.slots,
        threads=options.threads or None,
        context_tokens=options.context_tokens,
        default_tokens=options.default_tokens,
        max_tokens=options.max_tokens,
    )
    return backend, -(-file.size_bytes // _MB)


async def _model_file(options: LlamaCppOptions, cache_dir: Path) -> ModelFile:
    stop = threading.Event()
    file = options.file
    if file is not None:
        return await in_thread(lambda: own_model_file(file, stop), stop=stop)
    return await in_thread(lambda: smollm2(cache_dir, stop), stop=stop)
