"""Looks at every block once more when it has become final, and mends what differs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from indexer.backoff import Backoff
from indexer.database import Fence, Pool
from indexer.decode import Decoder
from indexer.errors import RpcUnreachable
from indexer.inspect import BlockReading, Inspector, by_second_opinion, replacement
from indexer.rpc.client import Rpc
from indexer.rpc.types import RpcError
from indexer.store import CursorMoved, Store
from indexer.stored import load_reach
from indexer.types import Contracts, Hash32

_BLOCKS_AT_ONCE = 100
_PAUSE_S = 1.0
_MAX_BACKOFF_S = 60.0

_SELECT_PROGRESS: Final = """
    SELECT r.block_number, b.hash IS NOT NULL AND b.hash <> r.block_hash AS replaced,
           (SELECT min(number) FROM chain.block) AS oldest
    FROM chain.recheck r LEFT JOIN chain.block b ON b.number = r.block_number
"""
_UPSERT_PROGRESS: Final = """
    INSERT INTO chain.recheck (block_number, block_hash) VALUES ($1, $2)
    ON CONFLICT (singleton) DO UPDATE SET block_number = $1, block_hash = $2
"""

log = structlog.get_logger("indexer")


@dataclass(frozen=True, slots=True)
class RecheckStatus:
    """A snapshot."""

    checked: int | None = None
    """The newest block that was compared; None before the first."""
    repaired_blocks: int = 0
    """Since the start of the process."""
    last_error: str | None = None
    """Why the last comparison could not be made; None once one can."""


class Recheck:
    """Follows behind the newest final block; how far it is, is stored, and survives a restart.

    Trouble with the node is retried for ever and shown in `status`; errors of the database and of
    the fence propagate out of `run`.
    """

    def __init__(
        self,
        rpc: Rpc,
        pool: Pool,
        contracts: Contracts,
        *,
        fence: Fence | None = None,
        may_run: Callable[[], bool] = lambda: True,
        pause_s: float = _PAUSE_S,
    ) -> None:
        """`may_run` says whether there is time for it: at the head, and not in a backfill."""
        self._pool = pool
        self._start = contracts.start_block
        self._fence = fence
        self._may_run = may_run
        self._pause_s = pause_s
        self._decoder = Decoder(contracts)
        self._store = Store(pool, contracts, window_blocks=0, fence=fence)
        self._inspector = Inspector(rpc, pool, contracts, by_second_opinion(rpc, contracts))
        self._status = RecheckStatus()

    @property
    def status(self) -> RecheckStatus:
        return self._status

    async def run(self) -> None:
        """Until it is cancelled."""
        backoff = Backoff(self._pause_s, _MAX_BACKOFF_S)
        while True:
            moved = False
            began_s = time.monotonic()
            try:
                moved = self._may_run() and await self.step()
            except CursorMoved:
                moved = True  # A reorganisation came between the reads and the write.
            except (RpcUnreachable, RpcError) as error:
                if self._status.last_error is None:
                    log.warning("recheck_waits", error=str(error))
                self._status = replace(self._status, last_error=str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            # Never more than half of the time, so that it is in nobody's way while there is much.
            await asyncio.sleep(time.monotonic() - began_s if moved else self._pause_s)

    async def step(self) -> bool:
        """Compares the next final blocks; False where there are none.

        Raises RpcUnreachable, RpcError, CursorMoved, what the fence raises.
        """
        async with self._pool.acquire() as connection:
            reach = await load_reach(connection)
            progress = await connection.fetchrow(_SELECT_PROGRESS)
        if reach is None:
            return False
        first = self._start
        if progress is not None:
            first = progress["oldest"] if progress["replaced"] else progress["block_number"] + 1
        last = min(reach.finalized, first + _BLOCKS_AT_ONCE - 1)
        if first > last:
            return False
        found = await self._inspector.inspect(first, last)
        if found.differing:
            await self._repair(found.differing)
        await self._keep_progress(last, found.last_hash)
        self._status = replace(self._status, checked=last, last_error=None)
        return True

    async def _repair(self, differing: Sequence[BlockReading]) -> None:
        wanted = replacement(self._decoder, differing)
        await self._store.replace_blocks(wanted.hashes, wanted.batch)
        for block in differing:
            log.error(
                "final_block_repaired",
                block_number=block.header.number,
                block_hash="0x" + block.header.hash.hex(),
                **Counter(str(one.kind) for one in block.differences),
            )
        self._status = replace(
            self._status, repaired_blocks=self._status.repaired_blocks + len(differing)
        )

    async def _keep_progress(self, number: int, block_hash: Hash32) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            if self._fence is not None:
                await self._fence(connection)
            await connection.execute(_UPSERT_PROGRESS, number, block_hash)
