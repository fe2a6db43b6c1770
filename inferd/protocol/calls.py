"""Calldata for the contracts' functions, and what their views return."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from eth_abi.abi import decode
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.address import to_checksum_address

from indexer.types import Address, Hash32, Wei
from inferd.protocol.artifacts import load
from inferd.protocol.hold import Hold
from inferd.protocol.request import RequestParams
from inferd.protocol.result import SignedItem
from inferd.protocol.terms import ModelTerms
from inferd.protocol.typed_data import CompactSignature

if TYPE_CHECKING:
    from eth_abi.codec import ABICodec
    from web3.contract import Contract


@cache
def codec(name: str) -> type[Contract]:
    """The ABI codec of one contract; it talks to no chain."""
    from web3 import Web3  # noqa: PLC0415 - takes half a second, and few commands need it

    return Web3().eth.contract(abi=load(name).abi)


def submit(params: RequestParams) -> bytes:
    return _encode("InferenceRequests", "submit", [params.as_abi()])


def submit_many(params: Sequence[RequestParams], fees_wei: Sequence[Wei]) -> bytes:
    values = [[item.as_abi() for item in params], list(fees_wei)]
    return _encode("InferenceRequests", "submitMany", values)


def raise_fee(request_id: int) -> bytes:
    return _encode("InferenceRequests", "raiseFee", [request_id])


def request_cancel(request_id: int, hash_of_params: Hash32) -> bytes:
    return _encode("InferenceRequests", "requestCancel", [request_id, hash_of_params])


def refund(claims: Sequence[tuple[int, Address, Hash32]]) -> bytes:
    """Claims are (id, requester, params hash)."""
    values = [(request_id, to_checksum_address(who), hashed) for request_id, who, hashed in claims]
    return _encode("InferenceRequests", "refund", [values])


def withdraw() -> bytes:
    """The sender's whole credit, to the sender."""
    return _encode("InferenceRequests", "withdraw", [])


def withdraw_to(to: Address) -> bytes:
    return _encode("InferenceRequests", "withdrawTo", [to_checksum_address(to)])


def credit(account: Address) -> bytes:
    """What is sent along is the account's."""
    return _encode("InferenceRequests", "credit", [to_checksum_address(account)])


def post(
    groups: Sequence[tuple[bytes, Sequence[CompactSignature]]], decisions_root: Hash32
) -> bytes:
    """Groups are (packed items, signatures over them)."""
    values = [
        (items, [(signature[:32], signature[32:]) for signature in signatures])
        for items, signatures in groups
    ]
    return _encode("InferenceResults", "post", [values, decisions_root])


def post_proven(
    groups: Sequence[tuple[bytes, Sequence[CompactSignature], Sequence[bytes]]],
    decisions_root: Hash32,
) -> bytes:
    """Groups are (packed items, signatures over them, a proof for each item); the proof of an item
    whose request has no verifier is empty."""
    values = [
        (items, [(signature[:32], signature[32:]) for signature in signatures], list(proofs))
        for items, signatures, proofs in groups
    ]
    return _encode("InferenceResults", "postProven", [values, decisions_root])


def deliver(claims: Sequence[tuple[int, Address, RequestParams, bytes]]) -> bytes:
    """Claims are (id, requester, parameters as submitted, output)."""
    values = [
        (request_id, to_checksum_address(who), params.as_abi(), output)
        for request_id, who, params, output in claims
    ]
    return _encode("InferenceResults", "deliver", [values])


def register_worker(
    signer: Address,
    models: Sequence[bytes],
    endpoint: str,
    slots: int,
    memory_mb: int,
    consent: CompactSignature,
) -> bytes:
    info = (to_checksum_address(signer), list(models), endpoint, slots, memory_mb)
    return _encode("WorkerRegistry", "register", [info, (consent[:32], consent[32:])])


def update_worker(
    signer: Address, models: Sequence[bytes], endpoint: str, slots: int, memory_mb: int
) -> bytes:
    info = (to_checksum_address(signer), list(models), endpoint, slots, memory_mb)
    return _encode("WorkerRegistry", "update", [info])


def stake(signer: Address) -> bytes:
    return _encode("StakeManager", "stake", [to_checksum_address(signer)])


def unstake(signer: Address, amount_wei: Wei) -> bytes:
    return _encode("StakeManager", "unstake", [to_checksum_address(signer), amount_wei])


def withdraw_stake(signer: Address, to: Address) -> bytes:
    values = [to_checksum_address(signer), to_checksum_address(to)]
    return _encode("StakeManager", "withdrawStake", values)


def slash_equivocation(one: SignedItem, other: SignedItem) -> bytes:
    return _encode("StakeManager", "slashEquivocation", [one.as_abi(), other.as_abi()])


def open_dispute(held: Hold) -> bytes:
    return _encode("Disputes", "open", [held.as_abi()])


def rule(held: Hold, *, upheld: bool, requester: Address, hash_of_params: Hash32) -> bytes:
    """`upheld`: the disputer was right."""
    values = [held.as_abi(), upheld, to_checksum_address(requester), hash_of_params]
    return _encode("Disputes", "rule", values)


def close_dispute(held: Hold) -> bytes:
    return _encode("Disputes", "close", [held.as_abi()])


def release(holds: Sequence[Hold]) -> bytes:
    return _encode("Disputes", "release", [[held.as_abi() for held in holds]])


def set_arbiter(arbiter: Address) -> bytes:
    return _encode("Disputes", "setArbiter", [to_checksum_address(arbiter)])


def set_paused(paused: bool) -> bytes:
    return _encode("InferenceRequests", "setPaused", [paused])


def set_model_terms(terms: ModelTerms) -> bytes:
    return _encode("InferenceRequests", "setModelTerms", [terms.as_abi()])


def offer_ownership(to: Address) -> bytes:
    return _encode("InferenceRequests", "offerOwnership", [to_checksum_address(to)])


def accept_ownership() -> bytes:
    return _encode("InferenceRequests", "acceptOwnership", [])


def view(contract: str, function: str, arguments: Sequence[Any] = ()) -> bytes:
    """Calldata of a view function."""
    return _encode(contract, function, arguments)


def decode_view(contract: str, function: str, returned: bytes) -> tuple[Any, ...]:
    """The values a view returned, in ABI order; addresses as 0x-text in lower case.

    Raises eth_abi's DecodingError on foreign bytes.
    """
    return decode(_output_types(contract, function), returned)


@cache
def _output_types(contract: str, function: str) -> list[str]:
    abi = codec(contract).get_function_by_name(function).abi
    return [_type_of(output) for output in abi["outputs"]]


@cache
def _input_types(contract: str, function: str) -> tuple[bytes, list[str]]:
    """The function's selector and its arguments' types."""
    abi = codec(contract).get_function_by_name(function).abi
    types = [_type_of(argument) for argument in abi["inputs"]]
    return function_signature_to_4byte_selector(f"{function}({','.join(types)})"), types


def _type_of(output: Any) -> str:
    if not output["type"].startswith("tuple"):
        return str(output["type"])
    inner = ",".join(_type_of(component) for component in output["components"])
    return f"({inner}){output['type'].removeprefix('tuple')}"


@cache
def _strict() -> ABICodec:
    """Refuses bytes that are shorter than their type, which eth_abi alone would fill up."""
    from web3 import Web3  # noqa: PLC0415 - as in `codec`

    return Web3().codec


def _encode(contract: str, function: str, arguments: Sequence[Any]) -> bytes:
    # web3's own `encode_abi` looks the function up each time, in ten times as long.
    selector, types = _input_types(contract, function)
    return selector + _strict().encode(types, arguments)
