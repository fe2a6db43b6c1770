"""The comparison of policies: what it runs, what it reports and writes, and what it refuses."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer.errors import ExitCode
from inferd.bench.policies.cells import TARGET_LOADS, Fees, all_cells
from inferd.bench.policies.errors import BenchExtraMissing, PolicyTargetMissed
from inferd.bench.policies.plots import page, write_plots
from inferd.bench.policies.recordings import Recordings, load
from inferd.bench.policies.report import check_targets, report
from inferd.bench.policies.run import Measured, measure
from scheduler.policies import DEFAULT, POLICIES

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{second:02d}.0000000,{100 + second},{10 + second % 7}\n"
    for second in range(60)
)
SERIES = "number,timestamp,base_fee_per_gas_wei,gas_used,gas_limit\n" + "".join(
    f"{number},{1000 + 12 * number},{10**7 + number},15000000,30000000\n" for number in range(400)
)
SOURCE = {"trace": "a fitted law", "base_fee": "drawn series"}


def quiet(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def measured() -> list[Measured]:
    cells = all_cells(requests=20)
    return measure([(cells[0], 3), (cells[3], 2)], Recordings(), 2, quiet)


def with_ratio(one: Measured, policy: str, ratio: float, **changes: Any) -> Measured:
    changed = [replace(each, value_ratio=ratio, **changes) for each in one.figures[policy]]
    return Measured(one.cell, one.seeds, one.figures | {policy: changed}, one.told)


def test_cells_are_what_the_targets_and_the_harder_worlds_need() -> None:
    cells = all_cells(requests=50)
    assert [cell.setting.demand.load for cell in cells if cell.target] == list(TARGET_LOADS)
    assert min(TARGET_LOADS) == 0.8
    assert max(TARGET_LOADS) == 3.0
    assert {cell.setting.block_ms for cell in cells} == {12_000, 2_000, 250}
    assert len({cell.name for cell in cells}) == len(cells)
    assert any(cell.fees is Fees.SPIKES for cell in cells)
    assert [cell.name for cell in cells if cell.lengths] == ["lengths learnt"]
    for cell in cells:
        assert cell.setting.requests == round(50 * cell.setting.demand.load)


@pytest.mark.xdist_group("bench_policies")
def test_every_policy_has_its_figures(measured: list[Measured]) -> None:
    found = report(measured, SOURCE)
    assert set(found["policies"]) == set(POLICIES)
    ours = found["policies"][DEFAULT.name]
    assert 0.9 < ours["value_ratio"] <= 1.0
    assert ours["value_ratio_low"] <= ours["value_ratio"] <= ours["value_ratio_high"]
    assert 0.9 < ours["on_time"] <= 1.0
    for stage in ("queue_s", "run_s", "post_s"):
        assert 0 <= ours[stage]["p50"] <= ours[stage]["p95"] <= ours[stage]["p99"]
    for name in ("max_wait_s", "jain", "gas_per_result", "losing_posts", "fallbacks"):
        assert ours[name] >= 0
    assert set(ours["vs_weighted_raw"]) == {"mean", "low", "high"}
    assert set(ours["cells"]) == {one.cell.name for one in measured}
    baseline = found["policies"]["weighted-raw"]["vs_weighted_raw"]
    assert baseline == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert found["cells"][0]["bound_variables"] > 0
    assert 0.9 < found["cells"][0]["told_value_ratio"] <= 1.0
    assert json.loads(json.dumps(found)) == found


@pytest.mark.xdist_group("bench_policies")
def test_the_same_seeds_give_the_same_figures_in_one_process(measured: list[Measured]) -> None:
    (again,) = measure([(measured[0].cell, 3)], Recordings(), 1, quiet)
    assert again.figures == measured[0].figures
    assert again.told == measured[0].told


@pytest.mark.xdist_group("bench_policies")
def test_what_differs_between_cells_does_not_widen_the_interval(measured: list[Measured]) -> None:
    target = with_ratio(measured[0], DEFAULT.name, 1.0)
    other = Measured(all_cells(requests=20)[1], target.seeds, dict(target.figures), target.told)
    found = report([target, with_ratio(other, DEFAULT.name, 0.5)], SOURCE)
    ours = found["policies"][DEFAULT.name]
    assert ours["value_ratio"] == ours["value_ratio_low"] == ours["value_ratio_high"] == 0.75


@pytest.mark.xdist_group("bench_policies")
def test_a_missed_target_is_named(measured: list[Measured]) -> None:
    target, harder = measured
    good = [with_ratio(one, DEFAULT.name, 0.98) for one in measured]
    good = [with_ratio(one, "weighted-raw", 0.9) for one in good]
    check_targets(report(good, SOURCE))
    for bad, words in (
        ([with_ratio(target, DEFAULT.name, 0.96), good[1]], "value / bound"),
        ([good[0], with_ratio(good[1], "weighted-raw", 0.995)], "the difference to weighted-raw"),
        ([good[0], with_ratio(good[1], DEFAULT.name, 0.98, negative_slack=1)], "negative slack"),
        ([with_ratio(good[0], DEFAULT.name, 0.98, losing_posts=2), good[1]], "at a loss"),
    ):
        with pytest.raises(PolicyTargetMissed, match=words) as raised:
            check_targets(report(bad, SOURCE))
        assert raised.value.exit_code == ExitCode.NOT_AS_PROMISED
    # Other settings than the daemon's own are shown and not judged.
    shown = Measured(replace(good[1].cell, defaults=False), 2, good[1].figures, good[1].told)
    check_targets(report([good[0], with_ratio(shown, "weighted-raw", 0.995)], SOURCE))
    # A harder cell has no target of value of its own.
    check_targets(report([good[0], with_ratio(good[1], DEFAULT.name, 0.9)], SOURCE))
    assert harder.cell.target is False


@pytest.mark.xdist_group("bench_policies")
def test_where_the_default_loses_is_said(measured: list[Measured]) -> None:
    changed = [with_ratio(one, DEFAULT.name, 0.90) for one in measured]
    changed = [with_ratio(one, "edf", 0.95) for one in changed]
    changed = [with_ratio(one, "fifo", 0.9005) for one in changed]
    losses = report(changed, SOURCE)["default_loses"]
    edf = [loss for loss in losses if loss["policy"] == "edf"]
    assert [loss["mean"] for loss in edf] == pytest.approx([0.05, 0.05])
    assert not [loss for loss in losses if loss["policy"] == "fifo"]


@pytest.mark.xdist_group("bench_policies")
def test_plots_and_a_page_are_written(measured: list[Measured], tmp_path: Path) -> None:
    found = report(measured, SOURCE)
    write_plots(tmp_path, found)
    text = (tmp_path / "policies.html").read_text()
    assert text == page(found)
    for name in ("policies-loads.png", "policies-cells.png", "policies-waits.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert f'src="{name}"' in text
    for policy in (*POLICIES, "value, told"):
        assert f"<td>{policy}</td>" in text


@pytest.mark.xdist_group("bench_policies")
def test_a_world_is_met_with_what_a_node_learns(measured: list[Measured]) -> None:
    """Who is told starts at once with the true speeds; the same worlds end differently."""
    unequal = next(cell for cell in all_cells(requests=60) if cell.name == "failing workers")
    (one,) = measure([(unequal, 2)], Recordings(), 2, quiet)
    assert one.told != one.figures[DEFAULT.name]
    lengths = replace(unequal, lengths=True)
    (other,) = measure([(lengths, 2)], Recordings(), 2, quiet)
    assert other.told == one.told
    assert other.figures[DEFAULT.name] != one.figures[DEFAULT.name]


def test_a_recorded_trace_and_series_are_used(tmp_path: Path) -> None:
    trace, series = tmp_path / "trace.csv", tmp_path / "series.csv"
    trace.write_text(TRACE)
    series.write_text(SERIES)
    recordings = load(trace, series)
    cell = all_cells(requests=20)[0]
    rows = recordings.rows(20, np.random.default_rng(1))
    assert {row.generated_tokens for row in rows} <= set(range(10, 17))
    fees = recordings.fees_of(cell)(50, np.random.default_rng(1))
    assert list(fees) == list(range(fees[0], fees[0] + 50))
    assert 10**7 <= fees[0] <= 10**7 + 350
    longer = recordings.fees_of(cell)(500, np.random.default_rng(1))
    assert len(longer) == 500


def test_without_highs_or_matplotlib_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("inferd.bench.policies.run.find_spec", lambda _: None)
    with pytest.raises(BenchExtraMissing) as raised:
        measure([], Recordings(), 1, quiet)
    assert "inferd[bench]" in raised.value.help_text
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BenchExtraMissing, match="matplotlib"):
        write_plots(tmp_path, {})
