"""Final blocks, in ranges as wide as the node allows."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from indexer.completeness import checked_logs, contradiction
from indexer.rpc.client import Rpc
from indexer.rpc.types import Header, RawLog, RpcAnswerTooLarge, RpcError, RpcTimeout
from indexer.types import Address, BlockRef

_FIRST_RANGE_BLOCKS = 64
_MAX_RANGE_BLOCKS = 100_000
_ENOUGH_LOGS = 10_000
"""A range with so many fills a transaction; wider ones only cost memory."""
_SLOW_S = 2.0

log = structlog.get_logger("indexer")


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A checked range of final blocks."""

    headers: tuple[Header, ...]
    """Those to remember, in order; the last block of the range is the last."""
    logs: tuple[RawLog, ...]
    """In chain order."""
    timestamps_s: dict[int, int]
    """Of every block that has logs."""


class RangeReader:
    """Reads one range after the other and learns how wide they may be."""

    def __init__(self, rpc: Rpc, addresses: Collection[Address]) -> None:
        self._rpc = rpc
        self._addresses = addresses
        self._blocks = _FIRST_RANGE_BLOCKS

    async def read(
        self, first: int, target: int, *, cursor: BlockRef | None, keep_from: int
    ) -> ReadRange:
        """Blocks from `first` to `target` or as far as one range goes; `cursor` is the block
        before `first`. Headers of `keep_from` and above are all in the answer.

        Raises RpcUnreachable (its kind RpcMalformed where answers contradict each other or the
        cursor), and RpcError where the node refuses even a range of one block.
        """
        while True:
            last = min(target, first + self._blocks - 1)
            started = time.monotonic()
            try:
                logs = await self._rpc.logs_in_range(first, last, self._addresses)
            except (RpcError, RpcTimeout, RpcAnswerTooLarge) as error:
                if last == first:
                    raise
                self._blocks = max(1, (last - first + 1) // 2)
                log.info("range_halved", blocks=self._blocks, because=str(error))
                continue
            read = await self._with_headers(first, last, logs, cursor, keep_from)
            self._learn(last - first + 1, len(logs), time.monotonic() - started)
            return read

    async def _with_headers(
        self, first: int, last: int, logs: list[RawLog], cursor: BlockRef | None, keep_from: int
    ) -> ReadRange:
        with_logs = {entry.block_number for entry in logs}
        if with_logs and not first <= min(with_logs) <= max(with_logs) <= last:
            raise contradiction(f"a log outside of the asked blocks {first} to {last}")
        kept = range(max(first, keep_from), last + 1)
        numbers = sorted({first, last, *with_logs, *kept})
        headers: dict[int, Header] = {}
        for number, header in zip(numbers, await self._rpc.headers(numbers), strict=True):
            if header is None:
                raise contradiction(f"it lacks the final block {number}")
            below = headers.get(number - 1)
            if below is not None and header.parent_hash != below.hash:
                raise contradiction(f"block {number} does not follow block {number - 1}")
            headers[number] = header
        if cursor is not None and headers[first].parent_hash != cursor.hash:
            raise contradiction(f"final block {first} does not follow block {cursor.number}")
        return ReadRange(
            headers=tuple(headers[number] for number in sorted({last, *kept})),
            logs=tuple(checked_logs(logs, headers, self._addresses)),
            timestamps_s={number: headers[number].timestamp_s for number in with_logs},
        )

    def _learn(self, blocks: int, logs: int, took_s: float) -> None:
        if logs > _ENOUGH_LOGS:
            self._blocks = max(1, blocks * _ENOUGH_LOGS // logs)
        elif took_s < _SLOW_S and blocks == self._blocks:
            self._blocks = min(_MAX_RANGE_BLOCKS, blocks * 2)
