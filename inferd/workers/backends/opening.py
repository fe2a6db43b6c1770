"""From a choice to a back end that is ready to compute."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from indexer.threads import in_thread
from inferd.workers.backends.base import Backend
from inferd.workers.backends.choice import BackendChoice, LlamaCppOptions
from inferd.workers.backends.command import CommandBackend
from inferd.workers.backends.llamacpp import LlamaCppBackend
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.backends.openai.backend import OpenAIBackend
from inferd.workers.backends.resting import Resting
from inferd.workers.backends.wordllama import WordLlamaBackend
from inferd.workers.model_files import ModelFile, own_model_file, smollm2


@contextlib.asynccontextmanager
async def opened(choice: BackendChoice, *, cache_dir: Path) -> AsyncIterator[Backend]:
    """The chosen back end, its model loaded or its server found; freed at the end.

    Raises the OperatorErrors of its kind: ModelFileUnavailable, TextModelUnusable,
    ServerUnreachable, CommandUnusable and the others of their modules.
    """
    backend = await _made(choice, cache_dir)
    if choice.unload_after_s:
        backend = Resting(backend, after_s=choice.unload_after_s)
    try:
        await backend.start()
        yield backend
    finally:
        await backend.close()


async def _made(choice: BackendChoice, cache_dir: Path) -> Backend:
    if choice.openai is not None:
        return OpenAIBackend(choice.openai, name=choice.model)
    if choice.command is not None:
        return CommandBackend(choice.command, name=choice.model, threads=choice.slots)
    match choice.backend:
        case "wordllama":
            return WordLlamaBackend(name=choice.model, threads=choice.slots)
        case "markov":
            return MarkovBackend(name=choice.model, threads=choice.slots)
    options = choice.llamacpp or LlamaCppOptions()
    return LlamaCppBackend(
        await _model_file(options, cache_dir),
        name=choice.model,
        slots=choice.slots,
        threads=options.threads or None,
        context_tokens=options.context_tokens,
        default_tokens=options.default_tokens,
        max_tokens=options.max_tokens,
    )


async def _model_file(options: LlamaCppOptions, cache_dir: Path) -> ModelFile:
    stop = threading.Event()
    file = options.file
    if file is not None:
        return await in_thread(lambda: own_model_file(file, stop), stop=stop)
    return await in_thread(lambda: smollm2(cache_dir, stop), stop=stop)
