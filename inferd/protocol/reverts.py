"""The contracts' custom errors, read back into words."""

from __future__ import annotations

from functools import cache
from typing import Any

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_utils.crypto import keccak

from inferd.protocol.artifacts import CONTRACTS, load


def decode_revert(data: object) -> str | None:
    """`Name(argument=value, ...)` of revert data (bytes or hex text); None where it is not ours."""
    if isinstance(data, str):
        try:
            data = bytes.fromhex(data.removeprefix("0x"))
        except ValueError:
            return None
    if not isinstance(data, bytes) or len(data) < 4:
        return None
    known = _errors().get(data[:4])
    if known is None:
        return None
    name, inputs = known
    try:
        values = decode([entry["type"] for entry in inputs], data[4:])
    except DecodingError:
        return name
    shown = (
        f"{entry['name']}={'0x' + value.hex() if isinstance(value, bytes) else value}"
        for entry, value in zip(inputs, values, strict=True)
    )
    return f"{name}({', '.join(shown)})"


@cache
def _errors() -> dict[bytes, tuple[str, list[dict[str, Any]]]]:
    found = {}
    for contract in CONTRACTS:
        for entry in load(contract).abi:
            if entry["type"] == "error":
                types = ",".join(item["type"] for item in entry["inputs"])
                selector = keccak(text=f"{entry['name']}({types})")[:4]
                found[selector] = (entry["name"], entry["inputs"])
    return found
