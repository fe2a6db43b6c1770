"""The benchmark of the whole path, in small: what it must find is right, never how fast it was."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Hash32, Wei
from inferd.bench.e2e.heads import Seen
from inferd.bench.e2e.load import MOST_IN_ONE, shares, ticks
from inferd.bench.e2e.measure import measure
from inferd.bench.e2e.stages import STAGES, Moment, percentile, stage_figures, sustained_per_s
from inferd.bench.e2e.truth import Chain, Place
from inferd.bench.e2e.usage import memory_mb
from inferd.bench.e2e.verdict import check
from inferd.bench.index.errors import BenchFailed
from tests.workers.support import until


@pytest.mark.timeout(240)
def test_each_request_of_a_small_load_is_settled_once(tmp_path: Path) -> None:
    found = asyncio.run(measure(5, 8, folder=tmp_path / "kept", say=lambda _: None))
    assert (found["asked"], found["settled"]) == (40, 40)
    assert (found["lost"], found["doubled"], found["credit_error_wei"]) == (0, 0, "0")
    assert found["batch_max"] * found["posts"] >= 40
    assert found["gas_per_result"] > 0
    assert set(found["stages"]) == {*STAGES, "whole"}
    assert found["p95_blocks"] >= 1
    check(found)
    json.dumps(found)
    assert (tmp_path / "kept" / "node.log").is_file()


@pytest.mark.timeout(240)
async def test_a_ctrl_c_ends_every_process_it_started(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    program = (sys.executable, "-m", "inferd", "bench", "e2e", "--rate", "5", "--seconds", "60")
    bench = subprocess.Popen([*program, "--folder", str(folder)], stderr=subprocess.DEVNULL)
    try:
        await until((folder / "api.json").is_file, 90)
        children = _children(bench.pid)
        assert len(children) >= 3, "Anvil, PostgreSQL or its starter, the daemon"
        bench.send_signal(signal.SIGINT)
        assert bench.wait(60) == 130
    finally:
        bench.kill()
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task")
    return [int(c) for task in path.glob("*/children") for c in task.read_text().split()]


async def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(BenchFailed, match="not empty"):
        await measure(1, 2, folder=tmp_path, say=lambda _: None)


@given(st.floats(0.1, 5_000), st.floats(2, 60))
def test_the_load_is_what_was_asked_for(rate: float, seconds: float) -> None:
    made = list(ticks(rate, seconds))
    asked = sum(tick.requests for tick in made)
    assert abs(asked - rate * seconds) <= 1 + rate * 0.05, "a tick more or less"
    assert all(0 <= tick.at_s < seconds for tick in made)
    assert [tick.at_s for tick in made] == sorted(tick.at_s for tick in made)
    for tick in made:
        assert tick.requests > 0
        assert sum(shares(tick.requests)) == tick.requests
        assert all(0 < one <= MOST_IN_ONE for one in shares(tick.requests))


def test_stages_are_in_time_and_in_blocks() -> None:
    way = [Moment(10.0, 5), Moment(10.5, 6), Moment(10.25, 6)]
    ways = [[*way, Moment(11.0, 6), Moment(11.0, 6), Moment(12.0, 8)]]
    found = stage_figures(ways)
    assert found["indexed"]["p50_ms"] == 500
    assert found["indexed"]["p50_blocks"] == 1
    assert found["leased"]["p50_ms"] == 0, "clocks that cross take no time"
    assert found["mined"]["p99_blocks"] == 2
    assert (found["whole"]["p95_ms"], found["whole"]["p95_blocks"]) == (2000, 3)


def test_percentiles_are_observed_values() -> None:
    assert percentile([], 0.5) == 0
    assert [percentile(range(1, 101), share) for share in (0.5, 0.95, 0.99, 1.0)] == [
        50,
        95,
        99,
        100,
    ]


def test_what_is_sustained_leaves_out_the_first_block_and_all_after_the_load() -> None:
    when_s = {10: 100.0, 11: 101.0, 13: 103.0, 14: 104.0}
    results = {10: 500, 11: 20, 13: 40, 14: 999}
    assert sustained_per_s(results, when_s, 103.5) == 20
    assert sustained_per_s(results, when_s, 100.5) == 0
    assert sustained_per_s({}, {}, 100.5) == 0


def test_heads_are_seen_once_and_without_gaps() -> None:
    seen = Seen(first=7)
    assert (seen.newest, seen.height_at(0.0), seen.when(7)) == (6, 6, None)
    assert seen.see(7, 1.0)
    assert not seen.see(7, 1.5)
    assert seen.see(9, 2.0)
    assert [seen.when(block) for block in (6, 7, 8, 9, 10)] == [None, 1.0, 2.0, 2.0, None]
    assert [seen.height_at(at) for at in (0.5, 1.0, 1.9, 2.0)] == [6, 7, 7, 9]


def test_what_ended_twice_is_doubled() -> None:
    place = Place(1, Hash32(bytes(32)))
    chain = Chain({1: place, 2: place}, {1: place}, {1: 2, 2: 1}, [], {}, Wei(0))
    assert chain.doubled == 1


@pytest.mark.parametrize("wrong", ["lost", "doubled", "credit_error_wei"])
def test_what_must_never_be_is_an_error(wrong: str) -> None:
    right: dict[str, Any] = {"lost": 0, "doubled": 0, "credit_error_wei": "0"}
    check(right)
    with pytest.raises(BenchFailed):
        check({**right, wrong: "-3"})


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")
def test_memory_of_a_process_and_of_none() -> None:
    assert memory_mb(os.getpid()) > 10
    assert memory_mb(2**22 + 1) == 0
