"""What a GGUF file says of itself. Format: ggml's docs/gguf.md, versions 2 and 3, little endian."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_PAIRS = 10_000
_MAX_TEXT = 1 << 20
_STRING, _ARRAY = 8, 9
_NUMBERS = {
    **{0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?"},
    **{10: "<Q", 11: "<q", 12: "<d"},
}
# llama.h, enum llama_ftype
_FILE_TYPES = {
    **{0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K"},
    **{11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S"},
    **{17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS"},
    **{23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S"},
    **{29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0"},
    **{38: "MXFP4_MOE"},
}


class NotGguf(ValueError):
    """The file cannot be read as GGUF; the text says why."""


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """Of the metadata, what results and operators are told."""

    name: str
    """Empty where the file has none."""
    quantisation: str
    """llama.cpp's name for it; `unknown` where the file does not say."""
    parts: int
    """Over how many files the model is split."""


def read_gguf(path: Path) -> GgufFacts:
    """Raises NotGguf, and OSError."""
    with path.open("rb") as file:
        try:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise NotGguf("it is empty") from None
        with view:
            return _facts(view)


def _facts(view: mmap.mmap) -> GgufFacts:
    reader = _Reader(view)
    if reader.take(4) != _MAGIC:
        raise NotGguf("it does not begin with GGUF")
    if (version := reader.number("<I")) not in _VERSIONS:
        raise NotGguf(f"its version is {version}, known are 2 and 3")
    reader.number("<Q")  # tensors
    found = dict(_pairs(reader))
    kind, parts = found.get("general.file_type"), found.get("split.count", 1)
    return GgufFacts(
        name=_text(found.get("general.name")),
        quantisation=_FILE_TYPES.get(kind, "unknown") if isinstance(kind, int) else "unknown",
        parts=parts if isinstance(parts, int) else 1,
    )


def _pairs(reader: _Reader) -> Iterator[tuple[str, object]]:
    count = reader.number("<Q")
    if count > _MAX_PAIRS:
        raise NotGguf(f"it claims to have {count} pairs of metadata")
    for _ in range(int(count)):
        key = reader.text().decode(errors="replace")
        yield key, reader.value(int(reader.number("<I")))


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


class _Reader:
    """Reads from the start on, never beyond the end."""

    def __init__(self, view: mmap.mmap) -> None:
        self._view = view
        self._at = 0

    def take(self, size: int) -> bytes:
        self._skip(size)
        return self._view[self._at - size : self._at]

    def number(self, form: str) -> int | float:
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return value  # type: ignore[no-any-return]

    def text(self) -> bytes:
        size = int(self.number("<Q"))
        if size > _MAX_TEXT:
            raise NotGguf(f"a text in it claims to have {size} bytes")
        return self.take(size)

    def value(self, kind: int) -> object:
        """Arrays are passed over: they are vocabularies."""
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(_form(kind))
        inner, count = int(self.number("<I")), int(self.number("<Q"))
        if inner != _STRING:
            self._skip(count * struct.calcsize(_form(inner)))
            return None
        # Each has at least its length, so the end of the file bounds the loop.
        for _ in range(count):
            self._skip(int(self.number("<Q")))
        return None

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._view):
            raise NotGguf("it ends in the middle of its metadata")


def _form(kind: int) -> str:
    try:
        return _NUMBERS[kind]
    except KeyError:
        raise NotGguf(f"its metadata has a value of the unknown kind {kind}") from None
