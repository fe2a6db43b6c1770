"""The chain's clock as an onlooker sees it: when which block was there, and when it was indexed."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from indexer.rpc import Rpc

_POLL_S = 0.02


@dataclass
class Seen:
    """When each block was first there: blocks only grow, and none is left out."""

    first: int
    """The oldest block that counts."""
    at_s: list[float] = field(default_factory=list)
    """Seconds since the epoch, of `first` and all after it."""

    @property
    def newest(self) -> int:
        return self.first + len(self.at_s) - 1

    def see(self, block: int, now_s: float) -> bool:
        """False where it was there already."""
        news = block > self.newest
        self.at_s += [now_s] * (block - self.newest)
        return news

    def when(self, block: int) -> float | None:
        """Seconds since the epoch; None where it was not seen."""
        return self.at_s[block - self.first] if self.first <= block <= self.newest else None

    def height_at(self, moment_s: float) -> int:
        """The newest block that was there at a moment."""
        return self.first - 1 + bisect_right(self.at_s, moment_s)

    def heard(self, *notification: Any) -> None:
        """A listener of the channel that tells of indexed blocks."""
        self.see(int(notification[3]), time.time())


async def watch(rpc: Rpc, seen: Seen, base_fee_wei: int) -> None:
    """Notes new blocks until it is cancelled.

    The base fee is the same for each: on a chain of its own, one user's load would drive it up or
    down without end, and what is posted when with it.
    """
    while True:
        head = int(await rpc.request("eth_blockNumber"), 16)
        if seen.see(head, time.time()):
            await rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(base_fee_wei)])
        await asyncio.sleep(_POLL_S)
