"""The check before a worker offers a model: does it answer, how fast, the same again, how large.

The server behind it, where there is one, was found by the back end's own start.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from indexer.errors import ExitCode, OperatorError, TemporaryError
from inferd.protocol.request import Commitment, model_id
from inferd.workers.backends.base import Backend
from inferd.workers.backends.command import CommandBackend
from inferd.workers.backends.memory import ModelMemory
from inferd.workers.backends.openai.backend import OpenAIBackend
from inferd.workers.job import Completion, Job, JobError, WorkerBusy

_PROMPT = b"Name the capital of France."
_MAX_TOKENS = 32
_MB = 1 << 20


class ProbeFailed(OperatorError):
    """The model gave no answer to the worker's own question at the start."""

    code: ClassVar[str] = "probe_failed"


class ProbeBusy(TemporaryError):
    """The model had no capacity for the worker's own question at the start."""

    code: ClassVar[str] = "probe_busy"


class BackendTooSlow(OperatorError):
    """The model took longer for the worker's own question than is allowed."""

    code: ClassVar[str] = "backend_too_slow"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


@dataclass(frozen=True, slots=True)
class BackendReport:
    """What was found, for the operator, the heartbeat and the registration."""

    model: str
    weights: str
    quantisation: str | None
    backend: str
    version: str
    deterministic: bool
    """Whether the same question gave the same bytes twice. It can still change with the load: many
    servers compute several requests in one batch."""
    answer_bytes: int
    answer_tokens: int | None
    """None where nobody counted."""
    answer_ms: int
    """Of the second answer: the first may have had to load the model."""
    first_answer_ms: int
    tokens_per_s: float | None
    memory_mb: int | None
    """None where nobody tells."""
    memory_of: str
    """Whose memory that is."""
    max_output_bytes: int
    server_slots: int | None
    """How many requests the server behind it computes at once; None where there is none, or it
    does not tell. A worker with more slots makes requests wait at the server."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        speed = "" if self.tokens_per_s is None else f", {self.tokens_per_s:.1f} tokens/s"
        memory = "not told" if self.memory_mb is None else f"{self.memory_mb} MB"
        slots = [] if self.server_slots is None else [f"its server has {self.server_slots} slots"]
        return [
            f"model {self.model}: {self.weights}, {self.quantisation or 'quantisation not told'}",
            f"back end {self.backend} {self.version or '(version not told)'}",
            f"answered in {self.answer_ms} ms, at first {self.first_answer_ms} ms{speed}",
            f"memory {memory} ({self.memory_of})",
            *slots,
            "the same question gave "
            + ("the same bytes twice" if self.deterministic else "two different answers"),
        ]


async def check_backend(backend: Backend, *, within_s: float = 120.0) -> BackendReport:
    """Asks a started back end the same question twice.

    Raises ProbeFailed, ProbeBusy, and BackendTooSlow where an answer takes longer than `within_s`.
    """
    first, first_ms = await _asked(backend, within_s)
    second, second_ms = await _asked(backend, within_s)
    manifest = second.manifest
    tokens = manifest["completion_tokens"]
    memory_bytes, memory_of = _memory(backend)
    return BackendReport(
        model=manifest["model"],
        weights=manifest["weights"],
        quantisation=manifest["quantisation"],
        backend=manifest["backend"],
        version=manifest["version"],
        deterministic=first.output == second.output,
        answer_bytes=len(second.output),
        answer_tokens=tokens,
        answer_ms=max(1, round(second_ms)),
        first_answer_ms=max(1, round(first_ms)),
        tokens_per_s=1000 * tokens / second_ms if tokens else None,
        memory_mb=None if memory_bytes is None else -(-memory_bytes // _MB),
        memory_of=memory_of,
        max_output_bytes=backend.max_output_bytes,
        server_slots=backend.facts.slots if isinstance(backend, OpenAIBackend) else None,
    )


async def check_in(memory: ModelMemory, backend: Backend) -> BackendReport:
    """As `check_backend`, of a model that may have to make room for others afterwards."""
    async with memory.holding(backend):
        return await check_backend(backend)


def probe_job(model: str, within_s: float) -> Job:
    """A question that belongs to no request: ids count from 1."""
    return Job(
        request_id=0,
        commitment=Commitment(bytes(20)),
        model_id=model_id(model),
        model=model,
        input=_PROMPT,
        max_tokens=_MAX_TOKENS,
        deadline_s=int(time.time() + within_s) + 1,
    )


async def _asked(backend: Backend, within_s: float) -> tuple[Completion, float]:
    began_s = time.perf_counter()
    limit = asyncio.timeout(within_s)
    try:
        async with limit:
            completion = await backend.run(probe_job(backend.name, within_s))
    except WorkerBusy as busy:
        raise ProbeBusy(
            f"the model {backend.name} has no capacity for a first question: {busy.reason}",
            help_text="try again, or give it more slots",
        ) from None
    except JobError as error:
        raise ProbeFailed(
            f"the model {backend.name} does not answer: {error.reason}",
            help_text=_said(backend) or "see its server's log, and the options of its section",
        ) from None
    except TimeoutError:
        raise BackendTooSlow(
            f"the model {backend.name} took longer than {within_s:.0f} s for a short answer",
            help_text="give it a faster machine or a smaller model, or allow it more time",
        ) from None
    if not completion.output:
        raise ProbeFailed(
            f"the model {backend.name} gave an empty answer",
            help_text="see its server's log: a chat model wants api = 'chat'",
        )
    return completion, 1000 * (time.perf_counter() - began_s)


def _said(backend: Backend) -> str:
    """A program's last words: its question was ours, so they hold nobody's prompt."""
    if not isinstance(backend, CommandBackend) or backend.last is None:
        return ""
    words = backend.last.stderr.decode(errors="replace").split("\n")
    told = next((line.strip() for line in reversed(words) if line.strip()), "")
    return f"it wrote: {told!r}" if told else ""


def _memory(backend: Backend) -> tuple[int | None, str]:
    """Bytes, and whose they are."""
    match backend:
        case OpenAIBackend(facts=facts) if facts.gpu_bytes is not None:
            return facts.gpu_bytes, "its server's GPU"
        case OpenAIBackend(facts=facts) if facts.memory_bytes is not None:
            return facts.memory_bytes, "the model at its server"
        case OpenAIBackend():
            return None, "its server"
        case CommandBackend(last=last) if last is not None:
            return last.peak_memory_bytes, "the program at its largest"
    return _own_memory_bytes(), "this process, all its models"


def _own_memory_bytes() -> int:
    """What is resident now; where the system does not tell, what was at most."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")
