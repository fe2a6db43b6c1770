"""Whether two outputs of one model to one input say the same. Pure.

Outputs are anybody's bytes: none makes a comparison raise, and what is too large, too deep or too
strange to be compared by meaning is compared by its bytes. Equal bytes are always the same.
"""

from __future__ import annotations

import json
import math
import unicodedata
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np

MAX_BYTES = 4_000_000
"""Of an output that is compared by meaning: some 200 ms and 200 MB at worst."""
_MAX_JSON_VALUES = 500_000
_MAX_COMPONENTS = 1_000_000
_MAX_DEPTH = 100
_MAX_MARKS = 30
"""Combining characters in a row, as in the stream-safe format of UAX #15: sorting them takes time
that grows with the square of their number."""
_VECTORS = "vectors:"


class Comparator(Protocol):
    """Reflexive and symmetric; of vectors, not transitive."""

    def same(self, one: bytes, other: bytes) -> bool:
        """Never raises."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The same bytes."""

    def same(self, one: bytes, other: bytes) -> bool:
        return one == other


@dataclass(frozen=True, slots=True)
class Json:
    """The same JSON value: spaces, escapes and the order of names do not matter, and numbers count
    by their value. What names one thing twice is no JSON."""

    def same(self, one: bytes, other: bytes) -> bool:
        if one == other:
            return True
        if max(len(one), len(other)) > MAX_BYTES:
            return False
        try:
            return _equal(_json_of(one), _json_of(other))
        except (ValueError, RecursionError):
            return False


@dataclass(frozen=True, slots=True)
class Text:
    """The same text in Unicode's normal form C, each run of white space counting as one space, and
    none at either end."""

    def same(self, one: bytes, other: bytes) -> bool:
        if one == other:
            return True
        if max(len(one), len(other)) > MAX_BYTES:
            return False
        try:
            return _folded(one) == _folded(other)
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Vectors:
    """As many vectors of as many dimensions, each pair of which has at least this cosine, and
    lengths that differ by no more than that angle.

    An output is a JSON list of numbers, a list of such lists, or the encoding of embeddings of
    docs/protocol.md, whose model must be the same too.
    """

    min_cosine: float

    def same(self, one: bytes, other: bytes) -> bool:
        if one == other:
            return True
        try:
            (named, mine), (other_name, theirs) = _vectors_of(one), _vectors_of(other)
        except (ValueError, RecursionError):
            return False
        if named != other_name or mine.shape != theirs.shape:
            return False
        lengths, other_lengths = (np.sqrt((each * each).sum(axis=1)) for each in (mine, theirs))
        longest = np.maximum(lengths, other_lengths)
        if not (np.isfinite(longest).all() and (lengths > 0).all() and (other_lengths > 0).all()):
            return False
        cosines = (mine / lengths[:, None] * (theirs / other_lengths[:, None])).sum(axis=1)
        apart = np.abs(lengths - other_lengths) / longest
        most_apart = math.sqrt(2.0 - 2.0 * self.min_cosine) + 1e-9
        return bool((cosines >= self.min_cosine - 1e-12).all() and (apart <= most_apart).all())


def comparator_of(text: str) -> Comparator:
    """As an operator writes it: exact, json, text, or vectors:MIN_COSINE. Raises ValueError."""
    if text in _BY_NAME:
        return _BY_NAME[text]
    if text.startswith(_VECTORS):
        try:
            least = float(text.removeprefix(_VECTORS))
        except ValueError:
            least = math.nan
        if 0.0 < least <= 1.0:
            return Vectors(least)
        raise ValueError(f"the cosine of {text} is no number above 0 and up to 1")
    raise ValueError(f"{text} is none of exact, json, text and vectors:MIN_COSINE")


_BY_NAME: dict[str, Comparator] = {"exact": Exact(), "json": Json(), "text": Text()}


def _json_of(output: bytes) -> Any:
    if output.count(b",") + output.count(b"[") + output.count(b"{") > _MAX_JSON_VALUES:
        raise ValueError("too many values")
    return json.loads(
        output.decode(), object_pairs_hook=_named_once, parse_constant=_no_such_constant
    )


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name comes twice")
    return made


def _no_such_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _equal(one: Any, other: Any) -> bool:
    left: list[tuple[Any, Any, int]] = [(one, other, 0)]
    while left:
        mine, theirs, depth = left.pop()
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deep")
        if isinstance(mine, dict) and isinstance(theirs, dict):
            if mine.keys() != theirs.keys():
                return False
            left += [(value, theirs[name], depth + 1) for name, value in mine.items()]
        elif isinstance(mine, list) and isinstance(theirs, list):
            if len(mine) != len(theirs):
                return False
            left += [(*pair, depth + 1) for pair in zip(mine, theirs, strict=True)]
        elif not _equal_values(mine, theirs):
            return False
    return True


def _equal_values(mine: Any, theirs: Any) -> bool:
    numbers = [
        isinstance(each, int | float) and not isinstance(each, bool) for each in (mine, theirs)
    ]
    if all(numbers):
        return bool(mine == theirs)
    return type(mine) is type(theirs) and bool(mine == theirs)


def _folded(output: bytes) -> str:
    text = output.decode()
    if not text.isascii():
        marks = 0
        for letter in text:
            marks = marks + 1 if unicodedata.combining(letter) else 0
            if marks > _MAX_MARKS:
                raise ValueError("too many combining characters in a row")
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


class _Embeddings(msgspec.Struct):
    model: str
    dimensions: int
    embeddings: list[list[float]]


def _vectors_of(output: bytes) -> tuple[tuple[str, int] | None, np.ndarray[Any, Any]]:
    """What it names beside its vectors, and these as rows."""
    if len(output) > MAX_BYTES or output.count(b",") + output.count(b"[") > _MAX_COMPONENTS:
        raise ValueError("too large")
    start = output.lstrip(b" \t\r\n")
    if start.startswith(b"{"):
        read = msgspec.json.decode(output, type=_Embeddings)
        return (read.model, read.dimensions), _rows(read.embeddings)
    if start[1:].lstrip(b" \t\r\n").startswith(b"["):
        return None, _rows(msgspec.json.decode(output, type=list[list[float]]))
    return None, _rows([msgspec.json.decode(output, type=list[float])])


def _rows(vectors: list[list[float]]) -> np.ndarray[Any, Any]:
    if not vectors or not vectors[0] or len({len(vector) for vector in vectors}) > 1:
        raise ValueError("no vectors of one number of dimensions")
    rows = np.array(vectors, dtype=np.float64)
    largest = np.abs(rows).max()
    if not 1e-100 < largest < 1e100:
        raise ValueError("its numbers are out of range")
    return rows
