"""Calldata, return values, errors and events of several contracts, by their ABIs alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eth_abi.abi import decode, encode
from eth_utils.crypto import keccak

_PANIC = keccak(text="Panic(uint256)")[:4]


@dataclass(frozen=True, slots=True)
class Event:
    """A log: which contract by its role, which event, its arguments in ABI order."""

    contract: str
    name: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _EventType:
    name: str
    types: tuple[str, ...]
    indexed: tuple[bool, ...]


class Abi:
    """What one kind of contract understands and says."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._functions: dict[str, tuple[bytes, list[str], list[str]]] = {}
        self._events: dict[bytes, _EventType] = {}
        self.errors: dict[bytes, tuple[str, list[str]]] = {}
        for entry in entries:
            name, inputs = entry.get("name", ""), _types(entry.get("inputs", []))
            full = keccak(text=f"{name}({','.join(inputs)})")
            if entry["type"] == "function":
                self._functions[name] = (full[:4], inputs, _types(entry["outputs"]))
            elif entry["type"] == "error":
                self.errors[full[:4]] = (name, inputs)
            elif entry["type"] == "event":
                indexed = tuple(bool(argument["indexed"]) for argument in entry["inputs"])
                self._events[full] = _EventType(name, tuple(inputs), indexed)

    @property
    def event_names(self) -> set[str]:
        return {kind.name for kind in self._events.values()}

    def call(self, function: str, arguments: tuple[Any, ...] = ()) -> bytes:
        selector, inputs, _ = self._functions[function]
        return selector + encode(inputs, arguments)

    def returned(self, function: str, data: bytes) -> Any:
        """One value as it is, several as a tuple, none as None."""
        outputs = self._functions[function][2]
        values = _with_bytes(decode(outputs, data))
        return None if not values else values[0] if len(values) == 1 else values

    def event(self, role: str, log: dict[str, Any]) -> Event:
        topics = [bytes.fromhex(topic[2:]) for topic in log["topics"]]
        kind = self._events[topics[0]]
        plain = [t for t, indexed in zip(kind.types, kind.indexed, strict=True) if not indexed]
        in_data = iter(_with_bytes(decode(plain, bytes.fromhex(log["data"][2:]))))
        in_topics = iter(topics[1:])
        args = tuple(
            _with_bytes(decode([t], next(in_topics)))[0] if indexed else next(in_data)
            for t, indexed in zip(kind.types, kind.indexed, strict=True)
        )
        return Event(role, kind.name, args)


def error_of(known: dict[bytes, tuple[str, list[str]]], data: bytes) -> tuple[Any, ...]:
    """What a call reverted with: the error's name and arguments."""
    if not data:
        return ("Empty",)
    if data[:4] == _PANIC:
        return ("Panic", int.from_bytes(data[4:], "big"))
    name, types = known[data[:4]]
    return (name, *_with_bytes(decode(types, data[4:])))


def words(*values: int | bytes) -> bytes:
    """Static values as the ABI packs them: addresses and numbers right, fixed bytes left."""
    return b"".join(
        value.to_bytes(32, "big")
        if isinstance(value, int)
        else value.rjust(32, b"\0")
        if isinstance(value, Address)
        else value.ljust(32, b"\0")
        for value in values
    )


class Address(bytes):
    """20 bytes that name an account; a type of its own because the ABI pads it on the left."""

    __slots__ = ()


NOBODY = Address(20)


def _types(arguments: list[dict[str, Any]]) -> list[str]:
    return [_type(argument) for argument in arguments]


def _type(argument: dict[str, Any]) -> str:
    name: str = argument["type"]
    if not name.startswith("tuple"):
        return name
    return f"({','.join(_types(argument['components']))}){name.removeprefix('tuple')}"


def _with_bytes(value: Any) -> Any:
    """Addresses come as text; the tests' only texts are endpoints, which are shorter."""
    if isinstance(value, str) and len(value) == 42 and value.startswith("0x"):
        return Address(bytes.fromhex(value[2:]))
    if isinstance(value, (tuple, list)):
        return tuple(_with_bytes(item) for item in value)
    return value
