"""Chains that differ from Anvil's, played before it: what they lack, add and refuse."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import rlp
from eth_account import Account

from tests.faults.exchange import Exchange

_NOT_FOUND = {"code": -32601, "message": "the method does not exist/is not available"}
_BASE_FEE_METHODS = frozenset({"eth_maxPriorityFeePerGas", "eth_feeHistory"})
_BLOCK_METHODS = frozenset({"eth_getBlockByNumber", "eth_getBlockByHash"})


@dataclass
class LegacyChain:
    """A fault that takes EIP-1559 from the node behind a proxy: its headers have no base fee, what
    suggests tips is gone, and transactions of type 2 are refused in geth's words.

    Unlike Anvil, it takes a dearer transaction only where its price is a tenth higher.
    """

    raws: list[bytes] = field(default_factory=list)
    """Transactions that were sent to it."""
    _prices: dict[tuple[str, int], tuple[bytes, int]] = field(default_factory=dict)
    """By sender and nonce, what it took last and at which price."""

    async def apply(self, exchange: Exchange) -> None:
        if exchange.methods & _BASE_FEE_METHODS:
            exchange.fail_all(_NOT_FOUND)
        elif exchange.methods & _BLOCK_METHODS:
            await exchange.change_results(lambda _, block: _without(block, "baseFeePerGas"))
        elif exchange.methods == {"eth_sendRawTransaction"}:
            (call,) = exchange.calls
            raw = bytes.fromhex(call["params"][0].removeprefix("0x"))
            self.raws.append(raw)
            if raw[0] < 0xC0:  # typed: not a list
                exchange.fail_all({"code": -32000, "message": "transaction type not supported"})
            elif not self._takes(raw):
                error = {"code": -32000, "message": "replacement transaction underpriced"}
                exchange.fail_all(error)

    def _takes(self, raw: bytes) -> bool:
        nonce, price = (int.from_bytes(part, "big") for part in rlp.decode(raw)[:2])
        account = Account.recover_transaction(raw)
        known, before = self._prices.get((account, nonce), (raw, 0))
        if raw != known and price * 10 < before * 11:
            return False
        self._prices[account, nonce] = raw, price
        return True


@dataclass
class OpChain:
    """A fault that gives receipts what those of an OP-stack chain have: the fee for the bytes that
    the oracle at `oracle` asks, and the parameters of the operator's fee."""

    oracle: str

    async def apply(self, exchange: Exchange) -> None:
        if exchange.methods != {"eth_getTransactionReceipt"}:
            return
        (answer,) = await exchange.answers()
        receipt = answer.get("result")
        if receipt is None:
            return
        (call,) = exchange.calls
        raw = await exchange.result_of("eth_getRawTransactionByHash", *call["params"])
        size = len(raw) // 2 - 1 - 65
        calldata = "0x" + _selector_of_fee() + _abi_bytes(bytes(size)).hex()
        where = {"blockHash": receipt["blockHash"]}
        fee = await exchange.result_of("eth_call", {"to": self.oracle, "data": calldata}, where)
        if fee == "0x":
            return  # The oracle is not there yet.
        receipt["l1Fee"] = hex(int(fee, 16))
        receipt["l1GasPrice"] = "0x3b9aca00"
        receipt["operatorFeeScalar"] = "0x0"


@dataclass
class ArbitrumChain:
    """A fault that puts the gas for a call's bytes into estimates and takes no transaction with
    less gas than that, as Arbitrum does."""

    gas_per_byte: int

    async def apply(self, exchange: Exchange) -> None:
        if exchange.methods != {"eth_estimateGas"}:
            return
        (call,) = exchange.calls
        data = call["params"][0].get("data", "0x")
        extra = self.gas_per_byte * (len(data) // 2 - 1)
        await exchange.change_results(lambda _, gas: hex(int(gas, 16) + extra))


def _without(block: Any, name: str) -> Any:
    if isinstance(block, dict):
        block.pop(name, None)
    return block


def _selector_of_fee() -> str:
    return "49948e0e"  # getL1Fee(bytes)


def _abi_bytes(content: bytes) -> bytes:
    padded = content + bytes(-len(content) % 32)
    return (32).to_bytes(32, "big") + len(content).to_bytes(32, "big") + padded
