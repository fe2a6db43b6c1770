"""What nodes answer, as Python values, and the ways in which they fail to."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from indexer.errors import RpcUnreachable
from indexer.types import Address, BlockRef, Hash32, Wei


class Header(msgspec.Struct, frozen=True, gc=False):
    """A block without its transactions."""

    number: int
    hash: Hash32
    parent_hash: Hash32
    timestamp_s: int
    base_fee_wei: Wei
    """0 on chains without EIP-1559."""
    gas_used: int
    gas_limit: int
    logs_bloom: bytes
    has_base_fee: bool = True
    """False on chains without EIP-1559, whose transactions offer one gas price."""

    def ref(self) -> BlockRef:
        return BlockRef(self.number, self.hash, self.timestamp_s, self.base_fee_wei, self.gas_limit)


class RawLog(msgspec.Struct, frozen=True, gc=False):
    """A log as the node gave it."""

    address: Address
    topics: tuple[bytes, ...]
    data: bytes
    block_number: int
    block_hash: Hash32
    tx_hash: Hash32
    tx_index: int
    log_index: int


class Receipt(msgspec.Struct, frozen=True):
    """What became of a mined transaction."""

    tx_hash: Hash32
    tx_index: int
    block_number: int
    block_hash: Hash32
    succeeded: bool
    gas_used: int
    effective_gas_price_wei: Wei
    sender: Address
    to: Address | None
    contract_address: Address | None
    """Of the contract it created."""
    logs: tuple[RawLog, ...]
    l1_fee_wei: Wei = Wei(0)
    """What an OP-stack chain took for the transaction's bytes, beside its gas."""

    @property
    def status(self) -> int:
        """1 = succeeded, 0 = reverted."""
        return int(self.succeeded)


class FeeHistory(msgspec.Struct, frozen=True):
    """Answer of eth_feeHistory."""

    oldest_block: int
    base_fees_wei: tuple[Wei, ...]
    """One more than there are blocks: the last is the next block's."""
    gas_used_ratios: tuple[float, ...]
    rewards_wei: tuple[tuple[Wei, ...], ...]
    """Per block, the tip at each percentile asked for; empty where none was asked for."""


class RpcError(Exception):
    """The node answered with an error object. Its text is the node's own."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message
        self.data = data


class RpcBatchRefused(RpcError):
    """The node answers no batch of that size, or none at all."""


class RpcTimeout(RpcUnreachable):
    """No answer in time."""

    code: ClassVar[str] = "rpc_timeout"


class RpcServerFault(RpcUnreachable):
    """The endpoint answers with an HTTP error of its own (5xx)."""

    code: ClassVar[str] = "rpc_server_fault"


class RpcRateLimited(RpcUnreachable):
    """The endpoint asks for fewer calls (HTTP 429, or an error object that says so)."""

    code: ClassVar[str] = "rpc_rate_limited"

    def __init__(self, message: str, *, help_text: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message, help_text=help_text)
        self.retry_after_s = retry_after_s
        """How long it wants to be left alone; 0 where it does not say."""


class RpcAnswerTooLarge(RpcUnreachable):
    """The answer is larger than we are willing to hold, or than the node is willing to give."""

    code: ClassVar[str] = "rpc_answer_too_large"


class RpcMalformed(RpcUnreachable):
    """The answer is no JSON-RPC, lacks fields, or contradicts what was asked."""

    code: ClassVar[str] = "rpc_malformed"
