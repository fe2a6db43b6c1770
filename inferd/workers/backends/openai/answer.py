"""What is asked of a server, and what its answers come to: pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from inferd.workers.backends.choice import OpenAIOptions
from inferd.workers.backends.openai.dialect import Dialect
from inferd.workers.backends.openai.refusal import Refused, refusal_from
from inferd.workers.backends.openai.sse import BadStream

PATHS = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "embeddings": "/embeddings",
}
DONE = b"[DONE]"
_LISTED_MODELS = 10


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    system_fingerprint: str | None = None


class _Vector(msgspec.Struct):
    index: int
    embedding: list[float]


class Vectors(msgspec.Struct):
    """The answer to a request for embeddings."""

    data: list[_Vector]
    usage: _Usage | None = None

    def in_order(self, count: int) -> list[list[float]]:
        """One for each text. Raises BadStream where they do not belong to so many texts."""
        ordered = sorted(self.data, key=lambda vector: vector.index)
        if [vector.index for vector in ordered] != list(range(count)):
            raise BadStream(f"not one vector for each of {count} texts")
        vectors = [vector.embedding for vector in ordered]
        if len({len(vector) for vector in vectors}) != 1:
            raise BadStream("vectors of different dimensions")
        return vectors

    @property
    def prompt_tokens(self) -> int | None:
        return _count(self.usage.prompt_tokens if self.usage else None)


class ModelEntry(msgspec.Struct):
    """One model of a server's list."""

    id: str
    owned_by: str = ""
    max_model_len: int | None = None
    """vLLM's and SGLang's context."""
    meta: Any = None
    """llama.cpp's words about it."""


class _ModelList(msgspec.Struct):
    data: list[ModelEntry]


_chunks = msgspec.json.Decoder(_Chunk)
_vectors = msgspec.json.Decoder(Vectors)
_models = msgspec.json.Decoder(_ModelList)


def text_request(
    options: OpenAIOptions, model: str, text: str, sampling: dict[str, Any], dialect: Dialect
) -> dict[str, Any]:
    """The body that asks for a text, streamed."""
    body: dict[str, Any] = {"model": model, **sampling, "stream": True}
    if options.api == "chat":
        body["messages"] = [{"role": "user", "content": text}]
        if options.system_prompt:
            body["messages"].insert(0, {"role": "system", "content": options.system_prompt})
    else:
        body["prompt"] = text
    if dialect.usage:
        body["stream_options"] = {"include_usage": True}
    return body


@dataclass(slots=True)
class Answer:
    """What the stream of one answer has told so far."""

    max_bytes: int
    parts: list[str] = field(default_factory=list, repr=False)
    output_bytes: int = 0
    pieces: int = 0
    """Events with text in them: most servers send one a token."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    fingerprint: str = ""

    @property
    def output(self) -> bytes:
        return "".join(self.parts).encode(errors="replace")

    @property
    def tokens(self) -> int:
        """By the server's count, else by ours."""
        return self.pieces if self.completion_tokens is None else self.completion_tokens

    def take(self, event: bytes) -> None:
        """Raises BadStream and Refused."""
        try:
            chunk = _chunks.decode(event)
        except (msgspec.DecodeError, RecursionError):
            raise BadStream("an event that is no piece of an answer") from None
        if chunk.error is not None:
            raise Refused(refusal_from(200, {"error": chunk.error}))
        for choice in chunk.choices or ():
            if choice.index == 0:
                self._take(choice)
        if chunk.usage is not None:
            self.prompt_tokens = _count(chunk.usage.prompt_tokens)
            self.completion_tokens = _count(chunk.usage.completion_tokens)
        self.fingerprint = chunk.system_fingerprint or self.fingerprint

    def _take(self, choice: _Choice) -> None:
        said = choice.text if choice.delta is None else choice.delta.content
        if said:
            self.pieces += 1
            self.output_bytes += len(said.encode(errors="replace"))
            if self.output_bytes > self.max_bytes:
                raise BadStream(f"an answer of more than {self.max_bytes} bytes")
            self.parts.append(said)
        self.finish_reason = choice.finish_reason or self.finish_reason


def vectors_of(body: bytes) -> Vectors:
    """Raises BadStream."""
    try:
        return _vectors.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise BadStream("no list of embeddings") from None


def models_of(body: bytes) -> list[ModelEntry]:
    """Raises BadStream."""
    try:
        return _models.decode(body).data
    except (msgspec.DecodeError, RecursionError):
        raise BadStream("no list of models") from None


def entry_of(models: list[ModelEntry], name: str) -> ModelEntry | None:
    """The model of this name; Ollama adds a tag to a name without one."""
    known = {entry.id: entry for entry in models}
    return known.get(name) or known.get(f"{name}:latest")


def names_of(models: list[ModelEntry]) -> str:
    """For operators: escaped, since the server chose them."""
    names = ", ".join(repr(entry.id)[:100] for entry in models[:_LISTED_MODELS])
    rest = len(models) - _LISTED_MODELS
    return f"{names or 'none'}{f' and {rest} more' if rest > 0 else ''}"


def _count(tokens: int | None) -> int | None:
    return tokens if tokens is not None and 0 <= tokens < 2**31 else None
