"""Snapshots as bytes, so that a round can be computed once more from what it saw.

**Encoding, version 1.** "inferd.snapshot", one byte, the version, 8 bytes of the schema's
fingerprint, then MessagePack: policy, its version, and the snapshot, where

- a value with fields is the list of their values, in the order in which they are declared;
- a tuple of such values is the list of its columns, each of which is a tuple of field values,
  with their number in front;
- a set is the sorted list of its members, a mapping the sorted list of its keys and the tuple of
  the values in that order;
- a member of an enumeration is its text;
- a whole number is an integer if it fits into 64 bits with a sign, else its shortest
  two's-complement bytes, big endian; a real number is always a 64-bit float.

Requests are sorted by key, workers by id: the same snapshot has one encoding, whatever the order in
which it was put together. The fingerprint is keccak256 of the fields' names and types: what was
written with other fields is refused, never misread. The digest is keccak256 of all this.
Stored bytes are this compressed with zlib.
"""

from __future__ import annotations

import types
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from eth_utils.crypto import keccak

from scheduler.model import Snapshot

VERSION = 1
_DOMAIN = b"inferd.snapshot"
_FINGERPRINT_BYTES = 8
_LEVEL = 1
_MAX_BYTES = 256 * 1024 * 1024
_INT64 = 1 << 63


class NotReadable(ValueError):
    """The bytes are no recording of this release; the text says why."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What a round saw, and by which policy it decided."""

    policy: str
    policy_version: str
    snapshot: Snapshot


def encode(recording: Recording) -> bytes:
    """The canonical bytes."""
    snapshot = recording.snapshot
    sorted_ = replace(
        snapshot,
        requests=tuple(sorted(snapshot.requests, key=lambda one: one.key)),
        workers=tuple(sorted(snapshot.workers, key=lambda one: one.id)),
    )
    value = _codec(Recording).pack(replace(recording, snapshot=sorted_))
    head = _DOMAIN + bytes([VERSION]) + _fingerprint()
    return head + msgspec.msgpack.encode(value)


def decode(encoded: bytes) -> Recording:
    """What `encode` was given. Raises NotReadable."""
    head = len(_DOMAIN)
    if encoded[:head] != _DOMAIN:
        raise NotReadable("it is no recorded snapshot")
    version, body = encoded[head : head + 1], head + 1 + _FINGERPRINT_BYTES
    if version != bytes([VERSION]) or encoded[head + 1 : body] != _fingerprint():
        raise NotReadable("it was recorded by another release, whose snapshots had other fields")
    try:
        value = msgspec.msgpack.decode(encoded[body:])
        return cast("Recording", _codec(Recording).unpack(value))
    except (msgspec.DecodeError, ValueError, TypeError, IndexError) as error:
        raise NotReadable(f"its bytes are damaged: {error}") from None


def digest(encoded: bytes) -> bytes:
    """What a decision's leaf holds of its round's snapshot, 32 bytes."""
    return keccak(encoded)


def compress(encoded: bytes) -> bytes:
    """The bytes that are stored."""
    return zlib.compress(encoded, _LEVEL)


def decompress(stored: bytes) -> bytes:
    """Raises NotReadable, also for what would be larger than 256 MiB."""
    reader = zlib.decompressobj()
    try:
        encoded = reader.decompress(stored, _MAX_BYTES)
    except zlib.error as error:
        raise NotReadable(f"its bytes are damaged: {error}") from None
    if not reader.eof:
        raise NotReadable("it is cut off, or too large")
    return encoded


