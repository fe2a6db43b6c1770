"""A node's own pool, by the rules of geth where those of Anvil are laxer."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from eth_account import Account
from eth_account.typed_transactions import TypedTransaction
from eth_utils.crypto import keccak
from eth_utils.hexadecimal import decode_hex, encode_hex
from hexbytes import HexBytes

from indexer.rpc import Rpc, RpcError
from tests.faults.exchange import Call, Exchange

_BUMP_PERCENT = 10
"""geth's `--txpool.pricebump`: what a replacement has to offer more, in both fields."""


@dataclass(frozen=True)
class Pooled:
    raw: bytes
    sender: str
    nonce: int
    max_fee_wei: int
    tip_wei: int
    cost_wei: int
    """At most, value included."""

    @property
    def hash(self) -> str:
        return encode_hex(keccak(self.raw))

    @property
    def slot(self) -> tuple[str, int]:
        return self.sender, self.nonce

    def may_replace(self, other: Pooled) -> bool:
        """core/txpool/legacypool/list.go, `Add`: strictly more, and a tenth more, of both."""
        return _is_a_bump(self.max_fee_wei, other.max_fee_wei) and _is_a_bump(
            self.tip_wei, other.tip_wei
        )


def _is_a_bump(new_wei: int, old_wei: int) -> bool:
    return new_wei > old_wei and new_wei >= old_wei * (100 + _BUMP_PERCENT) // 100


@dataclass
class GethPool:
    """A fault that gives the node behind a proxy such a pool. Nothing is mined but by `mine`.

    A price below the base fee is pooled and waits. All that is pooled of an account shares its
    balance. After a reorganisation what was taken from the chain is pooled again.
    """

    gapless: bool = False
    """A nonce above the next is refused instead of queued."""
    min_tip_wei: int = 0
    held: dict[tuple[str, int], Pooled] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """What was answered instead of a hash."""
    _left: dict[str, Pooled] = field(default_factory=dict)

    async def apply(self, exchange: Exchange) -> None:
        if exchange.is_batch:
            return
        (call,) = exchange.calls
        match call["method"]:
            case "eth_sendRawTransaction":
                await self._take(call, exchange)
            case "eth_getTransactionByHash":
                for one in self.held.values():
                    if one.hash == call["params"][0]:
                        _answer(exchange, call, {"hash": one.hash, "blockHash": None})
            case "eth_getTransactionCount" if call["params"][1] == "pending":
                (answer,) = await exchange.answers()
                nonce = int(answer["result"], 16)
                while (call["params"][0].lower(), nonce) in self.held:
                    nonce += 1
                answer["result"] = hex(nonce)

    async def _take(self, call: Call, exchange: Exchange) -> None:
        new = read(decode_hex(call["params"][0]))
        mined = int(await exchange.result_of("eth_getTransactionCount", new.sender, "latest"), 16)
        balance_wei = int(await exchange.result_of("eth_getBalance", new.sender, "latest"), 16)
        refusal = self._refusal(new, mined, balance_wei)
        if refusal is not None:
            self.refused.append(refusal)
            exchange.fail_all({"code": -32000, "message": refusal})
            return
        self.held[new.slot] = new
        _answer(exchange, call, new.hash)

    def _refusal(self, new: Pooled, next_nonce: int, balance_wei: int) -> str | None:
        old = self.held.get(new.slot)
        if old is not None and old.hash == new.hash:
            return "already known"
        if new.nonce < next_nonce:
            return f"nonce too low: next nonce {next_nonce}, tx nonce {new.nonce}"
        if new.tip_wei < self.min_tip_wei:
            return (
                f"transaction underpriced: gas tip cap {new.tip_wei},"
                f" minimum needed {self.min_tip_wei}"
            )
        overdraft = self._overdraft(new, balance_wei)
        if overdraft is not None:
            return overdraft
        if old is not None and not new.may_replace(old):
            return "replacement transaction underpriced"
        gap = any((new.sender, nonce) not in self.held for nonce in range(next_nonce, new.nonce))
        if self.gapless and gap:
            return "nonce too high"
        return None

    def _overdraft(self, new: Pooled, balance_wei: int) -> str | None:
        """core/txpool/validation.go, `ValidateTransactionWithState`: the balance has to pay for all
        that is pooled of the account, where Anvil looks at each alone."""
        queued_wei = sum(one.cost_wei for one in self.held.values() if one.sender == new.sender)
        old = self.held.get(new.slot)
        more_wei = new.cost_wei - (old.cost_wei if old is not None else 0)
        overshot_wei = queued_wei + more_wei - balance_wei
        if overshot_wei <= 0:
            return None
        word = "tx cost" if old is None else "tx bumped"
        return (
            f"insufficient funds for gas * price + value: balance {balance_wei}, queued cost"
            f" {queued_wei}, {word} {more_wei}, overshot {overshot_wei}"
        )

    async def mine(self, rpc: Rpc) -> None:
        """One block, with all that can pay for it. `rpc` is of the chain behind the proxy."""
        for one in sorted(self.held.values(), key=lambda held: held.nonce):
            with contextlib.suppress(RpcError):  # too cheap for this block
                await rpc.send_raw_transaction(one.raw)
        await rpc.request("anvil_mine", [1])
        await rpc.request("anvil_dropAllTransactions", [])
        for one in list(self.held.values()):
            if await rpc.request("eth_getTransactionReceipt", [one.hash]) is not None:
                self._left[one.hash] = self.held.pop(one.slot)
        for sender, nonce in list(self.held):
            if nonce < int(await rpc.request("eth_getTransactionCount", [sender, "latest"]), 16):
                del self.held[sender, nonce]

    async def reorg(self, rpc: Rpc, depth: int) -> None:
        """The newest blocks are replaced by as many empty ones; what was in them is pooled."""
        await rpc.request("anvil_reorg", [depth, []])
        for one in list(self._left.values()):
            if await rpc.request("eth_getTransactionReceipt", [one.hash]) is None:
                del self._left[one.hash]
                self.held.setdefault(one.slot, one)


def read(raw: bytes) -> Pooled:
    fields: dict[str, Any] = TypedTransaction.from_bytes(HexBytes(raw)).as_dict()
    return Pooled(
        raw,
        Account.recover_transaction(raw).lower(),
        fields["nonce"],
        fields["maxFeePerGas"],
        fields["maxPriorityFeePerGas"],
        fields["gas"] * fields["maxFeePerGas"] + fields["value"],
    )


def _answer(exchange: Exchange, call: Call, result: Any) -> None:
    exchange.answer = {"jsonrpc": "2.0", "id": call["id"], "result": result}
