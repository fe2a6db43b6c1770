"""Which back end an operator wants, and its options: values, checked when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_RESTING = ("llamacpp", "wordllama", "markov")


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LlamaCppOptions(_Options):
    """A model that llama.cpp runs inside this process."""

    file: Path | None = None
    """A GGUF file; without it SmolLM2-135M, fetched once from the package index."""
    context_tokens: int = Field(2048, ge=16)
    """What one request may hold, prompt and answer together."""
    default_tokens: int = Field(128, ge=1)
    """How long an answer may get where the request does not say."""
    max_tokens: int = Field(512, ge=1)
    """How long it may get at most."""
    threads: int = Field(0, ge=0)
    """For one step of the model; 0 = half the cores, at most 8."""


class OpenAIOptions(_Options):
    """A server that speaks OpenAI's API: vLLM, SGLang, llama.cpp, Ollama, LM Studio, Ray Serve."""

    base_url: str
    """What stands before `/chat/completions`, as in `http://127.0.0.1:8000/v1`."""
    model: str = Field("", max_length=200)
    """The model's name at the server; empty = the same as on chain."""
    api: Literal["chat", "completions", "embeddings"] = "chat"
    """`chat`: the input is one user's message. `completions`: it is the text to go on with.
    `embeddings`: a text, or a JSON array of texts."""
    api_key_file: Path | None = None
    """Holds the key for the server; a line end at the end is left out."""
    api_key_env: str = Field("", pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")
    """Or the name of the environment variable that does."""
    ca_file: Path | None = None
    """Who signs the server's certificate, where the system does not know them; PEM."""
    system_prompt: str = Field("", max_length=20_000)
    """Said before each message of `chat`; empty = nothing is."""
    default_tokens: int = Field(256, ge=1)
    """How long an answer may get where the request does not say."""
    max_tokens: int = Field(2048, ge=1)
    """How long it may get at most."""
    max_output_bytes: int = Field(1_048_576, ge=1_024, le=67_108_864)
    """An answer that grows beyond it fails."""
    quantisation: str = Field("", max_length=64)
    """For the manifest, where the server does not tell: vLLM, SGLang."""
    connect_timeout_s: float = Field(5.0, gt=0)
    """Until the server has taken the connection."""
    idle_timeout_s: float = Field(60.0, gt=0)
    """Between two pieces of an answer, and before the first."""
    timeout_s: float = Field(600.0, gt=0)
    """For one answer as a whole; a request's deadline cuts it before that."""

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("base_url is http:// or https:// with a host")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("base_url holds no user, query or fragment: a key goes into a file")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _one_key(self) -> OpenAIOptions:
        if self.api_key_file is not None and self.api_key_env:
            raise ValueError("give one of api_key_file and api_key_env")
        if self.ca_file is not None and not self.base_url.startswith("https://"):
            raise ValueError("ca_file is for a base_url of https://")
        return self


class CommandOptions(_Options):
    """A program that is started for each request: JSON in on stdin, the answer out on stdout."""

    argv: tuple[str, ...] = Field(min_length=1)
    """The program and its arguments. No shell reads them."""
    version: str = Field("", max_length=64)
    """For the manifest, which has the program's hash in any case."""
    media_type: str = Field("text/plain; charset=utf-8", pattern=r"^[\x20-\x7e]{3,100}$")
    """Of what it writes."""
    timeout_s: float = Field(600.0, gt=0)
    """After which it is killed with all that it started; a request's deadline comes before that."""
    memory_mb: int = Field(4096, ge=0)
    """Address space of each of its processes, at most; 0 = no limit, as CUDA needs it."""
    max_output_bytes: int = Field(1_048_576, ge=1, le=67_108_864)
    """It is killed where it writes more."""
    environment: tuple[str, ...] = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
    """The variables it gets; no others."""
    working_dir: Path | None = None
    """Where it runs; without it the daemon's own."""

    @field_validator("argv")
    @classmethod
    def _no_nul(cls, argv: tuple[str, ...]) -> tuple[str, ...]:
        if not argv[0] or any("\x00" in part for part in argv):
            raise ValueError("argv names a program, without NUL characters")
        return argv

    @field_validator("environment")
    @classmethod
    def _no_keys(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if any(name.startswith("INFERD_") for name in names):
            raise ValueError("variables INFERD_* may hold keys: a program does not get them")
        return names


class ModelChoice(BaseModel):
    """A model, and what runs it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    backend: Literal["llamacpp", "openai", "wordllama", "command", "markov"]
    """What runs the model: llama.cpp in this process (SmolLM2-135M or a GGUF file), a server with
    OpenAI's API, embeddings, a program of yours, or a toy without weights."""
    model: str = Field(min_length=1, max_length=200)
    """The name requests use."""
    unload_after_s: float = Field(0.0, ge=0)
    """Seconds without a request after which its model leaves memory. The next request waits until
    it is loaded again, and goes to a worker that has it loaded where that is sooner. 0 = never."""
    resident_mb: int = Field(0, ge=0)
    """What its model takes of the worker's `memory_mb` while it is loaded, where the worker has
    several. 0 = `llamacpp`: its file's size; `wordllama`: 64; others: nothing in this process."""
    llamacpp: LlamaCppOptions | None = None
    """Options of that back end, a section of their own."""
    openai: OpenAIOptions | None = None
    """Needed by that back end, a section of their own."""
    command: CommandOptions | None = None
    """Needed by that back end, a section of their own."""

    @model_validator(mode="after")
    def _options_of_its_kind(self) -> Self:
        for kind in ("openai", "command"):
            if (getattr(self, kind) is not None) != (self.backend == kind):
                raise ValueError(f"backend = {kind!r} and a section `{kind}` go together")
        if self.backend != "llamacpp" and self.llamacpp is not None:
            raise ValueError("a section `llamacpp` is for backend = 'llamacpp'")
        if self.unload_after_s and self.backend not in _RESTING:
            raise ValueError(f"unload_after_s is for {', '.join(_RESTING)}: no other is in memory")
        if self.resident_mb and self.backend not in _RESTING:
            raise ValueError(f"resident_mb is for {', '.join(_RESTING)}: no other is in memory")
        return self


class BackendChoice(ModelChoice):
    """A model of a worker, with as many slots as the worker has."""

    slots: int = Field(1, ge=1)
    """Requests it computes at the same time."""


BACKEND_OPTIONS: dict[str, type[BaseModel]] = {
    "llamacpp": LlamaCppOptions,
    "openai": OpenAIOptions,
    "command": CommandOptions,
}
"""The sections of a worker, by name."""
