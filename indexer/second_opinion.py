"""A block's logs by another path than the one they were read by first."""

from __future__ import annotations

from collections.abc import Collection

import structlog

from indexer.completeness import checked_block_logs, contradiction, unexplained_bloom
from indexer.errors import RpcUnreachable, WrongChain
from indexer.rpc.client import Rpc
from indexer.rpc.types import Header, RawLog, RpcAnswerTooLarge, RpcError
from indexer.together import together
from indexer.types import Address, Hash32

_CONCURRENT_RECEIPTS = 8

log = structlog.get_logger("indexer")


async def second_opinion(
    rpc: Rpc,
    header: Header,
    addresses: Collection[Address],
    first: Collection[RawLog] = (),
) -> tuple[RawLog, ...]:
    """One block's logs, checked and in order: `first`, where another endpoint says the same, and
    else what the block's receipts say.

    Raises RpcUnreachable, and RpcError where nobody gives the receipts.
    """
    other = rpc.elsewhere()
    if other is not None:
        logs = await _logs_elsewhere(other, header, addresses)
        if logs == tuple(first):
            return logs
    return await logs_by_any_receipts(rpc, header, addresses)


async def logs_by_any_receipts(
    rpc: Rpc, header: Header, addresses: Collection[Address]
) -> tuple[RawLog, ...]:
    """As `logs_by_receipts`, of another endpoint where one gives them, and else of the one in use.

    Raises RpcUnreachable, RpcError.
    """
    other = rpc.elsewhere()
    if other is not None:
        try:
            return await logs_by_receipts(other, header, addresses)
        except (RpcUnreachable, RpcError, WrongChain) as error:
            log.info("no_receipts_elsewhere", block_number=header.number, because=str(error))
    return await logs_by_receipts(rpc, header, addresses)


async def logs_by_receipts(
    rpc: Rpc, header: Header, addresses: Collection[Address]
) -> tuple[RawLog, ...]:
    """One block's logs of ours as its receipts have them, checked and in order.

    No index of logs is asked, and the logs of all receipts together must explain the header's bloom
    filter. Raises RpcUnreachable, RpcError.
    """
    try:
        receipts = await rpc.block_receipts(header.hash)
    except (RpcError, RpcAnswerTooLarge):
        receipts = await _one_by_one(rpc, header)
    if receipts is None:
        raise contradiction(f"it lacks the receipts of block {header.number}")
    if any(block_hash != header.hash for block_hash, _ in receipts):
        raise contradiction(f"a receipt of block {header.number} belongs to another block")
    logs = [entry for _, entries in receipts for entry in entries]
    if unexplained_bloom(header, logs):
        raise contradiction(f"the receipts of block {header.number} lack logs that its bloom has")
    ours = [entry for entry in logs if entry.address in addresses]
    return tuple(checked_block_logs(header, ours, addresses))


async def _logs_elsewhere(
    other: Rpc, header: Header, addresses: Collection[Address]
) -> tuple[RawLog, ...] | None:
    """None where the other endpoint has no usable answer about this block."""
    try:
        if await other.header(header.hash) is None:
            return None
        logs = await other.logs_by_hash(header.hash, addresses)
        return tuple(checked_block_logs(header, logs, addresses))
    except (RpcUnreachable, RpcError, WrongChain):
        return None


async def _one_by_one(rpc: Rpc, header: Header) -> list[tuple[Hash32, list[RawLog]]] | None:
    hashes = await rpc.transaction_hashes(header.hash)
    if hashes is None:
        return None

    async def of(tx_hash: Hash32) -> tuple[Hash32, list[RawLog]]:
        found = await rpc.receipt_logs(tx_hash)
        if found is None:
            raise contradiction(f"it lacks a receipt of block {header.number}")
        return found

    return await together(of, hashes, at_once=_CONCURRENT_RECEIPTS)
