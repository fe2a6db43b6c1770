"""The contracts' custom errors, read back into words."""

from __future__ import annotations

from functools import cache
from typing import Any

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_utils.crypto import keccak

from inferd.protocol.artifacts import CONTRACTS, load

_ADVICE = {
    "RequestsPaused": "the owner has stopped new requests: `inferd admin show` says whether still",
    "QuorumOutOfRange": "name a quorum within these bounds; the model's terms may set the lower",
    "DeadlineNotInFuture": "choose a later deadline",
    "CallbackNeedsCode": "only a contract can be called back: ask for another delivery",
    "CallbackGasOutOfRange": "only with delivery callback, and up to this bound, is gas reserved",
    "NotContractOwner": "only the deployment's owner may: `inferd admin show` names it",
    "NotPendingOwner": "the owner offers it first, with `inferd admin offer-ownership`",
    "VerifierWithoutCode": "deploy the verifier first, or correct its address",
    "WindowTooLong": "choose a window up to this bound: rulings must come before a stake is gone",
    "BondZero": "set a bond: without one, anybody could hold back payments for nothing",
    "NotArbiter": "only the arbiter may: `inferd admin show` names it",
    "NotHeld": "look at it with `inferd dispute show`",
    "NotDisputed": "look at it with `inferd dispute show`",
    "WindowClosed": "the result stands: it can be disputed only within its window",
    "WrongBond": "send exactly the bond",
    "RulingTooLate": "end the dispute with `inferd dispute close`: its time for a ruling is over",
    "RulingStillPossible": "try again after that time, if the arbiter has not ruled",
    "CommitmentMismatch": "requester and parameters are not those of the request",
    "NotPending": "look at it with `inferd why`",
    "NoEquivocation": "one worker must have signed two digests for the same id and commitment",
    "NoSuchItem": "the group must be whole items of 60 bytes, and the index one of them, from 0",
    "BadSignature": "give the signature as the worker made it",
    "Barred": "it was shown to have signed two digests, and can never stake again",
    "NotOwner": "only the worker's owner may: use that key as `owner` in the settings",
    "NotRegistered": "register the worker first, with `inferd worker register`",
    "InsufficientGas": "give the transaction more gas: each consumer must get all it was promised",
    "TransferFailed": "the receiver refuses ether: name another with `--to`",
}


def revert_advice(data: object) -> str | None:
    """What to do about a custom error of ours; None where there is nothing particular."""
    found = _find(data)
    return _ADVICE.get(found[0]) if found else None


def decode_revert(data: object) -> str | None:
    """`Name(argument=value, ...)` of revert data (bytes or hex text); None where it is not ours."""
    found = _find(data)
    if found is None:
        return None
    name, inputs, arguments = found
    try:
        values = decode([entry["type"] for entry in inputs], arguments)
    except DecodingError:
        return name
    shown = (
        f"{entry['name']}={'0x' + value.hex() if isinstance(value, bytes) else value}"
        for entry, value in zip(inputs, values, strict=True)
    )
    return f"{name}({', '.join(shown)})"


def _find(data: object) -> tuple[str, list[dict[str, Any]], bytes] | None:
    if isinstance(data, str):
        try:
            data = bytes.fromhex(data.removeprefix("0x"))
        except ValueError:
            return None
    if not isinstance(data, bytes) or len(data) < 4:
        return None
    known = _errors().get(data[:4])
    return None if known is None else (*known, data[4:])


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
