"""From a mined block to its rows and a woken scheduler, on a chain that goes on.

The indexer runs in a process of its own. Here the blocks are mined, and here a listener hears of
them as the scheduler would.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexer.database import BLOCK_CHANNEL, connect
from indexer.rpc import Rpc
from inferd.bench.index.chain import Submitter, address_of, empty_chain
from inferd.bench.index.errors import BenchFailed
from inferd.bench.index.jobs import POLL_INTERVAL_S, Job
from inferd.bench.index.processes import start_run
from inferd.bench.index.servers import fresh_database, temporary_server
from inferd.bench.index.way import Way

_WAIT_S = 20.0
_WARM_UP_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """How a chain goes on."""

    block_time_s: float
    events_per_block: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of each block of one pace, from Anvil's word that it is mined."""

    pace: Pace
    seconds: tuple[float, ...]

    def percentile_ms(self, share: float) -> float:
        """The latency that a share of the blocks, 0 to 1, is within: an observed one."""
        ordered = sorted(self.seconds)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1000


PACES = (Pace(1.0, 100, 30), Pace(0.25, 100, 80))


@dataclass(eq=False)
class _Heard:
    """When which block was heard of."""

    newest: int = -1
    at_s: dict[int, float] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, *notification: Any) -> None:
        """A block's rows imply those of all before it: they commit in order."""
        now_s = time.perf_counter()
        number = int(notification[3])
        for block in range(self.newest + 1, number + 1):
            self.at_s[block] = now_s
        self.newest = max(self.newest, number)
        self.news.set()

    async def of(self, block: int) -> float:
        """Raises BenchFailed where nothing comes."""
        try:
            async with asyncio.timeout(_WAIT_S):
                while block not in self.at_s:
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            raise BenchFailed(
                f"block {block} was not indexed within {_WAIT_S:.0f} s",
                help_text="what the indexer wrote on stderr says why",
            ) from None
        return self.at_s[block]


async def measure_live(
    paces: Sequence[Pace] = PACES,
    *,
    poll_interval_s: float = POLL_INTERVAL_S,
    listens: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Latencies]:
    """One pace after the other, on one chain. Raises BenchFailed, and what starting the servers
    raises."""
    async with empty_chain() as (anvil, rpc, contracts, genesis_hash):
        with tempfile.TemporaryDirectory(prefix="inferd-bench-", ignore_cleanup_errors=True) as at:
            async with temporary_server(Path(at)) as postgres, fresh_database(postgres) as url:
                await rpc.request("evm_setAutomine", [False])
                head = await _head(rpc)
                job = Job(
                    way=Way.INFERD,
                    rpc_url=anvil.url,
                    database_url=url,
                    contracts=contracts,
                    genesis_hash=genesis_hash,
                    last=sys.maxsize,
                    ranges=(),
                    poll_interval_s=poll_interval_s,
                    listens=listens,
                )
                async with (
                    Submitter(anvil, contracts, address_of(1)) as submitter,
                    _listener(url) as heard,
                    _indexer(job),
                ):
                    await heard.of(head)
                    found = []
                    for pace in paces:
                        found.append(await _at_pace(rpc, submitter, heard, pace))
                        progress(f"blocks every {pace.block_time_s:g} s are done")
                    return found


async def _at_pace(rpc: Rpc, submitter: Submitter, heard: _Heard, pace: Pace) -> Latencies:
    """Mines in time, whether the last block was heard of or not, as a chain does."""
    first = await _head(rpc) + 1
    mined_s = []
    due_s = time.perf_counter()
    for _ in range(_WARM_UP_BLOCKS + pace.blocks):
        await submitter.submit([pace.events_per_block])
        due_s += pace.block_time_s
        await asyncio.sleep(due_s - time.perf_counter())
        await rpc.request("evm_mine")
        mined_s.append(time.perf_counter())
    # Word of a block may come before Anvil's own answer.
    seconds = [
        max(0.0, await heard.of(first + at) - at_s)
        for at, at_s in enumerate(mined_s)
        if at >= _WARM_UP_BLOCKS
    ]
    return Latencies(pace, tuple(seconds))


async def _head(rpc: Rpc) -> int:
    return int(await rpc.request("eth_blockNumber"), 16)


@contextlib.asynccontextmanager
async def _listener(url: str) -> AsyncIterator[_Heard]:
    heard = _Heard()
    connection = await connect(url)
    await connection.add_listener(BLOCK_CHANNEL, heard)
    try:
        yield heard
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def _indexer(job: Job) -> AsyncIterator[None]:
    """The daemon's indexer in a process of its own."""
    process = await start_run(job, stdout=asyncio.subprocess.DEVNULL)
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def live_report(found: Sequence[Latencies]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {
            "block_time_s": latencies.pace.block_time_s,
            "events_per_block": latencies.pace.events_per_block,
            "blocks": latencies.pace.blocks,
            "p50_ms": round(latencies.percentile_ms(0.5), 1),
            "p99_ms": round(latencies.percentile_ms(0.99), 1),
            "max_ms": round(latencies.percentile_ms(1.0), 1),
        }
        for latencies in found
    ]
