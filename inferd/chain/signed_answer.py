"""Whether what a remote signer gave back is what it was asked to sign. Pure.

A transaction goes out as it came back, so every byte of it has to be one that was asked for: the
fields that were asked for are encoded again with the signature that came, and have to give the same
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rlp
from eth_account.typed_transactions.dynamic_fee_transaction import DynamicFeeTransaction
from eth_keys.datatypes import Signature
from eth_utils.crypto import keccak
from eth_utils.hexadecimal import decode_hex
from hexbytes import HexBytes

from indexer.types import Address, Hash32
from inferd.chain.encoding import is_dynamic, receiver_of, signed, unsigned, v_of
from inferd.chain.signers import SignedTx

_DYNAMIC_FIELDS = (
    "chainId",
    "nonce",
    "to",
    "value",
    "data",
    "gas",
    "maxFeePerGas",
    "maxPriorityFeePerGas",
    "accessList",
)
_LEGACY_FIELDS = ("nonce", "gasPrice", "gas", "to", "value", "data")
_BYTE_FIELDS = (3, 5)
"""The places of `to` and `data` among these."""
_DYNAMIC_TYPE = 2
_HALF_ORDER = 0x7FFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFF_5D576E73_57A4501D_DFE92F46_681B20A0
"""Of secp256k1: a higher s is refused by every node (EIP-2)."""


class NotWhatWasAsked(Exception):
    """The answer is no signature of the transaction that was asked for. Says in what it differs,
    and never what came instead."""


def raw_of(answer: object) -> bytes:
    """The signed bytes of an answer of eth_signTransaction: hex text (web3signer), or an object
    with `raw` and, in `tx`, a hash that is compared (geth, clef). Raises NotWhatWasAsked."""
    named = None
    if isinstance(answer, dict):
        inner = answer.get("tx")
        named = inner.get("hash") if isinstance(inner, dict) else None
        answer = answer.get("raw")
    if not isinstance(answer, str) or not answer.startswith("0x"):
        raise NotWhatWasAsked("it is no hex text")
    try:
        raw = decode_hex(answer)
    except ValueError:
        raise NotWhatWasAsked("it is no hex text") from None
    if named is not None and named != "0x" + keccak(raw).hex():
        raise NotWhatWasAsked("the hash it names is another one")
    return raw


def checked(raw: bytes, asked: Mapping[str, Any], address: Address) -> SignedTx:
    """The signed bytes with their hash. `asked` is a transaction of type 2, or of type 0 where it
    has a gas price, in web3's field names and without an access list. Raises NotWhatWasAsked."""
    came, parity, r, s = _read(raw, asked)
    if not 0 < s <= _HALF_ORDER:
        raise NotWhatWasAsked("its signature is not canonical")
    if signed(asked, parity, r, s) != raw:
        raise NotWhatWasAsked(_difference(came, asked))
    try:
        signature = Signature(vrs=(parity, r, s))
        key = signature.recover_public_key_from_msg_hash(keccak(unsigned(asked)))
    except Exception:  # eth_keys has several kinds of its own
        raise NotWhatWasAsked("its signature is of no key") from None
    if key.to_canonical_address() != address:
        raise NotWhatWasAsked("another account signed it")
    return SignedTx(raw, Hash32(keccak(raw)))


def _read(raw: bytes, asked: Mapping[str, Any]) -> tuple[Mapping[str, Any], int, int, int]:
    """The fields that came, and their signature: parity of y, r and s."""
    if is_dynamic(asked):
        if raw[:1] != bytes([_DYNAMIC_TYPE]):
            raise NotWhatWasAsked("it is no transaction of type 2")
        try:
            came = DynamicFeeTransaction.from_bytes(HexBytes(raw)).dictionary
            parity, r, s = (int(came[name]) for name in "vrs")
        except Exception:  # whatever a decoder says of foreign bytes
            raise NotWhatWasAsked("it cannot be read as a transaction") from None
        if parity not in (0, 1):
            raise NotWhatWasAsked("its signature is not canonical")
        return came, parity, r, s
    try:
        *fields, v, signed_r, signed_s = (bytes(field) for field in rlp.decode(raw))
        values = [
            field if at in _BYTE_FIELDS else _number(field) for at, field in enumerate(fields)
        ]
        came = dict(zip(_LEGACY_FIELDS, values, strict=True))
        parity = _number(v) - v_of(asked, 0)
    except Exception:  # whatever a decoder says of foreign bytes
        raise NotWhatWasAsked("it cannot be read as a transaction of type 0") from None
    if parity not in (0, 1):
        raise NotWhatWasAsked("it is signed for another chain")
    return came, parity, _number(signed_r), _number(signed_s)


def _difference(came: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """In words, of two transactions that are not encoded alike."""
    wanted = {**asked, "to": receiver_of(asked), "accessList": ()}
    for name in _DYNAMIC_FIELDS if is_dynamic(asked) else _LEGACY_FIELDS:
        if _plain(came[name]) != _plain(wanted[name]):
            return f"its {name} is another one"
    return "its encoding is another one"


def _number(octets: bytes) -> int:
    return int.from_bytes(octets, "big")


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return tuple(value) if isinstance(value, (list, tuple)) else value
