"""Asks for logs in ranges as wide as the endpoint in use allows, and learns how wide that is."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from indexer.errors import RangeRefused
from indexer.range_size import Next, RangeSize
from indexer.rpc.client import Rpc
from indexer.rpc.ranges import Meaning, Refusal, read_refusal
from indexer.rpc.types import RawLog, RpcAnswerTooLarge, RpcError, RpcServerFault, RpcTimeout

L = TypeVar("L", bound=Sequence[RawLog])

_Refused = RpcError | RpcTimeout | RpcServerFault | RpcAnswerTooLarge
REFUSED = (RpcError, RpcTimeout, RpcServerFault, RpcAnswerTooLarge)
"""In what ways endpoints do not answer a question for logs; what one means, its text says."""

log = structlog.get_logger("indexer")


class LogRanges:
    """One per walk over the chain; each endpoint has a width of its own."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc
        self._sizes: dict[str, RangeSize] = {}

    @property
    def blocks(self) -> int:
        """How wide the next range is, where enough blocks are left."""
        return self._size.blocks

    async def ask(
        self, ends: Callable[[int], tuple[int, int]], logs_of: Callable[[int, int], Awaitable[L]]
    ) -> tuple[int, int, L]:
        """First and last block of a range, and its logs as `logs_of` gives them. `ends` places a
        range of at most so many blocks.

        Ranges that are too wide are narrowed and asked for again at once. Everything else that
        `logs_of` raises is raised, for the caller to back off; after one of REFUSED the next range
        may be narrower, or go to another endpoint. Raises RangeRefused where no width and no other
        endpoint helps.
        """
        while True:
            first, last = ends(self._size.blocks)
            began_s = time.monotonic()
            try:
                logs = await logs_of(first, last)
            except REFUSED as error:
                self._refused(first, last, error)
                continue
            self._size.answered(last - first + 1, len(logs), time.monotonic() - began_s)
            return first, last, logs

    @property
    def _size(self) -> RangeSize:
        return self._sizes.setdefault(self._rpc.endpoint, RangeSize())

    def _refused(self, first: int, last: int, error: _Refused) -> None:
        """Returns where the next width is to be asked for at once."""
        asked = last - first + 1
        size = self._size
        match size.refused(asked, _meaning(error, asked)):
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


def _meaning(error: _Refused, asked_blocks: int) -> Refusal:
    match error:
        case RpcError():
            return read_refusal(error.code, error.message, asked_blocks)
        case RpcAnswerTooLarge():
            return Refusal(Meaning.TOO_LARGE)
        case _:
            return Refusal(Meaning.TIMEOUT)
