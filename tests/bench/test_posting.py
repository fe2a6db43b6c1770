"""The benchmark of posting: its cells, its target, its pictures, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferd.bench.posting.errors import PostingTargetMissed
from inferd.bench.posting.measure import (
    DEADLINES_BLOCKS,
    FRONTIER_PERCENT,
    RATES,
    RULES,
    Setup,
    check_target,
    measure,
    measure_frontier,
)
from inferd.bench.posting.plots import write_plots
from inferd.bench.recordings import load_regime, load_series
from scheduler.simulation.base_fee import COLUMNS, draw_series

SETUP = Setup(seeds=2, delay_percent=1.0, blocks=150)


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return measure(SETUP, lambda line: None)


def test_a_row_for_each_cell_and_the_worst_of_ours(measured):
    cells = [(row["rate"], row["deadline_blocks"], row["policy"]) for row in measured["cells"]]
    assert cells == [(r, d, p) for r in RATES for d in DEADLINES_BLOCKS for p in RULES]
    ours = [row for row in measured["cells"] if row["policy"] == "inferd"]
    assert measured["worst_ratio"] == max(row["cost_ratio"] for row in ours)
    assert measured["missed"] == 0
    assert all(row["cost_ratio"] >= 1.0 and row["gas_ratio"] >= 1.0 for row in measured["cells"])
    assert all(row["highest_cost_ratio"] >= row["cost_ratio"] for row in measured["cells"])
    assert measured["series"] == "drawn"
    assert int(measured["delay_price_wei_per_s"]) > 0


def test_the_same_setup_gives_the_same_figures(measured):
    assert measure(SETUP, lambda line: None) == measured


def test_a_recorded_series_is_the_same_for_all_seeds(tmp_path: Path):
    series = draw_series(3, 120, start_wei=10**9)
    lines = [",".join(COLUMNS)]
    rows = zip(series.base_fees_wei, series.gas_used, series.gas_limits, strict=True)
    for number, (fee_wei, used, limit) in enumerate(rows):
        lines.append(f"{number},{1_000 + 12 * number},{fee_wei},{used},{limit}")
    path = tmp_path / "series.csv"
    path.write_text("\n".join(lines) + "\n")
    assert load_series(path) == series
    setup = Setup(seeds=1, delay_percent=1.0, blocks=1, record=load_series(path))
    found = measure(setup, lambda line: None)
    assert (found["series"], found["blocks"]) == ("recorded", 120)


@pytest.mark.parametrize(
    ("worst_ratio", "missed", "spikes", "wrong"),
    [
        (1.10, 0, 0.0, None),
        (1.11, 0, 0.0, "costs 1.110 times"),
        (1.11, 0, 2.0, None),
        (1.0, 3, 2.0, "3 results missed"),
    ],
)
def test_the_target_holds_without_spikes_and_deadlines_always(worst_ratio, missed, spikes, wrong):
    figures = {"worst_ratio": worst_ratio, "missed": missed, "spikes_per_1000_blocks": spikes}
    if wrong is None:
        check_target(figures)
    else:
        with pytest.raises(PostingTargetMissed, match=wrong):
            check_target(figures)


def test_plots_and_a_page_with_their_figures(measured, tmp_path: Path):
    frontier = measure_frontier(Setup(1, 1.0, 100), lambda line: None)
    assert len(frontier) == len(RATES) * len(FRONTIER_PERCENT)
    for rate in RATES:
        rows = [row for row in frontier if row["rate"] == rate]
        # The dearer a delay, the less of it; and at the end, of gas the more.
        delays = [row["mean_delay_blocks"] for row in rows]
        assert delays == sorted(delays, reverse=True)
        assert rows[0]["gas_share"] < rows[-1]["gas_share"]
    write_plots(tmp_path / "new", measured, frontier)
    for name in ("posting-frontier.png", "posting-cells.png"):
        assert (tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "new" / "posting.html").read_text()
    assert "posting-frontier.png" in page
    assert f"{measured['worst_ratio']:.3f} times" in page
    assert page.count("<tr>") == 2 + len(frontier) + len(measured["cells"])


def test_drawn_series_may_follow_hours_and_have_spikes(tmp_path: Path):
    path = tmp_path / "hourly.csv"
    hours = [f"{10.0 + (7 * n % 50)}" for n in range(60)]
    path.write_text("\n".join(["avg_gas_price_gwei", *hours]) + "\n")
    calm = Setup(1, 1.0, 400).series(5)
    hourly = Setup(1, 1.0, 400, regime=load_regime(path)).series(5)
    wild = Setup(1, 1.0, 400, spikes_per_1000_blocks=20.0).series(5)
    assert hourly != calm
    assert max(wild.base_fees_wei) > 2 * max(calm.base_fees_wei)
