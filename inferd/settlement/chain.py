"""The chain as settlement asks it: the calls it needs, and one look at a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from indexer.database import Pool
from indexer.errors import RpcUnreachable
from indexer.rpc import FeeHistory, Header, Receipt, RpcError, RpcMalformed
from indexer.rpc.wire import quantity
from indexer.types import Address, BlockRef, Hash32, Wei
from scheduler.gas import base_fee_bound, next_base_fee

RPC_TROUBLE = (RpcUnreachable, RpcError)
"""What every call below can raise: nobody answered, or a node refused."""

_TIP_BLOCKS = 10
_TIP_PERCENTILE = 50.0
_NONCE_LIMIT = 2**63


class ChainRpc(Protocol):
    """The part of indexer.rpc.Rpc that settlement uses."""

    async def request(self, method: str, params: Sequence[Any] = ()) -> Any: ...

    async def header(self, block: int | Hash32 | Literal["latest"]) -> Header | None: ...

    async def call(
        self,
        to: Address,
        data: bytes,
        block: BlockRef | Literal["latest", "pending"] = "latest",
        sender: Address | None = None,
        gas: int | None = None,
    ) -> bytes: ...

    async def balance(self, address: Address) -> Wei: ...

    async def nonce(self, address: Address) -> int: ...

    async def max_priority_fee(self) -> Wei | None: ...

    async def fee_history(self, blocks: int, percentiles: Sequence[float] = ()) -> FeeHistory: ...

    async def estimate_gas(self, sender: Address, to: Address | None, data: bytes) -> int: ...

    async def send_raw_transaction(self, raw: bytes) -> Hash32: ...

    async def receipt(self, tx_hash: Hash32) -> Receipt | None: ...

    async def transaction_exists(self, tx_hash: Hash32) -> bool: ...


@dataclass(slots=True)
class Sight:
    """What one step sees of the chain, all of it at one head. Amounts are wei."""

    head: BlockRef
    next_base_fee_wei: int
    tip_wei: int
    """What the node suggests; not yet bounded by the operator's caps."""
    chain_nonce: int
    settled_nonce: int
    """The nonce `confirmations` blocks deep: what is below is spent for good."""
    balance_wei: int
    free_wei: int
    """The balance without what transactions in flight can still cost; shrinks as more are made."""


async def look(
    rpc: ChainRpc, pool: Pool, sender: Address, head: BlockRef, confirmations: int
) -> Sight:
    """Raises RPC_TROUBLE; also where the endpoint does not have that head (yet, or any more)."""
    deep = max(head.number - confirmations + 1, 0)
    balance_wei = await rpc.balance(sender)
    return Sight(
        head=head,
        next_base_fee_wei=await _next_base_fee(pool, head),
        tip_wei=await _suggested_tip(rpc),
        chain_nonce=await _nonce_at(rpc, sender, {"blockHash": "0x" + head.hash.hex()}),
        settled_nonce=await _nonce_at(rpc, sender, hex(deep)),
        balance_wei=balance_wei,
        free_wei=balance_wei,
    )


async def canonical_hash(rpc: ChainRpc, pool: Pool, head: BlockRef, number: int) -> bytes | None:
    """The hash of a block on the head's branch; None above the head. Raises RPC_TROUBLE."""
    if number >= head.number:
        return head.hash if number == head.number else None
    async with pool.acquire() as connection:
        stored: bytes | None = await connection.fetchval(
            "SELECT hash FROM chain.block WHERE number = $1", number
        )
    if stored is not None:
        return stored
    # Below the stored window: final, so the endpoint's own branch is the head's.
    header = await rpc.header(number)
    return header.hash if header is not None else None


async def _next_base_fee(pool: Pool, head: BlockRef) -> int:
    async with pool.acquire() as connection:
        gas_used: int | None = await connection.fetchval(
            "SELECT gas_used FROM chain.block WHERE hash = $1 AND number = $2",
            head.hash,
            head.number,
        )
    if gas_used is None:
        return base_fee_bound(head.base_fee_wei, 1)
    return next_base_fee(head.base_fee_wei, gas_used, head.gas_limit)


async def _suggested_tip(rpc: ChainRpc) -> int:
    suggested = await rpc.max_priority_fee()
    if suggested is not None:
        return suggested
    history = await rpc.fee_history(_TIP_BLOCKS, [_TIP_PERCENTILE])
    tips = sorted(rewards[0] for rewards in history.rewards_wei if rewards)
    return tips[len(tips) // 2] if tips else 0


async def _nonce_at(rpc: ChainRpc, sender: Address, block: object) -> int:
    answer = await rpc.request("eth_getTransactionCount", ["0x" + sender.hex(), block])
    try:
        return quantity(answer, _NONCE_LIMIT)
    except (AttributeError, TypeError, ValueError) as error:
        raise RpcMalformed(
            f"the endpoint gave a nonce that cannot be read: {str(error)[:100]}",
            help_text="it is retried; if it stays so, use another endpoint",
        ) from None
