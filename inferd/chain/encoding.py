"""The bytes of transactions of type 0 and type 2 (EIP-155, EIP-1559), before and after signing.
Pure. Transactions are in web3's field names, without an access list; one without `to` creates a
contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rlp
from eth_utils.address import to_canonical_address

_DYNAMIC = b"\x02"


def is_dynamic(transaction: Mapping[str, Any]) -> bool:
    """False for one of type 0, which has a gas price."""
    return "gasPrice" not in transaction


def unsigned(transaction: Mapping[str, Any]) -> bytes:
    """What is hashed to be signed."""
    if is_dynamic(transaction):
        return _DYNAMIC + _encode(_dynamic_fields(transaction))
    return _encode([*_legacy_fields(transaction), transaction["chainId"], 0, 0])


def signed(transaction: Mapping[str, Any], parity: int, r: int, s: int) -> bytes:
    """What is sent."""
    if is_dynamic(transaction):
        return _DYNAMIC + _encode([*_dynamic_fields(transaction), parity, r, s])
    return _encode([*_legacy_fields(transaction), v_of(transaction, parity), r, s])


def v_of(transaction: Mapping[str, Any], parity: int) -> int:
    """The signature's v of a transaction of type 0 (EIP-155)."""
    return 35 + 2 * int(transaction["chainId"]) + parity


def receiver_of(transaction: Mapping[str, Any]) -> bytes:
    """20 bytes; none where a contract is created."""
    to = transaction.get("to")
    return b"" if to is None else to_canonical_address(to)


def _dynamic_fields(transaction: Mapping[str, Any]) -> list[Any]:
    return [
        transaction["chainId"],
        transaction["nonce"],
        transaction["maxPriorityFeePerGas"],
        transaction["maxFeePerGas"],
        transaction["gas"],
        receiver_of(transaction),
        transaction["value"],
        bytes(transaction["data"]),
        [],
    ]


def _legacy_fields(transaction: Mapping[str, Any]) -> list[Any]:
    return [
        transaction["nonce"],
        transaction["gasPrice"],
        transaction["gas"],
        receiver_of(transaction),
        transaction["value"],
        bytes(transaction["data"]),
    ]


def _encode(fields: list[Any]) -> bytes:
    encoded: bytes = rlp.encode(fields)
    return encoded
