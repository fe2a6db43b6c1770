"""Whether what a remote signer gave back is what it was asked to sign. Pure.

A transaction goes out as it came back, so every byte of it has to be one that was asked for: the
fields that were asked for are encoded again with the signature that came, and have to give the same
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eth_account.typed_transactions.dynamic_fee_transaction import DynamicFeeTransaction
from eth_keys.datatypes import Signature
from eth_utils.address import to_canonical_address
from eth_utils.crypto import keccak
from eth_utils.hexadecimal import decode_hex
from hexbytes import HexBytes

from indexer.types import Address, Hash32
from inferd.settlement.keys import SignedTx

_FIELDS = (
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
_TYPE = 2
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
    """The signed bytes with their hash. `asked` is an EIP-1559 transaction in web3's field names,
    without an access list. Raises NotWhatWasAsked."""
    if raw[:1] != bytes([_TYPE]):
        raise NotWhatWasAsked("it is no transaction of type 2")
    try:
        came = DynamicFeeTransaction.from_bytes(HexBytes(raw)).dictionary
        v, r, s = (int(came[name]) for name in "vrs")
    except Exception:  # whatever a decoder says of foreign bytes
        raise NotWhatWasAsked("it cannot be read as a transaction") from None
    if v not in (0, 1) or not 0 < s <= _HALF_ORDER:
        raise NotWhatWasAsked("its signature is not canonical")
    transaction = DynamicFeeTransaction.from_dict(
        {**asked, "type": _TYPE, "accessList": (), "v": v, "r": r, "s": s}
    )
    if bytes([_TYPE]) + transaction.payload() != raw:
        raise NotWhatWasAsked(_difference(came, asked))
    unsigned = DynamicFeeTransaction.from_dict({**asked, "type": _TYPE, "accessList": ()})
    try:
        key = Signature(vrs=(v, r, s)).recover_public_key_from_msg_hash(unsigned.hash())
    except Exception:  # eth_keys has several kinds of its own
        raise NotWhatWasAsked("its signature is of no key") from None
    if key.to_canonical_address() != address:
        raise NotWhatWasAsked("another account signed it")
    return SignedTx(raw, Hash32(keccak(raw)))


def _difference(came: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """In words, of two transactions that are not encoded alike."""
    wanted = {**asked, "to": to_canonical_address(asked["to"]), "accessList": ()}
    for name in _FIELDS:
        if _plain(came[name]) != _plain(wanted[name]):
            return f"its {name} is another one"
    return "its encoding is another one"


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return tuple(value) if isinstance(value, (list, tuple)) else value
