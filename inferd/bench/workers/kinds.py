"""How a worker of the bench does its work, well or badly: back ends of agents."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, field
from enum import StrEnum

from inferd.workers.backends.base import Backend
from inferd.workers.backends.llamacpp import LlamaCppBackend
from inferd.workers.job import Completion, Job
from inferd.workers.model_files import ModelFile

MODEL = "smollm2-135m"
SLOW_S = 1.5
"""What a slow worker takes longer for each answer."""
_LIES_AFTER_S = 0.05
_DIES_AFTER_S = 0.05
_CONTEXT_TOKENS = 512


class Kind(StrEnum):
    GOOD = "good"
    """SmolLM2, as fast as it goes."""
    SLOW = "slow"
    """The same, later."""
    LIAR = "liar"
    """Another text for each request, signed as it should be."""
    CRASHES = "crashes"
    """Its process dies by SIGKILL in each job."""
    HANGS = "hangs"
    """Takes each job and never ends it."""


HONEST = (Kind.GOOD, Kind.SLOW)


def backend_of(kind: Kind, model: ModelFile) -> Backend:
    """One that is not started yet."""
    match kind:
        case Kind.GOOD | Kind.SLOW:
            late_s = SLOW_S if kind is Kind.SLOW else 0.0
            return _Late(
                model, name=MODEL, context_tokens=_CONTEXT_TOKENS, threads=1, late_s=late_s
            )
        case _:
            return _Bad(kind)


class _Late(LlamaCppBackend):
    def __init__(self, file: ModelFile, *, late_s: float, **options: object) -> None:
        super().__init__(file, **options)  # type: ignore[arg-type]
        self._late_s = late_s

    async def run(self, job: Job) -> Completion:
        completion = await super().run(job)
        await asyncio.sleep(self._late_s)
        return completion


@dataclass
class _Bad:
    """A back end without a model."""

    kind: Kind
    name: str = MODEL
    prior_ms: float = 200.0
    max_output_bytes: int = 10_000
    loaded: bool = True
    load_ms: float = 0.0
    _never: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        """There is nothing to load."""

    async def run(self, job: Job) -> Completion:
        if self.kind is Kind.HANGS:
            await self._never.wait()
        if self.kind is Kind.CRASHES:
            await asyncio.sleep(_DIES_AFTER_S)
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(_LIES_AFTER_S)
        text = f"The answer to request {job.request_id} is 42."
        return Completion(text.encode(), "text/plain; charset=utf-8", {"model": MODEL})

    async def unload(self) -> None:
        """There is nothing to unload."""

    async def close(self) -> None:
        """Nor to close."""
