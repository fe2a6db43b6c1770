"""The daemon's own indexer, as the daemon runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from indexer.database import open_pool
from indexer.follow import Indexer
from indexer.rpc import ChainIdentity, RawLog, Rpc
from indexer.rpc.heads import HeadTrigger
from indexer.together import end
from indexer.types import Address
from inferd.bench.index.jobs import Job, Range

_POLL_S = 0.005


class _RecordingRpc(Rpc):
    """Remembers which ranges were fetched, for the others to fetch the same."""

    def __init__(self, url: str) -> None:
        super().__init__([url])
        self.fetched: list[Range] = []

    async def logs_in_range(
        self, first: int, last: int, addresses: Iterable[Address]
    ) -> list[RawLog]:
        logs = await super().logs_in_range(first, last, addresses)
        self.fetched.append((first, last))
        return logs


def _heads(job: Job) -> HeadTrigger | None:
    if not job.listens:
        return None
    identity = ChainIdentity(job.contracts.chain_id, job.genesis_hash)
    return HeadTrigger([job.rpc_url.replace("http://", "ws://", 1)], identity)


async def inferd(job: Job) -> list[Range]:
    """Until the last block is in the tables."""
    pool = await open_pool(job.database_url)
    try:
        rpc = _RecordingRpc(job.rpc_url)
        async with rpc:
            indexer = Indexer(
                rpc,
                pool,
                job.contracts,
                genesis_hash=job.genesis_hash,
                poll_interval_s=job.poll_interval_s,
                heads=_heads(job),
            )
            running = asyncio.create_task(indexer.run())
            try:
                # It says nothing of its own when it gets there.
                while (indexer.status.indexed or 0) < job.last and not running.done():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
            finally:
                await end(running)
            return rpc.fetched
    finally:
        await pool.close()
