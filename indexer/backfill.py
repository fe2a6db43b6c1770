"""Final blocks, in ranges as wide as the node allows."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from indexer.completeness import checked_logs, contradiction
from indexer.errors import RangeRefused
from indexer.range_size import Next, RangeSize
from indexer.rpc.client import Rpc
from indexer.rpc.ranges import Meaning, Refusal, read_refusal
from indexer.rpc.types import (
    Header,
    RawLog,
    RpcAnswerTooLarge,
    RpcError,
    RpcServerFault,
    RpcTimeout,
)
from indexer.types import Address, BlockRef

_Refused = RpcError | RpcTimeout | RpcServerFault | RpcAnswerTooLarge
_REFUSED = (RpcError, RpcTimeout, RpcServerFault, RpcAnswerTooLarge)

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
    """Reads one range after the other and learns how wide each endpoint lets them be."""

    def __init__(self, rpc: Rpc, addresses: Collection[Address]) -> None:
        self._rpc = rpc
        self._addresses = addresses
        self._sizes: dict[str, RangeSize] = {}

    @property
    def blocks(self) -> int:
        """How wide the next range is, where enough blocks are left."""
        return self._size.blocks

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
        while True:
            last = min(target, first + self._size.blocks - 1)
            started = time.monotonic()
            try:
                logs = await self._rpc.logs_in_range(first, last, self._addresses)
            except _REFUSED as error:
                self._refused(first, last, error)
                continue
            took_s = time.monotonic() - started
            read = await self._with_headers(first, last, logs, cursor, keep_from)
            self._size.answered(last - first + 1, len(logs), took_s)
            return read

    @property
    def _size(self) -> RangeSize:
        return self._sizes.setdefault(self._rpc.endpoint, RangeSize())

    def _refused(self, first: int, last: int, error: _Refused) -> None:
        """Returns where the next width is to be asked for at once."""
        asked = last - first + 1
        refusal = _meaning(error, asked)
        size = self._size
        match size.refused(asked, refusal):
            case Next.NEVER:
                which = f"block {first}" if asked == 1 else f"blocks {first} to {last}"
                refused = RangeRefused(
                    f"{self._rpc.endpoint} refuses the logs of {which}, and names no smaller range"
                    f" that it would take: {error}",
                    help_text="use another endpoint in `rpc_urls`: this one cannot give the logs"
                    " of those blocks",
                )
                if not self._rpc.pass_over(refused.message):
                    raise refused from None
                log.warning("range_refused", because=refused.message)
                raise error
            case Next.LATER:
                raise error
            case Next.AGAIN:
                log.info("range_narrowed", asked=asked, blocks=size.blocks, because=str(error))

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


def _meaning(error: _Refused, asked_blocks: int) -> Refusal:
    match error:
        case RpcError():
            return read_refusal(error.code, error.message, asked_blocks)
        case RpcAnswerTooLarge():
            return Refusal(Meaning.TOO_LARGE)
        case _:
            return Refusal(Meaning.TIMEOUT)
