"""Final blocks, in ranges as wide as the node allows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from indexer.completeness import checked_logs, contradiction
from indexer.log_ranges import LogRanges
from indexer.rpc.client import Rpc
from indexer.rpc.types import Header, RawLog
from indexer.types import Address, BlockRef


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
    """Reads one range after the other and learns how wide each endpoint lets them be."""

    def __init__(self, rpc: Rpc, addresses: Collection[Address]) -> None:
        self._rpc = rpc
        self._addresses = addresses
        self._ranges = LogRanges(rpc)

    @property
    def blocks(self) -> int:
        """How wide the next range is, where enough blocks are left."""
        return self._ranges.blocks

    async def read(
        self, first: int, target: int, *, cursor: BlockRef | None, keep_from: int
    ) -> ReadRange:
        """Blocks from `first` to `target` or as far as one range goes; `cursor` is the block
        before `first`. Headers of `keep_from` and above are all in the answer.

        Ranges that are too wide are narrowed and asked for again at once. Everything else is
        raised, for the caller to back off: RpcUnreachable (its kind RpcMalformed where answers
        contradict each other or the cursor) and RpcError. Raises RangeRefused where no width and
        no other endpoint helps, and WrongChain.
        """
        _, last, logs = await self._ranges.ask(
            lambda blocks: (first, min(target, first + blocks - 1)), self._logs
        )
        return await self._with_headers(first, last, logs, cursor, keep_from)

    async def _logs(self, first: int, last: int) -> list[RawLog]:
        return await self._rpc.logs_in_range(first, last, self._addresses)

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