@dataclass(frozen=True, slots=True)
class _Codec:
    """How values of one type become MessagePack values and back."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    name: str
    """What distinguishes the type in the fingerprint."""
    pack_all: Callable[[Sequence[Any]], list[Any]] | None = None
    """`pack` of many at once, where that is quicker."""
    unpack_all: Callable[[Sequence[Any]], Sequence[Any]] | None = None


@cache
def _fingerprint() -> bytes:
    return keccak(_codec(Recording).name.encode())[:_FINGERPRINT_BYTES]


@cache
def _codec(kind: Any) -> _Codec:
    while hasattr(kind, "__supertype__"):  # a NewType
        kind = kind.__supertype__
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _enumeration(kind)
    if is_dataclass(kind):
        return _of_fields(cast("type", kind))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType) and type(None) in arguments:
        (inner,) = (one for one in arguments if one is not type(None))
        return _optional(_codec(inner))
    if origin is tuple and arguments[1:] == (...,):
        return _tuple_of(arguments[0])
    if origin is frozenset:
        return _set_of(_codec(arguments[0]))
    if origin in (Mapping, dict):
        return _mapping_of(arguments[0], arguments[1])
    raise TypeError(f"{kind} has no canonical encoding")


def _same(value: Any) -> Any:
    return value


def _pack_int(value: int) -> int | bytes:
    if -_INT64 <= value < _INT64:
        return int(value)
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _unpack_int(value: int | bytes) -> int:
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value


def _pack_ints(values: Sequence[int]) -> list[int | bytes]:
    if not values or (min(values) >= -_INT64 and max(values) < _INT64):
        return list(values)
    return [_pack_int(one) for one in values]


def _unpack_ints(values: Sequence[int | bytes]) -> Sequence[int]:
    return [_unpack_int(one) for one in values]


def _float(value: float) -> float:
    return float(value) + 0.0  # the zero has no sign


def _floats(values: Sequence[float]) -> list[float]:
    return [float(value) + 0.0 for value in values]


_PLAIN: dict[Any, _Codec] = {
    bool: _Codec(bool, bool, "bool", list, _same),
    int: _Codec(_pack_int, _unpack_int, "int", _pack_ints, _unpack_ints),
    float: _Codec(_float, float, "float", _floats, _same),
    str: _Codec(str, _same, "str", list, _same),
    bytes: _Codec(bytes, _same, "bytes", list, _same),
}


def _enumeration(kind: type[StrEnum]) -> _Codec:
    name = f"{kind.__name__}({','.join(kind)})"
    return _Codec(
        str,
        kind,
        name,
        lambda values: list(map(str, values)),
        lambda values: list(map(kind, values)),
    )


def _of_fields(kind: type) -> _Codec:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    codecs = [_codec(hints[name]) for name in names]

    def pack(value: Any) -> list[Any]:
        return [codec.pack(getattr(value, name)) for name, codec in zip(names, codecs, strict=True)]

    def unpack(value: Any) -> Any:
        return kind(*(codec.unpack(one) for codec, one in zip(codecs, value, strict=True)))

    described = ",".join(f"{name}:{codec.name}" for name, codec in zip(names, codecs, strict=True))
    return _Codec(pack, unpack, f"{kind.__name__}({described})")


def _optional(inner: _Codec) -> _Codec:
    return _Codec(
        lambda value: None if value is None else inner.pack(value),
        lambda value: None if value is None else inner.unpack(value),
        f"{inner.name}?",
        list if inner.pack_all is list else None,
        inner.unpack_all if inner.pack_all is list else None,
    )


def _tuple_of(kind: Any) -> _Codec:
    inner = _codec(kind)
    if not is_dataclass(kind):
        pack_all = inner.pack_all or (lambda values: [inner.pack(one) for one in values])
        unpack_all = inner.unpack_all or (lambda values: [inner.unpack(one) for one in values])
        return _Codec(pack_all, lambda values: tuple(unpack_all(values)), f"[{inner.name}]")
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    columns = [_tuple_of(hints[name]) for name in names]

    def pack(values: Any) -> list[Any]:
        return [
            len(values),
            *(
                column.pack(list(map(attrgetter(name), values)))
                for name, column in zip(names, columns, strict=True)
            ),
        ]

    def unpack(value: Any) -> tuple[Any, ...]:
        count, *packed = value
        read = [column.unpack(one) for column, one in zip(columns, packed, strict=True)]
        if any(len(one) != count for one in read):
            raise ValueError("columns of different lengths")
        return tuple(map(cast("type", kind), *read)) if read else ()

    return _Codec(pack, unpack, f"[{inner.name}]")


def _set_of(inner: _Codec) -> _Codec:
    return _Codec(
        lambda values: [inner.pack(one) for one in sorted(values)],
        lambda values: frozenset(inner.unpack(one) for one in values),
        f"{{{inner.name}}}",
    )


def _mapping_of(key: Any, value: Any) -> _Codec:
    keys, values = _tuple_of(key), _tuple_of(value)

    def pack(mapping: Mapping[Any, Any]) -> list[Any]:
        names = sorted(mapping)
        return [keys.pack(names), values.pack([mapping[name] for name in names])]

    def unpack(packed: Any) -> dict[Any, Any]:
        names, read = packed
        return dict(zip(keys.unpack(names), values.unpack(read), strict=True))

    return _Codec(pack, unpack, f"<{keys.name}={values.name}>")
