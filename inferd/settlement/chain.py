"""The chain as settlement asks it: the calls it needs, and one look at a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from indexer.database import Pool
from indexer.errors import RpcUnreachable
from indexer.rpc import FeeHistory, Header, Receipt, RpcError, RpcMalformed
from indexer.rpc.market import next_base_fee_of, suggested_tip
from indexer.rpc.refusals import lacks_method
from indexer.rpc.wire import quantity
from indexer.types import Address, BlockRef, Hash32, Wei
from inferd.settlement.data_fee import NO_DATA_PRICE, DataPrice
from inferd.settlement.fees import Market
from inferd.settlement.rollups import Rollup, RollupRpc
from scheduler.gas import base_fee_bound, next_base_fee

RPC_TROUBLE = (RpcUnreachable, RpcError)
"""What every call below can raise: nobody answered, or a node refused."""

_MOST_TIMES = 2
"""How many times the head's base fee, or the half of it, a node's word for the next is believed: no
chain's rule goes so far in one block."""
_NONCE_LIMIT = 2**63


class ChainRpc(RollupRpc, Protocol):
    """The part of indexer.rpc.Rpc that settlement uses."""

    async def request(self, method: str, params: Sequence[Any] = ()) -> Any: ...

    async def header(self, block: int | Hash32 | Literal["latest"]) -> Header | None: ...

    async def balance(self, address: Address) -> Wei: ...

    async def nonce(self, address: Address) -> int: ...

    async def gas_price(self) -> Wei: ...

    async def max_priority_fee(self) -> Wei | None: ...

    async def fee_history(
        self,
        blocks: int,
        percentiles: Sequence[float] = (),
        newest: int | Literal["latest"] = "latest",
    ) -> FeeHistory: ...

    async def estimate_gas(
        self, sender: Address, to: Address | None, data: bytes, value_wei: int = 0
    ) -> int: ...

    async def send_raw_transaction(self, raw: bytes) -> Hash32: ...

    async def receipt(self, tx_hash: Hash32) -> Receipt | None: ...

    async def transaction_exists(self, tx_hash: Hash32) -> bool: ...


@dataclass(slots=True)
class Sight:
    """What one step sees of the chain, all of it at one head. Amounts are wei."""

    head: BlockRef
    market: Market
    chain_nonce: int
    settled_nonce: int
    """The nonce `confirmations` blocks deep: what is below is spent for good."""
    balance_wei: int
    free_wei: int
    """The balance without what transactions in flight can still cost; shrinks as more are made."""
    data: DataPrice = NO_DATA_PRICE
    """What transactions cost beside their gas."""
    replaces: bool = True
    """Whether a dearer transaction takes the place of one that an endpoint took."""

    @property
    def next_base_fee_wei(self) -> int:
        return self.market.base_fee_wei


async def look(
    rpc: ChainRpc,
    pool: Pool,
    sender: Address,
    head: BlockRef,
    confirmations: int,
    rollup: Rollup,
    max_tip_wei: int,
) -> Sight:
    """A tip above `max_tip_wei` is believed only as far as recent blocks bear it out.

    Raises RPC_TROUBLE; also where the endpoint does not have that head (yet, or any more).
    """
    deep = max(head.number - confirmations + 1, 0)
    balance_wei = await rpc.balance(sender)
    return Sight(
        head=head,
        market=await _market(rpc, pool, head, max_tip_wei),
        chain_nonce=await nonce_at(rpc, sender, head),
        settled_nonce=await _nonce_at(rpc, sender, hex(deep)),
        balance_wei=balance_wei,
        free_wei=balance_wei,
        data=await rollup.data_price(head),
        replaces=await rollup.replaces(),
    )


async def look_as(rpc: ChainRpc, sender: Address, seen: Sight, confirmations: int) -> Sight:
    """The same at the same head for another sender. Raises RPC_TROUBLE."""
    head = seen.head
    balance_wei = await rpc.balance(sender)
    return replace(
        seen,
        chain_nonce=await nonce_at(rpc, sender, head),
        settled_nonce=await _nonce_at(rpc, sender, hex(max(head.number - confirmations + 1, 0))),
        balance_wei=balance_wei,
        free_wei=balance_wei,
    )


async def nonce_at(rpc: ChainRpc, sender: Address, head: BlockRef) -> int:
    """The lowest nonce that was not spent at that block. Raises RPC_TROUBLE."""
    return await _nonce_at(rpc, sender, {"blockHash": "0x" + head.hash.hex()})


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


async def _market(rpc: ChainRpc, pool: Pool, head: BlockRef, max_tip_wei: int) -> Market:
    if head.base_fee_wei == 0:
        # Of nothing, or no such thing: the tables do not tell these apart.
        header = await rpc.header(head.hash)
        if header is not None and not header.has_base_fee:
            return Market(0, await rpc.gas_price(), dynamic=False)
    base_fee_wei = await _next_base_fee(rpc, pool, head)
    return Market(base_fee_wei, await suggested_tip(rpc, max_tip_wei))


async def _next_base_fee(rpc: ChainRpc, pool: Pool, head: BlockRef) -> int:
    """By the rule of EIP-1559 where the head's own base fee follows it from its parent's, and else
    what the node says."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT b.base_fee_wei, b.gas_used, b.gas_limit, parent.base_fee_wei AS parent_wei,"
            " parent.gas_used AS parent_used, parent.gas_limit AS parent_limit"
            " FROM chain.block b LEFT JOIN chain.block parent ON parent.hash = b.parent_hash"
            " AND parent.number = b.number - 1 WHERE b.hash = $1 AND b.number = $2",
            head.hash,
            head.number,
        )
    by_rule = None
    if rows:
        row = rows[0]
        by_rule = next_base_fee(head.base_fee_wei, row["gas_used"], row["gas_limit"])
        if row["parent_wei"] is not None and head.base_fee_wei == next_base_fee(
            int(row["parent_wei"]), row["parent_used"], row["parent_limit"]
        ):
            return by_rule
    try:
        told = next_base_fee_of(await rpc.fee_history(1, newest=head.number), head)
    except RpcError as error:
        if not lacks_method(error):
            raise
        told = None
    if told is None:
        return base_fee_bound(head.base_fee_wei, 1) if by_rule is None else by_rule
    most_wei = max(head.base_fee_wei * _MOST_TIMES, base_fee_bound(head.base_fee_wei, 1))
    return min(max(told, head.base_fee_wei // _MOST_TIMES), most_wei)


async def _nonce_at(rpc: ChainRpc, sender: Address, block: object) -> int:
    answer = await rpc.request("eth_getTransactionCount", ["0x" + sender.hex(), block])
    try:
        return quantity(answer, _NONCE_LIMIT)
    except (AttributeError, TypeError, ValueError) as error:
        raise RpcMalformed(
            f"the endpoint gave a nonce that cannot be read: {str(error)[:100]}",
            help_text="it is retried; if it stays so, use another endpoint",
        ) from None
