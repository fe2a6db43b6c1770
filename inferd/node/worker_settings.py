"""What an operator can set about a worker: `[[workers]]`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from inferd.chain.keys import KeySource
from inferd.node.settings_section import Section


class WorkerSettings(Section):
    """A worker inside this process."""

    name: str = Field(pattern=r"^[a-z0-9-]{1,32}$")
    """For logs and commands; nothing on chain knows it."""
    backend: Literal["llamacpp", "wordllama", "markov"]
    """What runs the model: SmolLM2-135M, embeddings, or a toy without weights."""
    model: str = Field(min_length=1, max_length=200)
    """The name requests use."""
    slots: int = Field(1, ge=1)
    """Requests it computes at the same time."""
    memory_mb: int = Field(1024, ge=1)
    """What it offers to requests that ask for memory."""
    unload_after_s: float = Field(0.0, ge=0)
    """Seconds without a request after which its model leaves memory. The next request waits until
    it is loaded again, and goes to a worker that has it loaded where that is sooner. 0 = never."""
    key: KeySource
    """Signs its results; its address is the worker."""
    owner: KeySource | None = None
    """Who registers and stakes it and is paid; needed by `inferd worker register` only."""
