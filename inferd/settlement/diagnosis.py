"""Why a mined transaction failed: its trace where the node makes traces, else its replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from indexer.database import plain_text
from indexer.rpc import Receipt, RpcError
from indexer.rpc.refusals import is_revert
from indexer.types import Address
from inferd.protocol.reverts import decode_revert
from inferd.settlement.chain import ChainRpc
from inferd.settlement.records import Attempt, Intent

_log = structlog.get_logger("settlement")
_MOST_CHARACTERS = 500
_ERROR_STRING = bytes.fromhex("08c379a0")
"""Selector of Solidity's Error(string)."""


async def diagnose(
    rpc: ChainRpc, sender: Address, intent: Intent, attempt: Attempt, receipt: Receipt
) -> str:
    """In one line; a custom error of ours by name and arguments. Raises RpcUnreachable."""
    found = await _traced(rpc, receipt) or await _replayed(rpc, sender, intent, attempt, receipt)
    return plain_text(found)[:_MOST_CHARACTERS]


async def _traced(rpc: ChainRpc, receipt: Receipt) -> str | None:
    """None where the node does not trace."""
    try:
        call = await rpc.request(
            "debug_traceTransaction", ["0x" + receipt.tx_hash.hex(), {"tracer": "callTracer"}]
        )
    except RpcError as error:
        _log.info("no_trace", tx_hash="0x" + receipt.tx_hash.hex(), error=error.message)
        return None
    if not isinstance(call, Mapping) or not call.get("error"):
        return None
    return in_words(call.get("output"), str(call.get("revertReason") or call["error"]))


async def _replayed(
    rpc: ChainRpc, sender: Address, intent: Intent, attempt: Attempt, receipt: Receipt
) -> str:
    """On the state before its block; what came before it in the block is not replayed."""
    number = hex(receipt.block_number - 1)
    message = {
        "from": "0x" + sender.hex(),
        "to": "0x" + intent.target.hex(),
        "data": "0x" + intent.calldata.hex(),
        "gas": hex(attempt.gas_limit),
        "value": hex(attempt.value_wei),
    }
    try:
        await rpc.request("eth_call", [message, number])
    except RpcError as error:
        if is_revert(error):
            return in_words(error.data, error.message)
        return f"the node does not replay it: {error.message}"
    return "it passes on the state before its block: something in the block came before it"


def in_words(data: Any, otherwise: str) -> str:
    """Revert data as bytes or hex text: our custom error, Solidity's text, or the node's words."""
    ours = decode_revert(data)
    if ours is not None:
        return ours
    if isinstance(data, str):
        try:
            data = bytes.fromhex(data.removeprefix("0x"))
        except ValueError:
            return otherwise
    if isinstance(data, bytes) and data.startswith(_ERROR_STRING) and len(data) >= 68:
        length = int.from_bytes(data[36:68], "big")
        return data[68 : 68 + min(length, _MOST_CHARACTERS)].decode("utf-8", "replace")
    return otherwise
