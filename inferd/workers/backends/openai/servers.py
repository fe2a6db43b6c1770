"""What kind of server it is, and what it tells of its model beside OpenAI's API: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from inferd.workers.backends.openai.answer import ModelEntry


@dataclass(frozen=True, slots=True)
class Question:
    """Asked at the server's root, which is the base URL without `/v1`."""

    path: str
    body: dict[str, Any] | None = None
    """Posted; without it the path is got."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What is known of the server; empty and None where it does not tell."""

    software: str = ""
    version: str = ""
    quantisation: str = ""
    context_tokens: int | None = None
    """What one request may hold."""
    memory_bytes: int | None = None
    """What its model takes, where it runs."""
    gpu_bytes: int | None = None
    """Of that, on the GPU."""
    slots: int | None = None
    """How many requests it computes at once."""


_SOFTWARE = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp server",
    "library": "Ollama",
    "organization_owner": "LM Studio",
}
"""By `owned_by` in the list of models."""


def questions(entry: ModelEntry) -> tuple[Question, ...]:
    """What to ask the kind of server that lists its model so."""
    match _SOFTWARE.get(entry.owned_by):
        case "vLLM":
            return (Question("/version"),)
        case "SGLang":
            return (Question("/server_info"), Question("/get_server_info"))
        case "llama.cpp server":
            return (Question("/props"),)
        case "Ollama":
            show = Question("/api/show", {"model": entry.id})
            return (Question("/api/version"), show, Question("/api/ps"))
        case "LM Studio":
            return (Question(_lm_studio(entry)),)
    return ()


def facts_of(entry: ModelEntry | None, answers: Mapping[str, Any]) -> ServerFacts:
    """From the answers, decoded, by path; those that failed are left out."""
    if entry is None:
        return ServerFacts()
    software = _SOFTWARE.get(entry.owned_by, "")
    facts = ServerFacts(software, context_tokens=_whole(entry.max_model_len))
    match software:
        case "vLLM":
            return _with(facts, version=_text(answers, "/version", "version"))
        case "SGLang":
            paths = ("/server_info", "/get_server_info")
            told = [_text(answers, path, "version") for path in paths]
            return _with(facts, version=next(filter(None, told), ""))
        case "llama.cpp server":
            return _with(
                facts,
                version=_text(answers, "/props", "build_info"),
                quantisation=_text(entry.meta, "ftype"),
                context_tokens=_whole(
                    _at(answers, "/props", "default_generation_settings", "n_ctx")
                ),
                memory_bytes=_whole(_at(entry.meta, "size")),
                slots=_whole(_at(answers, "/props", "total_slots")),
            )
        case "Ollama":
            return _with(
                facts,
                version=_text(answers, "/api/version", "version"),
                quantisation=_text(answers, "/api/show", "details", "quantization_level"),
                context_tokens=_whole(
                    _listed(answers, "/api/ps", "models", entry.id, "context_length")
                ),
                memory_bytes=_whole(_listed(answers, "/api/ps", "models", entry.id, "size")),
                gpu_bytes=_whole(_listed(answers, "/api/ps", "models", entry.id, "size_vram")),
            )
        case "LM Studio":
            path = _lm_studio(entry)
            return _with(
                facts,
                quantisation=_text(answers, path, "quantization"),
                context_tokens=_whole(_at(answers, path, "loaded_context_length")),
            )
    return facts


def extras(facts: ServerFacts) -> dict[str, Any]:
    """Fields of its own that make a server's answers the same again."""
    if facts.software == "llama.cpp server":
        return {"cache_prompt": False}  # what it kept of an earlier prompt changes last bits
    return {}


def _lm_studio(entry: ModelEntry) -> str:
    return f"/api/v0/models/{quote(entry.id)}"


def _with(facts: ServerFacts, **told: Any) -> ServerFacts:
    known = {name: getattr(facts, name) for name in ServerFacts.__slots__}
    return ServerFacts(**{**known, **{name: value for name, value in told.items() if value}})


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _listed(answers: Mapping[str, Any], path: str, name: str, model: str, *inner: str) -> Any:
    """From a list of models, of the one with this name."""
    models = _at(answers, path, name)
    for one in models if isinstance(models, list) else ():
        if model in (_at(one, "id"), _at(one, "model"), _at(one, "name")):
            return _at(one, *inner)
    return None


def _text(value: Any, *path: str) -> str:
    found = _at(value, *path)
    return found if isinstance(found, str) else ""


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
