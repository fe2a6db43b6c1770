"""Looks for a contract's logs by topic, on any chain: ranges shrink to what it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from indexer.rpc import RawLog, Rpc, RpcAnswerTooLarge, RpcError, RpcMalformed, RpcTimeout
from indexer.rpc.wire import parse_logs
from indexer.types import Address

_TOO_WIDE = (RpcError, RpcAnswerTooLarge, RpcTimeout)
"""How endpoints say, in many words, that a range is too large for them."""


async def newest_log(
    rpc: Rpc, address: Address, topics: Sequence[bytes], first: int, last: int
) -> RawLog | None:
    """The newest match of blocks `first` to `last`, both included. Raises as `search_logs`."""
    async for log in search_logs(rpc, address, topics, first, last):
        return log
    return None


async def search_logs(
    rpc: Rpc, address: Address, topics: Sequence[bytes], first: int, last: int
) -> AsyncIterator[RawLog]:
    """The logs whose first topics are `topics`, newest first.

    Raises RpcUnreachable, or the endpoint's own RpcError where it refuses even one block.
    """
    span = max(1, last - first + 1)
    while last >= first:
        start = max(first, last - span + 1)
        try:
            found = await _logs(rpc, address, topics, start, last)
        except _TOO_WIDE:
            if start == last:
                raise
            span = max(1, (last - start + 1) // 2)
            continue
        for log in reversed(found):
            yield log
        last = start - 1


async def _logs(
    rpc: Rpc, address: Address, topics: Sequence[bytes], first: int, last: int
) -> list[RawLog]:
    criteria = {
        "address": "0x" + address.hex(),
        "topics": ["0x" + topic.hex() for topic in topics],
        "fromBlock": hex(first),
        "toBlock": hex(last),
    }
    answer = await rpc.request("eth_getLogs", [criteria])
    try:
        logs = parse_logs(msgspec.Raw(msgspec.json.encode(answer)))
    except (ValueError, msgspec.DecodeError) as error:
        raise RpcMalformed(
            f"{rpc.endpoint} gave logs that cannot be read: {error}",
            help_text="use another endpoint",
        ) from error
    # An endpoint that ignores part of the question must not pass off a foreign log as ours.
    asked = tuple(topics)
    logs = [
        log
        for log in logs
        if log.address == address
        and log.topics[: len(asked)] == asked
        and first <= log.block_number <= last
    ]
    return sorted(logs, key=lambda log: (log.block_number, log.log_index))
