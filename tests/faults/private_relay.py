"""A relay with a pool of its own, which nobody can look into."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from eth_utils.crypto import keccak
from eth_utils.hexadecimal import decode_hex, encode_hex

from indexer.rpc import Rpc, RpcError
from tests.faults.exchange import Exchange

_METHOD_NOT_FOUND = {"code": -32601, "message": "the method does not exist or is not available"}


@dataclass
class PrivateRelay:
    """A fault that turns the node behind a proxy into such a relay: it keeps what it takes until
    `include`, and answers nothing else but what it `knows`."""

    knows: frozenset[str] = frozenset({"eth_chainId"})
    held: list[str] = field(default_factory=list)
    taken: int = 0
    """Calls of eth_sendRawTransaction."""

    async def apply(self, exchange: Exchange) -> None:
        (call,) = exchange.calls
        if call["method"] in self.knows:
            return
        if call["method"] != "eth_sendRawTransaction":
            exchange.fail_all(_METHOD_NOT_FOUND)
            return
        self.taken += 1
        (raw,) = call["params"]
        if raw in self.held:
            exchange.fail_all({"code": -32000, "message": "already known"})
            return
        self.held.append(raw)
        tx_hash = encode_hex(keccak(decode_hex(raw)))
        exchange.answer = {"jsonrpc": "2.0", "id": call["id"], "result": tx_hash}

    async def include(self, rpc: Rpc) -> None:
        """The builder behind it gets everything; what a dearer one replaces is dropped there."""
        for raw in self.held:
            with contextlib.suppress(RpcError):
                await rpc.send_raw_transaction(decode_hex(raw))
        self.held.clear()
