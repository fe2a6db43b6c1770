"""Fetches and checks what leads from the indexed blocks to the node's head. Writes nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from indexer.completeness import checked_block_logs, contradiction, may_have_logs
from indexer.errors import ReorgTooDeep, RpcUnreachable, WrongChain
from indexer.reorg.window import (
    Append,
    FillGap,
    Known,
    NeedParent,
    Replace,
    TooDeep,
    Window,
    reconcile,
)
from indexer.rpc.client import Rpc
from indexer.rpc.types import Header, RawLog, RpcError
from indexer.second_opinion import second_opinion
from indexer.together import together
from indexer.types import Address, Hash32

MAX_BRANCH_BLOCKS = 64
"""How many missing blocks one step fetches; more are fetched by the steps after it."""
_CONCURRENT_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class Branch:
    """Blocks that follow block `ancestor` of ours; what we have above that is orphaned."""

    ancestor: int
    headers: tuple[Header, ...]
    logs: tuple[tuple[RawLog, ...], ...]
    """Per header, checked and in order."""


async def find_branch(
    rpc: Rpc, window: Window, head: Header, addresses: Collection[Address]
) -> Branch | None:
    """The complete branch from our blocks towards `head`; None where there is nothing new.

    Everything is fetched and checked before anything of ours is given up: a second reorganisation
    in the meantime shows as a missing block, and the step is begun anew.

    Raises ReorgTooDeep, RpcUnreachable (its kind RpcMalformed where blocks are missing or
    contradict each other), RpcError.
    """
    newest_first = [head]
    while True:
        lowest = newest_first[-1]
        match reconcile(window, lowest):
            case Known():
                return None
            case Append():
                ancestor = lowest.number - 1
                break
            case Replace(ancestor=ancestor):
                break
            case FillGap(first=first, last=last):
                newest_first = await _gap(rpc, first, last, head)
            case NeedParent(number=number, hash=parent):
                newest_first.append(await _parent(rpc, number, parent))
            case TooDeep(oldest=oldest):
                await _require_no_other_has(rpc, window, oldest)
                raise ReorgTooDeep(
                    f"the chain was reorganised below block {oldest}, the oldest that is"
                    f" remembered, says {rpc.endpoint}",
                    help_text="make sure that this endpoint is on the right chain; if it is,"
                    " `inferd index rebuild` indexes it from the start",
                )
    headers = tuple(reversed(newest_first))
    return Branch(ancestor, headers, await _logs(rpc, headers, addresses))


async def _gap(rpc: Rpc, first: int, last: int, head: Header) -> list[Header]:
    """Linked blocks from `first` towards `head`, newest first."""
    last = min(last, first + MAX_BRANCH_BLOCKS - 1)
    headers: list[Header] = []
    for number, header in zip(
        range(first, last + 1), await rpc.headers(range(first, last + 1)), strict=True
    ):
        if header is None:
            raise contradiction(f"it has block {head.number} and lacks block {number}")
        headers.append(header)
    if last == head.number - 1:
        headers.append(head)
    for below, above in pairwise(headers):
        if above.parent_hash != below.hash:
            raise contradiction(f"block {above.number} does not follow block {below.number}")
    headers.reverse()
    return headers


async def _parent(rpc: Rpc, number: int, block_hash: Hash32) -> Header:
    header = await rpc.header(block_hash)
    if header is None:
        raise contradiction(f"it lacks block 0x{block_hash.hex()}, the parent of one it has")
    if header.number != number:
        raise contradiction(f"the parent of its block {number + 1} has the number {header.number}")
    return header


async def _require_no_other_has(rpc: Rpc, window: Window, oldest: int) -> None:
    """One endpoint on a dead branch must not stop an index that the others bear out.

    Raises RpcMalformed, and passes that endpoint over, where another still has our oldest block.
    """
    other = rpc.elsewhere()
    if other is None:
        return
    try:
        (theirs,) = await other.headers([oldest])
    except (RpcUnreachable, RpcError, WrongChain):
        return
    if theirs is not None and theirs.hash == window.hash_at(oldest):
        why = f"{rpc.endpoint} has another block {oldest} than is indexed and than another endpoint"
        rpc.pass_over(why)
        raise contradiction(why)


async def _logs(
    rpc: Rpc, headers: Collection[Header], addresses: Collection[Address]
) -> tuple[tuple[RawLog, ...], ...]:
    async def of(header: Header) -> tuple[RawLog, ...]:
        return await block_logs(rpc, header, addresses)

    return tuple(await together(of, headers, at_once=_CONCURRENT_BLOCKS))


async def block_logs(
    rpc: Rpc, header: Header, addresses: Collection[Address]
) -> tuple[RawLog, ...]:
    """One block's logs of ours, by its hash, checked and in order.

    An empty answer that the bloom filter does not confirm is not believed: some nodes answer
    "none" for a block they do not know, or whose logs they have not indexed yet.
    """
    logs = await rpc.logs_by_hash(header.hash, addresses)
    if not logs and may_have_logs(header, addresses):
        return await second_opinion(rpc, header, addresses)
    return tuple(checked_block_logs(header, logs, addresses))
