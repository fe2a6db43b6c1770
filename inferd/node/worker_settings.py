"""What an operator can set about a worker: `[[workers]]`."""

from __future__ import annotations

from pydantic import Field

from inferd.chain.keys import KeySource
from inferd.workers.backends.choice import BackendChoice


class WorkerSettings(BackendChoice):
    """A worker inside this process."""

    name: str = Field(pattern=r"^[a-z0-9-]{1,32}$")
    """For logs and commands; nothing on chain knows it."""
    memory_mb: int = Field(1024, ge=1)
    """What it offers to requests that ask for memory."""
    key: KeySource
    """Signs its results; its address is the worker."""
    owner: KeySource | None = None
    """Who registers and stakes it and is paid; needed by `inferd worker register` only."""
