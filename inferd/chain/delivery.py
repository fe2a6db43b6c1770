"""Hands an output to the contract that asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eth_utils.address import to_checksum_address

from indexer.errors import ExitCode, OperatorError
from indexer.events import CallbackDelivered, CallbackFailed
from indexer.rpc import Rpc
from indexer.types import Address, Contracts, Hash32
from inferd.chain.connect import read_view
from inferd.chain.events import events_in
from inferd.chain.requester import OnChainRequest, check_result, read_request
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.request import Delivery
from inferd.protocol.reverts import decode_revert

_ERROR_WITH_TEXT = bytes.fromhex("08c379a0")
"""Selector of Solidity's own `Error(string)`."""
_TEXT_AT = 4 + 2 * 32
"""Behind the selector, the text's offset and its length."""


class NoCallback(OperatorError):
    """No contract waits for this output, or not any more."""

    code: ClassVar[str] = "no_callback"


class CallbackFailure(OperatorError):
    """The consumer was called and reverted; it can be called again."""

    code: ClassVar[str] = "callback_failed"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


@dataclass(frozen=True, slots=True)
class Delivered:
    """A consumer that has its output."""

    consumer: Address
    tx_hash: Hash32
    gas_used: int


async def read_callback_request(rpc: Rpc, contracts: Contracts, request_id: int) -> OnChainRequest:
    """Raises RequestNotFound, and NoCallback where the request asked for none."""
    request = await read_request(rpc, contracts, request_id)
    if request.params.delivery is not Delivery.CALLBACK:
        raise NoCallback(
            f"request {request_id} asked for delivery {request.params.delivery.name.lower()}",
            help_text="only contracts that asked with delivery callback are called",
        )
    return request


async def deliver(
    sender: Sender, contracts: Contracts, request_id: int, output: bytes
) -> Delivered:
    """Calls the consumer with an output whose digest is the one on chain; anyone may.

    Raises DigestMismatch, NoCallback, CallbackFailure, what `check_result` raises and what
    `Sender.send` raises.
    """
    request = await read_callback_request(sender.rpc, contracts, request_id)
    checked = await check_result(sender.rpc, contracts, request_id, output)
    asked = (request_id, request.commitment, checked.digest)
    (owed,) = await read_view(
        sender.rpc, contracts.requests, "InferenceRequests", "owesCallback", asked
    )
    if not owed:
        raise _too_late(request_id)
    data = calls.deliver([(request_id, request.requester, request.params, output)])
    receipt = await sender.send(contracts.results, data)
    if events_in(receipt, contracts, contracts.results, CallbackDelivered):
        return Delivered(request.requester, receipt.tx_hash, receipt.gas_used)
    for failed in events_in(receipt, contracts, contracts.results, CallbackFailed):
        raise CallbackFailure(
            f"{to_checksum_address(failed.consumer)} refused the output of request {request_id}"
            f" with {describe_reason(failed.reason)}, in transaction 0x{receipt.tx_hash.hex()}",
            help_text="correct what it names and deliver again; the worker is paid already",
        )
    raise _too_late(request_id)


def describe_reason(reason: bytes) -> str:
    """What a consumer returned, of which the chain keeps the first 128 bytes."""
    if not reason:
        return "no reason (out of gas, or no code)"
    if reason[:4] == _ERROR_WITH_TEXT and len(reason) >= _TEXT_AT:
        length = int.from_bytes(reason[_TEXT_AT - 32 : _TEXT_AT], "big")
        text = reason[_TEXT_AT : _TEXT_AT + length]
        cut = "…" if len(text) < length else ""
        return repr(text.decode(errors="replace") + cut)
    return decode_revert(reason) or "0x" + reason.hex()


def _too_late(request_id: int) -> NoCallback:
    return NoCallback(
        f"the output of request {request_id} was delivered already",
        help_text="its contract is called once",
    )
