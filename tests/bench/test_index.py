"""The comparison of the indexer with other ways: what it makes, what it reports, and its bounds.

The bounds are far from what is measured on a quiet machine (docs/benchmarks.md): they are for what
makes the indexer several times slower, whatever else runs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.database import Connection
from indexer.rpc.endpoint import Endpoint
from inferd.bench.index.by_hand import get_logs
from inferd.bench.index.chain import Shape, block_sizes, event_chain
from inferd.bench.index.compare import Comparison, Run, check_rows, compare, report
from inferd.bench.index.errors import BenchFailed
from inferd.bench.index.jobs import RAW_TABLES, Job
from inferd.bench.index.live import Latencies, Pace, live_report, measure_live
from inferd.bench.index.processes import cpu_s_of
from inferd.bench.index.run import peak_mb
from inferd.bench.index.way import Way

EVENTS = 3_000


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    shape = Shape(EVENTS, per_block=200, per_transaction=200)
    others = [way for way in Way if way is not Way.INFERD]
    return report(asyncio.run(compare(shape, others, rounds=1)))


@pytest.mark.xdist_group("bench_index")
def test_the_backfill_is_many_times_as_fast_as_web3(measured: dict[str, Any]) -> None:
    assert measured["ratios"]["web3"] >= 3, measured
    assert measured["ratios"]["web3_raw"] >= 0.8, measured


@pytest.mark.xdist_group("bench_index")
def test_the_backfill_costs_little_more_than_copying_raw_logs(measured: dict[str, Any]) -> None:
    """Processor time: unlike time, it hardly depends on what else the machine does."""
    ours, theirs = (
        measured[way]["cpu_s"] + measured[way]["postgres_cpu_s"] for way in ("inferd", "raw_copy")
    )
    assert ours <= 6 * theirs, measured
    assert measured["ratios"]["raw_copy"] >= 0.1, measured


@pytest.mark.xdist_group("bench_index")
def test_the_report_has_every_figure(measured: dict[str, Any]) -> None:
    for way in Way:
        took = measured[way]
        assert took["events_per_s"] == pytest.approx(EVENTS / took["wall_s"], rel=0.05)
        assert took["cpu_s"] > 0
        assert took["peak_mb"] > 20
        assert len(took["runs_wall_s"]) == 1
    assert set(measured["ratios"]) == {"raw", "raw_copy", "web3", "web3_raw"}
    assert measured["ranges"] > 0


def run(wall_s: float) -> Run:
    return Run(wall_s, cpu_s=1.0, peak_mb=50.0, anvil_cpu_s=0.5, postgres_cpu_s=0.25)


def test_a_ratio_is_that_of_runs_next_to_each_other() -> None:
    """A machine that is four times as slow in one round changes speeds, and no ratio."""
    runs = {
        Way.INFERD: [run(1.0), run(4.0), run(1.0)],
        Way.WEB3: [run(10.0), run(40.0), run(10.0)],
        Way.RAW: [run(0.5), run(2.0), run(0.4)],
    }
    found = report(Comparison(Shape(1_000, 20, 1), 3, 2.0, runs))

    assert found["ratios"] == {"web3": 10.0, "raw": 0.5}
    assert found["inferd"]["events_per_s"] == 1_000
    assert found["inferd"]["runs_wall_s"] == [1.0, 4.0, 1.0]


@given(st.integers(1, 5_000), st.integers(1, 500), st.integers(1, 300))
def test_blocks_add_up_to_the_events(events: int, per_block: int, per_transaction: int) -> None:
    blocks = list(block_sizes(Shape(events, per_block, per_transaction)))

    assert sum(map(sum, blocks)) == events
    assert all(sum(block) == per_block for block in blocks[:-1])
    assert all(1 <= count <= per_transaction for block in blocks for count in block)


async def test_the_chain_holds_the_events_it_says_in_the_blocks_it_says() -> None:
    async with event_chain(Shape(50, per_block=20, per_transaction=1)) as chain:
        endpoint = Endpoint(chain.anvil.url, timeout_s=30)
        job = Job(Way.RAW, chain.anvil.url, "", chain.contracts, chain.genesis_hash, chain.last, ())
        body = await endpoint.post(get_logs(job, (0, chain.last)))
        await endpoint.close()

    logs = [log for log in msgspec.json.decode(body)["result"] if len(log["topics"]) == 4]
    assert len(logs) == 50
    assert len({log["transactionHash"] for log in logs}) == 50
    by_block = [log["blockNumber"] for log in logs]
    assert [by_block.count(block) for block in sorted(set(by_block))] == [20, 20, 10]
    assert by_block[-1] == hex(chain.last)
    sizes = [len(msgspec.json.encode(log)) for log in logs]
    assert 1_200 <= min(sizes) <= max(sizes) <= 1_400


@pytest.mark.parametrize("way", [Way.INFERD, Way.RAW_COPY, Way.WEB3, Way.WEB3_RAW])
async def test_rows_that_are_missing_are_no_speed(connection: Connection, way: Way) -> None:
    await connection.execute(RAW_TABLES)

    await check_rows(connection, way, 0)
    with pytest.raises(BenchFailed, match=f"{way} wrote 0 events of 10"):
        await check_rows(connection, way, 10)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")
def test_processor_time_of_a_process_and_its_children_is_counted() -> None:
    before_s = cpu_s_of(os.getpid())
    burn = "import time\nwhile time.process_time() < 0.3: pass"

    subprocess.run([sys.executable, "-c", burn], check=True)

    assert 0.2 < cpu_s_of(os.getpid()) - before_s < 3


def test_the_peak_of_memory_is_what_was_held_and_not_what_is_held() -> None:
    before_mb = peak_mb()
    bytearray(b"\1") * (256 << 20)
    assert peak_mb() >= max(256, before_mb)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0)])
def test_percentiles_are_observed_latencies(share: float, expected: float) -> None:
    seconds = tuple(at / 1000 for at in range(100, 0, -1))
    found = Latencies(Pace(1.0, 100, 100), seconds)
    assert found.percentile_ms(share) == pytest.approx(expected)


async def test_live__each_block_is_heard_of() -> None:
    pace = Pace(block_time_s=0.05, events_per_block=5, blocks=4)

    (found,) = await measure_live([pace])

    assert len(found.seconds) == 4
    (told,) = live_report([found])
    assert 0 <= told["p50_ms"] <= told["p99_ms"] <= told["max_ms"]
