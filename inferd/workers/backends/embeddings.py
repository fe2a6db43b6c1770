"""Embeddings as inputs and outputs of any back end.

Input: UTF-8. A JSON array of strings is a list of texts, anything else is one text.
Output: canonical JSON without spaces,
  {"model":NAME,"dimensions":N,"embeddings":[[...],...]}
one unit vector per text, each component with exactly six decimals and never "-0.000000". Six
decimals absorb the last bits in which processors differ.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

import msgspec

from inferd.workers.job import BadInput

MAX_TEXTS = 1_024
ENCODING = "unit vectors, six decimals"
_COMPONENT_BYTES = 10  # "-0.123456" and its comma


def texts_of(text: str) -> list[str]:
    """The texts that an input asks about. Raises BadInput."""
    try:
        texts = msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, RecursionError):
        return [text]
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise BadInput(f"{len(texts)} texts; 1 to {MAX_TEXTS} are embedded at once")
    return texts


def unit(vector: Sequence[float]) -> list[float]:
    """The vector of length 1 in its direction; by exact sums, so the same on every machine.

    Raises ValueError where it has none: all zeros, or not finite.
    """
    largest = max(map(abs, vector), default=0.0)
    if not (math.isfinite(largest) and largest > 0 and all(map(math.isfinite, vector))):
        raise ValueError("a vector without a direction")
    scaled = [value / largest for value in vector]  # squares neither overflow nor vanish
    length = math.sqrt(math.fsum(value * value for value in scaled))
    return [value / length for value in scaled]


def encode_embeddings(model: str, dimensions: int, vectors: Iterable[Sequence[float]]) -> bytes:
    """The canonical output for unit vectors of so many dimensions."""
    rows = (",".join(map(_fixed, vector)) for vector in vectors)
    body = "],[".join(rows)
    return (
        f'{{"model":{json.dumps(model)},"dimensions":{dimensions},"embeddings":[[{body}]]}}'
    ).encode()


def most_bytes(model: str, dimensions: int, texts: int = MAX_TEXTS) -> int:
    """How long the output for so many texts can be."""
    return len(encode_embeddings(model, dimensions, [])) + texts * (
        dimensions * _COMPONENT_BYTES + len("],[")
    )


def _fixed(value: float) -> str:
    written = f"{value:.6f}"
    return "0.000000" if written == "-0.000000" else written
