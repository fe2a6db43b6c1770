"""One run: a load for some seconds, then the truth from the chain and each request's stages."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from indexer.database import BLOCK_CHANNEL, Connection, connect
from indexer.together import end
from inferd.bench.arena import POSTER
from inferd.bench.e2e.heads import Seen, watch
from inferd.bench.e2e.load import Load, Sent
from inferd.bench.e2e.stages import Moment, Way, percentile, stage_figures, sustained_per_s
from inferd.bench.e2e.truth import Chain, read_chain
from inferd.bench.e2e.usage import Usage
from inferd.bench.e2e.world import (
    BASE_FEE_WEI,
    FEE_WEI,
    OWNERS,
    REQUESTERS,
    World,
    address_of,
    built,
)
from inferd.bench.index.errors import BenchFailed
from inferd.chain.child import die_with_parent

_DEADLINE_S = 3_600
_LOOK_S = 0.5
_NO_PROGRESS_S = 30.0
_SUBMITTER_GRACE_S = 60.0


async def measure(
    rate: float, seconds: float, *, folder: Path | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """Figures of one run. With a folder, which must be new or empty, logs and database stay there.

    Raises BenchFailed, DaemonDied, and what starting the parts raises.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="inferd-bench-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
        elif folder.exists() and any(folder.iterdir()):
            raise BenchFailed(f"{folder} is not empty", help_text="name a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        async with built(folder.resolve(), say) as world:
            return await _measure(world, rate, seconds, say)


async def _measure(
    world: World, rate: float, seconds: float, say: Callable[[str], None]
) -> dict[str, Any]:
    head = int(await world.rpc.request("eth_blockNumber"), 16)
    blocks, indexed = Seen(head), Seen(head)
    load = Load(
        rpc_url=world.anvil.url,
        contracts=world.contracts,
        rate=rate,
        seconds=seconds,
        accounts=REQUESTERS,
        deadline_s=int(time.time() + seconds) + _DEADLINE_S,
    )
    async with (
        _connected(world.postgres.url) as database,
        _running(watch(world.rpc, blocks, BASE_FEE_WEI)),
        _submitter(load) as submitter,
    ):
        await database.add_listener(BLOCK_CHANNEL, indexed.heard)
        usage = Usage(
            {
                "daemon": world.daemon.pid,
                "postgres": world.postgres.pid,
                "anvil": world.anvil.process.pid,
                "submitter": submitter.pid,
            }
        )
        usage.start()
        commits, started_s = await _commits(database), time.time()
        async with _running(usage.sample()):
            sent = await _sent(world, submitter, seconds)
            until_s, cpu_meanwhile_s = time.time(), usage.cpu_s()
            requests = sum(one.requests for one in sent)
            say(f"{requests:,} requests are sent")
            await _until_settled(world, database, requests)
            cpu_s = usage.cpu_s()
            commits = await _commits(database) - commits
        last = blocks.newest
        say("reading the chain")
        paid = [address_of(account) for account in (POSTER, *OWNERS)]
        chain = await read_chain(world.rpc, world.contracts, last, paid)
        ways = await _ways(database, chain, sent, blocks, indexed)
    results = Counter(place.block for place in chain.settled.values())
    when_s = {block: blocks.when(block) or until_s for block in results}
    took_s = until_s - started_s
    stages = stage_figures(ways)
    batches = list(chain.results_of.values())
    gas = sum(receipt.gas_used for receipt in chain.posts)
    memory = usage.samples_mb["daemon"]
    return {
        "rate": rate,
        "seconds": seconds,
        "asked": len(chain.asked),
        "settled": len(chain.settled),
        "lost": requests - len(chain.settled),
        "doubled": chain.doubled,
        "credit_error_wei": str(chain.credited_wei - FEE_WEI * len(chain.settled)),
        "settled_per_s": round(sustained_per_s(results, when_s, until_s), 1),
        "p95_blocks": stages["whole"]["p95_blocks"],
        "stages": stages,
        "posts": len(batches),
        "reverted_posts": sum(not receipt.succeeded for receipt in chain.posts),
        "batch_p50": median(batches) if batches else 0,
        "batch_p95": percentile(batches, 0.95),
        "batch_max": max(batches, default=0),
        "gas_per_result": round(gas / len(chain.settled)) if chain.settled else 0,
        "cpu_share": {name: round(used_s / took_s, 2) for name, used_s in cpu_meanwhile_s.items()},
        "daemon_cpu_ms_per_request": round(1000 * cpu_s["daemon"] / max(1, len(chain.asked)), 2),
        "postgres_cpu_ms_per_request": round(
            1000 * cpu_s["postgres"] / max(1, len(chain.asked)), 2
        ),
        "commits_per_request": round(commits / max(1, len(chain.asked)), 2),
        "peak_mb": {name: round(peak, 1) for name, peak in usage.peak_mb().items()},
        "daemon_mb_half_way": round(memory[len(memory) // 2], 1),
        "daemon_mb_at_the_end": round(memory[-1], 1),
    }


@contextlib.asynccontextmanager
async def _running(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await end(task)


@contextlib.asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Connection]:
    connection = await connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def _submitter(load: Load) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "inferd.bench.e2e.submit", msgspec.json.encode(load).decode()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _sent(world: World, submitter: asyncio.subprocess.Process, seconds: float) -> list[Sent]:
    """Raises BenchFailed, and DaemonDied as soon as it has."""
    talk = asyncio.create_task(submitter.communicate())
    try:
        async with asyncio.timeout(seconds + _SUBMITTER_GRACE_S):
            while not (await asyncio.wait({talk}, timeout=_LOOK_S))[0]:
                world.check_daemon()
    except TimeoutError:
        raise BenchFailed(
            "the submitter does not end", help_text="the machine may be overloaded; ask for less"
        ) from None
    finally:
        if not talk.done():
            await end(talk)
    answer, complaint = talk.result()
    if submitter.returncode:
        raise BenchFailed(
            f"the submitter gave up: {complaint.decode(errors='replace').strip()[-500:]}",
            help_text="ask for a lower rate, or on a machine with more cores",
        )
    return msgspec.json.decode(answer, type=list[Sent])


async def _until_settled(world: World, database: Connection, wanted: int) -> None:
    """Until so many requests are over and no other is pending, or for 30 s nothing has changed."""
    before, since_s = -1, time.monotonic()
    while True:
        world.check_daemon()
        head = int(await world.rpc.request("eth_blockNumber"), 16)
        row = await database.fetchrow(
            """
            SELECT block_number, (SELECT count(*) FROM chain.request) AS asked,
                   (SELECT count(*) FROM chain.request WHERE status <> 'pending') AS settled
            FROM chain.cursor
            """
        )
        asked, settled = (row["asked"], row["settled"]) if row else (0, 0)
        if row and row["block_number"] >= head and asked == settled >= wanted:
            return
        if settled != before:
            before, since_s = settled, time.monotonic()
        elif time.monotonic() - since_s > _NO_PROGRESS_S:
            return
        await asyncio.sleep(_LOOK_S)


async def _commits(database: Connection) -> int:
    """Transactions of this database so far, as the server's statistics have it."""
    await database.execute("SELECT pg_stat_clear_snapshot()")
    return int(
        await database.fetchval(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        )
    )


async def _ways(
    database: Connection, chain: Chain, sent: list[Sent], blocks: Seen, indexed: Seen
) -> list[Way]:
    """Of each request that was settled: sent and mined by the chain and by who sent it, what lies
    between by the daemon's tables."""
    sent_s = {one.tx_hash: one.sent_s for one in sent}
    leased_s = await _times(
        database, "SELECT request_id, min(leased_at) FROM node.lease GROUP BY request_id"
    )
    computed_s = await _times(
        database, "SELECT request_id, min(computed_at) FROM node.result GROUP BY request_id"
    )
    posted_s = await _times(database, "SELECT hash, sent_at FROM node.tx_attempt")
    ways: list[Way] = []
    for request_id, settled in chain.settled.items():
        asked = chain.asked[request_id]
        moments = [
            sent_s.get(asked.tx_hash),
            indexed.when(asked.block),
            leased_s.get(request_id),
            computed_s.get(request_id),
            posted_s.get(settled.tx_hash),
            blocks.when(settled.block),
        ]
        if None in moments:
            continue  # Settled by a transaction whose sending was not noted, say.
        *earlier, last = (
            Moment(at_s, blocks.height_at(at_s)) for at_s in moments if at_s is not None
        )
        ways.append((*earlier, Moment(last.at_s, settled.block)))
    return ways


async def _times(database: Connection, query: str) -> dict[Any, float]:
    """Seconds since the epoch, by the query's first column."""
    return {key: at.timestamp() for key, at in await database.fetch(query) if at is not None}
