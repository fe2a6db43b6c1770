"""Looks for a contract's logs by topic, on any chain, in ranges as wide as the endpoint allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from indexer.backoff import Backoff
from indexer.log_ranges import REFUSED, LogRanges
from indexer.rpc import RawLog, Rpc, RpcMalformed, RpcRateLimited
from indexer.rpc.wire import parse_logs
from indexer.types import Address

_FIRST_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 4.0
_TRIES = 20
"""So often a person waits for one range; enough to find a width that no words tell of."""

Pause = Callable[[float], Awaitable[None]]


async def newest_log(
    rpc: Rpc,
    address: Address,
    topics: Sequence[bytes],
    first: int,
    last: int,
    *,
    pause: Pause = asyncio.sleep,
) -> RawLog | None:
    """The newest match of blocks `first` to `last`, both included. Raises as `search_logs`."""
    async for log in search_logs(rpc, address, topics, first, last, pause=pause):
        return log
    return None


async def search_logs(
    rpc: Rpc,
    address: Address,
    topics: Sequence[bytes],
    first: int,
    last: int,
    *,
    pause: Pause = asyncio.sleep,
) -> AsyncIterator[RawLog]:
    """The logs whose first topics are `topics`, newest first.

    Raises RangeRefused where the endpoint gives the logs in no range, not even of one block;
    RpcUnreachable; and after 20 pauses in a row what it was refused with.
    """
    ranges = LogRanges(rpc)
    backoff, failures = Backoff(_FIRST_BACKOFF_S, _MAX_BACKOFF_S), 0

    def ends(blocks: int) -> tuple[int, int]:
        return max(first, last - blocks + 1), last

    async def logs_of(start: int, end: int) -> list[RawLog]:
        return await _logs(rpc, address, topics, start, end)

    while last >= first:
        try:
            start, _, found = await ranges.ask(ends, logs_of)
        except (*REFUSED, RpcRateLimited):
            failures += 1
            if failures > _TRIES:
                raise
            await pause(backoff.next_s())
            continue
        failures = 0
        backoff.reset()
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
