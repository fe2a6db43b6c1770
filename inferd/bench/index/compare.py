"""All ways over one chain, in turns, each run in a process and a database of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from indexer.database import Connection, connect
from inferd.bench.index.chain import EventChain, Shape, event_chain
from inferd.bench.index.errors import BenchFailed
from inferd.bench.index.jobs import Job, Range
from inferd.bench.index.processes import cpu_s_of, start_run
from inferd.bench.index.run import Took
from inferd.bench.index.servers import fresh_database, temporary_server
from inferd.bench.index.way import Way
from inferd.node.postgres import EmbeddedPostgres

_COUNT = {
    Way.INFERD: "SELECT count(*) FROM chain.log JOIN chain.request ON id = request_id",
    Way.RAW_COPY: "SELECT count(*) FROM public.raw_log WHERE cardinality(topics) = 4",
    Way.WEB3: "SELECT count(*) FROM public.requested",
    Way.WEB3_RAW: "SELECT count(*) FROM public.raw_log WHERE cardinality(topics) = 4",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one way."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    anvil_cpu_s: float
    postgres_cpu_s: float
    """Of all of the server's processes."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What all runs took; the ways' n-th runs belong to the n-th round."""

    shape: Shape
    ranges: int
    """How many the last run of `inferd` fetched."""
    fill_s: float
    """What it took to make the chain."""
    runs: dict[Way, list[Run]]

    def events_per_s(self, way: Way) -> float:
        return self.shape.events / median(run.wall_s for run in self.runs[way])

    def ratio(self, way: Way) -> float:
        """How often as fast as `way` inferd is; each round's runs are compared with each other,
        for what else the machine does changes from round to round."""
        pairs = zip(self.runs[way], self.runs[Way.INFERD], strict=True)
        return median(other.wall_s / ours.wall_s for other, ours in pairs)


async def compare(
    shape: Shape,
    others: Sequence[Way],
    *,
    rounds: int,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Inferd and each of the others `rounds` times, in turns; they fetch the ranges it did.

    Raises BenchFailed, and what starting the servers raises.
    """
    ways = (Way.INFERD, *others)
    loop = asyncio.get_running_loop()
    progress(f"making a chain of {shape.events:,} events")
    started_s = loop.time()
    async with event_chain(shape) as chain:
        fill_s = loop.time() - started_s
        with tempfile.TemporaryDirectory(prefix="inferd-bench-", ignore_cleanup_errors=True) as at:
            async with temporary_server(Path(at)) as postgres:
                runs: dict[Way, list[Run]] = {way: [] for way in ways}
                ranges: list[Range] = []
                for at_round in range(rounds):
                    for way in ways:
                        took, run = await _run(way, chain, postgres, shape.events, ranges)
                        runs[way].append(run)
                        ranges = took.ranges
                        progress(
                            f"round {at_round + 1} of {rounds}: {way}"
                            f" {shape.events / run.wall_s:,.0f} events/s"
                        )
    return Comparison(shape, len(ranges), fill_s, runs)


async def _run(
    way: Way, chain: EventChain, postgres: EmbeddedPostgres, events: int, ranges: Iterable[Range]
) -> tuple[Took, Run]:
    async with fresh_database(postgres) as url:
        job = Job(
            way=way,
            rpc_url=chain.anvil.url,
            database_url=url,
            contracts=chain.contracts,
            genesis_hash=chain.genesis_hash,
            last=chain.last,
            ranges=tuple(ranges),
        )
        anvil_s, postgres_s = cpu_s_of(chain.anvil.process.pid), cpu_s_of(postgres.pid)
        took = await _in_a_process(job)
        run = Run(
            wall_s=took.wall_s,
            cpu_s=took.cpu_s,
            peak_mb=took.peak_mb,
            anvil_cpu_s=cpu_s_of(chain.anvil.process.pid) - anvil_s,
            postgres_cpu_s=cpu_s_of(postgres.pid) - postgres_s,
        )
        connection = await connect(url)
        await check_rows(connection, way, events)
        await connection.close()
    return took, run


async def _in_a_process(job: Job) -> Took:
    process = await start_run(job, stdout=asyncio.subprocess.PIPE)
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise BenchFailed(
            f"{job.way} ended with exit code {process.returncode}",
            help_text="what it wrote on stderr says why",
        )
    return msgspec.json.decode(said, type=Took)


async def check_rows(connection: Connection, way: Way, events: int) -> None:
    """Raises BenchFailed where rows are missing."""
    if way not in _COUNT:
        return
    rows: int = await connection.fetchval(_COUNT[way])
    if rows != events:
        raise BenchFailed(
            f"{way} wrote {rows} events of {events}", help_text="a speed means nothing then"
        )


def report(comparison: Comparison) -> dict[str, Any]:
    """For programs: medians over the rounds, ratios, and every run."""
    ways = {
        str(way): {
            "events_per_s": round(comparison.events_per_s(way)),
            **{
                name: round(median(getattr(run, name) for run in runs), 3)
                for name in ("wall_s", "cpu_s", "peak_mb", "anvil_cpu_s", "postgres_cpu_s")
            },
            "runs_wall_s": [round(run.wall_s, 3) for run in runs],
        }
        for way, runs in comparison.runs.items()
    }
    return {
        "events": comparison.shape.events,
        "per_block": comparison.shape.per_block,
        "per_transaction": comparison.shape.per_transaction,
        "ranges": comparison.ranges,
        "fill_s": round(comparison.fill_s, 1),
        **ways,
        "ratios": {
            str(way): round(comparison.ratio(way), 3)
            for way in comparison.runs
            if way is not Way.INFERD
        },
    }
