"""The measurement of rounds: what it measures is a round like any other, and its figures are all
there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferd.bench.round.daemon import measure_daemon
from inferd.bench.round.measure import measure
from inferd.bench.round.scan import scan
from inferd.bench.round.world import Size, World
from scheduler.plan import plan


@pytest.mark.parametrize("seed", range(6))
def test_a_round_chooses_what_a_scan_over_all_pairs_chooses(seed: int) -> None:
    snapshot = World(Size(600, 90, 4), seed).snapshot
    # With little time for many, and more to do than slots.
    hurried = tuple(
        replace(one, deadline_s=int(snapshot.now_s) + 5 + number % 40)
        for number, one in enumerate(snapshot.requests)
    )
    for round_ in (snapshot, replace(snapshot, requests=hurried)):
        decided = plan(round_)
        chosen = {one.key: one.worker for one in decided.assigned}
        assert scan(round_, decided) == chosen
        assert len(chosen) > 100


def test_all_figures_are_there() -> None:
    said: list[str] = []
    found = measure(Size(80, 16, 3), repetitions=1, progress=said.append)
    assert found["assigned"] + found["kept"] + found["refused"] == 80
    for name in ("round_ms", "small_change_ms", "fill_ms", "peak_mb", "ratio_scan"):
        assert found[name] > 0
    assert [point["pending"] for point in found["growth"]["pending"]] == [10, 20, 40, 80]
    assert [point["workers"] for point in found["growth"]["workers"]] == [2, 4, 8, 16]
    assert isinstance(found["exponent_pending"], float)
    assert isinstance(found["exponent_workers"], float)
    assert said


async def test_the_daemon_s_rounds_run_over_real_tables() -> None:
    found = await measure_daemon(50, seconds=2.0, progress=lambda _: None)
    assert found["rounds"] >= 2
    for run in ("without_rounds", "with_rounds"):
        assert 0 <= found[run]["late_p50_ms"] <= found[run]["late_p99_ms"]
