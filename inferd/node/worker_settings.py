"""What an operator can set about a worker: `[[workers]]`."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from inferd.chain.keys import KeySource
from inferd.protocol.worker_api import MAX_HEARTBEAT_MODELS, PULL
from inferd.workers.backends.choice import BackendChoice, ModelChoice


class WorkerSettings(BackendChoice):
    """A worker: its key, its model, and where it works."""

    models: tuple[ModelChoice, ...] = Field((), max_length=MAX_HEARTBEAT_MODELS - 1)
    """More models of the same worker, as `[[workers.models]]`: they share its slots and its
    `memory_mb`, and are loaded when they are asked for, in place of those asked for longest ago."""

    name: str = Field(pattern=r"^[a-z0-9-]{1,32}$")
    """For logs and commands; nothing on chain knows it."""
    memory_mb: int = Field(1024, ge=1)
    """What it offers to requests that ask for memory, and what the loaded ones of several models
    may take together."""
    endpoint: str = ""
    """Where operators reach its agent, which `inferd worker` runs; `pull:` where it pulls its jobs
    from the broker of `[pull]`; without it the daemon computes with it. Never both: each has its
    own memory of what the key has signed."""
    key: KeySource
    """Signs its results; its address is the worker."""
    owner: KeySource | None = None
    """Who registers and stakes it and is paid; needed by `inferd worker register` only."""

    @model_validator(mode="after")
    def _different_models(self) -> WorkerSettings:
        if len(set(self.model_names)) != len(self.model_names):
            raise ValueError("two models of a worker have one name")
        return self

    @property
    def model_names(self) -> tuple[str, ...]:
        """Of all its models, its own first."""
        return (self.model, *(model.model for model in self.models))

    @property
    def choices(self) -> tuple[BackendChoice, ...]:
        """All its models, its own first."""
        more = (BackendChoice(**dict(model), slots=self.slots) for model in self.models)
        return (self, *more)

    @field_validator("endpoint")
    @classmethod
    def _reachable(cls, endpoint: str) -> str:
        if endpoint in {"", PULL}:
            return endpoint
        try:
            parts = urlsplit(endpoint)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.username or parts.query or parts.fragment:
            raise ValueError(
                "endpoint is http:// or https:// with a host, without user or query, or pull:"
            )
        return endpoint.rstrip("/")
