"""What a node suggests to pay for gas, wherever it lacks a method for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from indexer.rpc.refusals import lacks_method
from indexer.rpc.types import FeeHistory, RpcError
from indexer.types import BlockRef, Wei

_TIP_BLOCKS = 10
_TIP_PERCENTILE = 50.0


class MarketRpc(Protocol):
    """The part of indexer.rpc.Rpc that this asks."""

    async def max_priority_fee(self) -> Wei | None: ...

    async def fee_history(self, blocks: int, percentiles: Sequence[float] = ()) -> FeeHistory: ...


async def suggested_tip(rpc: MarketRpc, believed_up_to_wei: int) -> int:
    """Wei per gas on top of the base fee: the node's suggestion, and what recent blocks took where
    it makes none or one above `believed_up_to_wei`. Raises RpcUnreachable, RpcError."""
    suggested = await rpc.max_priority_fee()
    if suggested is not None and suggested <= believed_up_to_wei:
        return suggested
    try:
        recent = recent_tip(await rpc.fee_history(_TIP_BLOCKS, [_TIP_PERCENTILE]))
    except RpcError as error:
        if not lacks_method(error):
            raise
        recent = None
    if recent is None:
        return suggested or 0
    return recent if suggested is None else min(recent, suggested)


def recent_tip(history: FeeHistory) -> int | None:
    """The median tip of the blocks that had transactions; None where none had. Pure.

    An empty block has a tip of 0 for every percentile, which nobody offered.
    """
    blocks = zip(history.rewards_wei, history.gas_used_ratios, strict=False)
    tips = sorted(rewards[0] for rewards, fullness in blocks if rewards and fullness > 0)
    return tips[len(tips) // 2] if tips else None


def next_base_fee_of(history: FeeHistory, block: BlockRef) -> int | None:
    """What a node expects of the block after this one; None where the history is of another branch
    or does not reach it. Pure."""
    index = block.number - history.oldest_block
    known = history.base_fees_wei
    if not 0 <= index < len(known) - 1 or known[index] != block.base_fee_wei:
        return None
    return known[index + 1]
