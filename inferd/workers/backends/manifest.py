"""The manifest beside an output: how it was made, in one form for all back ends.

Its canonical bytes are RFC 8785 (JSON Canonicalization Scheme), of values for which that leaves no
choice: no fractions, names in ASCII. docs/protocol.md has the fields.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from indexer.database import plain_text

MAX_MANIFEST_BYTES = 4_096
_MAX_TEXT_BYTES = 200
_MAX_DEPTH = 4
_MAX_NUMBER = 2**53 - 1  # the largest that every reader of JSON keeps exact


class NotCanonical(ValueError):
    """A value has no canonical form, or the manifest is too large."""


def manifest_of(
    *,
    model: str,
    weights: str,
    backend: str,
    version: str,
    sampling: dict[str, Any],
    prompt_tokens: int | None,
    completion_tokens: int | None,
    finish_reason: str,
    quantisation: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The manifest of one output. Token counts are None where nobody counted.

    Texts may be anybody's: characters that are not printed become "?", and what is longer than 200
    bytes of UTF-8 is cut.
    Raises NotCanonical for other values than texts, whole numbers, truth values, None and lists
    and tables of them.
    """
    manifest = {
        "model": model,
        "weights": weights,
        "quantisation": quantisation,
        "backend": backend,
        "version": version,
        "sampling": sampling,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "finish_reason": finish_reason,
        **more,
    }
    cleaned: dict[str, Any] = _cleaned(manifest)
    encode_manifest(cleaned)
    return cleaned


def hash_of_text(text: str) -> str | None:
    """For texts that are too long for a manifest; None for no text."""
    return hashlib.sha256(text.encode()).hexdigest() if text else None


def encode_manifest(manifest: dict[str, Any]) -> bytes:
    """The canonical bytes: names sorted, no spaces, UTF-8. Raises NotCanonical."""
    _check(manifest, _MAX_DEPTH)
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    encoded = text.encode()
    if len(encoded) > MAX_MANIFEST_BYTES:
        raise NotCanonical(f"a manifest of {len(encoded)} bytes, at most {MAX_MANIFEST_BYTES}")
    return encoded


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        printed = "".join(letter if letter.isprintable() else "?" for letter in value)
        return printed.encode()[:_MAX_TEXT_BYTES].decode(errors="ignore")
    if isinstance(value, dict):
        return {key: _cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(inner) for inner in value]
    return value


def _check(value: Any, depth: int) -> None:
    if depth < 0:
        raise NotCanonical("it is nested too deeply")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str) or not key.isascii() or "\x00" in key:
                raise NotCanonical(f"the name {key!r} is not plain ASCII")
            _check(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth - 1)
    elif isinstance(value, str):
        if value != plain_text(value):
            raise NotCanonical("a text holds what JSON or PostgreSQL cannot carry")
    elif isinstance(value, int):
        if abs(value) > _MAX_NUMBER:
            raise NotCanonical(f"{value} is larger than 2^53 - 1")
    elif value is not None:
        raise NotCanonical(f"{type(value).__name__} has no canonical form")
