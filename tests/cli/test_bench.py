"""The tables of the benchmarks, their figures for programs, and an end that a script can see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from indexer.errors import ExitCode
from inferd.bench.dispatch.measure import Figures
from inferd.bench.gas import FIGURES
from inferd.bench.index.chain import Shape
from inferd.bench.index.compare import Comparison, Run
from inferd.bench.index.live import Latencies, Pace
from inferd.bench.index.way import Way
from inferd.bench.workers import measure as workers_bench
from inferd.bench.workers.kinds import Kind
from scheduler.simulation.predictions import Calibration, Cell
from tests.cli.support import Cli


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What is measured: each figure exactly its budget."""
    figures = {figure.key: figure.budget or 12_345 for figure in FIGURES}

    async def measure() -> dict[str, int]:
        return figures

    monkeypatch.setattr("inferd.cli.bench.measure", measure)
    return figures


def test_the_table_has_gas_and_budget(cli: Cli, measured: dict[str, int]) -> None:
    outcome = cli("bench", "gas")

    assert outcome.code == 0
    (line,) = (line for line in outcome.stdout.splitlines() if "request_32b" in line)
    assert line.count("58,000") == 2
    assert "12,345" in outcome.stdout


def test_the_figures_for_programs(cli: Cli, measured: dict[str, int]) -> None:
    outcome = cli("bench", "gas", "--json")

    assert json.loads(outcome.stdout) == {"schema_version": 1, "gas": measured}


@pytest.mark.parametrize("options", [[], ["--json"]], ids=str)
def test_over_budget_is_shown_and_is_a_failure(
    cli: Cli, measured: dict[str, int], options: list[str]
) -> None:
    measured["event_n100_w4_each"] = 6_001

    outcome = cli("bench", "gas", *options)

    assert outcome.code == ExitCode.NOT_AS_PROMISED
    assert "event_n100_w4_each" in outcome.stdout
    assert "error: the gas budget is exceeded: event_n100_w4_each takes 6001" in outcome.stderr


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Shape, tuple[Way, ...], int]]:
    """What was asked for; inferd takes 1 s, each other way 4 s."""
    asked = []

    async def compare(
        shape: Shape, others: Sequence[Way], *, rounds: int, progress: Any
    ) -> Comparison:
        asked.append((shape, tuple(others), rounds))
        progress("making a chain")
        ours, theirs = Run(1.0, 0.5, 100.0, 0.25, 0.125), Run(4.0, 3.0, 200.0, 0.25, 0.5)
        runs = {Way.INFERD: [ours] * rounds} | {way: [theirs] * rounds for way in others}
        return Comparison(shape, 9, 2.5, runs)

    monkeypatch.setattr("inferd.bench.index.compare.compare", compare)
    return asked


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ([], Shape(100_000, 200, 200)),
        (["--per-block", "20"], Shape(100_000, 20, 1)),
        (["--per-block", "1000"], Shape(100_000, 1000, 300)),
        (["--events", "50", "--per-block", "40", "--per-transaction", "8"], Shape(50, 40, 8)),
    ],
    ids=str,
)
def test_the_chain_that_is_asked_for(
    cli: Cli,
    compared: list[tuple[Shape, tuple[Way, ...], int]],
    options: list[str],
    shape: Shape,
) -> None:
    outcome = cli("bench", "index", *options, "--json")

    assert outcome.code == 0
    assert compared == [(shape, (Way.RAW, Way.RAW_COPY, Way.WEB3, Way.WEB3_RAW), 3)]


def test_the_comparison_for_programs(cli: Cli, compared: list[Any]) -> None:
    outcome = cli("bench", "index", "--events", "1000", "--rounds", "1", "--json")

    found = json.loads(outcome.stdout)
    assert found["schema_version"] == 1
    assert found["events"] == 1000
    assert found["inferd"] == {
        "events_per_s": 1000,
        "wall_s": 1.0,
        "cpu_s": 0.5,
        "peak_mb": 100.0,
        "anvil_cpu_s": 0.25,
        "postgres_cpu_s": 0.125,
        "runs_wall_s": [1.0],
    }
    assert found["ratios"] == {"raw": 4.0, "raw_copy": 4.0, "web3": 4.0, "web3_raw": 4.0}
    assert "making a chain" in outcome.stderr


def test_the_comparison_for_people__with_one_way_alone(cli: Cli, compared: list[Any]) -> None:
    outcome = cli("bench", "index", "--events", "1000", "--against", "raw_copy")

    lines = {line.split()[1]: line for line in outcome.stdout.splitlines() if "│" in line}
    assert "1,000" in lines["inferd"] and "500.0" in lines["inferd"]
    assert "250" in lines["raw_copy"] and "4.00" in lines["raw_copy"]
    assert "web3" not in lines


@pytest.mark.parametrize("as_json", [False, True])
def test_latency_at_the_head(cli: Cli, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    async def measure_live(
        *, poll_interval_s: float, listens: bool, progress: Any
    ) -> list[Latencies]:
        assert listens
        assert poll_interval_s == 0.5
        return [Latencies(Pace(0.25, 100, 4), (0.004, 0.002, 0.001, 0.003))]

    monkeypatch.setattr("inferd.bench.index.live.measure_live", measure_live)

    outcome = cli(
        "bench", "index", "--live", "--poll-interval-s", "0.5", *(["--json"] if as_json else [])
    )

    if as_json:
        assert json.loads(outcome.stdout) == {
            "schema_version": 1,
            "poll_interval_s": 0.5,
            "websocket": True,
            "live": [
                {
                    "block_time_s": 0.25,
                    "events_per_block": 100,
                    "blocks": 4,
                    "p50_ms": 2.0,
                    "p99_ms": 4.0,
                    "max_ms": 4.0,
                }
            ],
        }
    else:
        assert "0.25 s" in outcome.stdout
        assert "2.0" in outcome.stdout


def test_the_cost_of_limits_is_measured(cli: Cli) -> None:
    size = ("--pending", "200", "--workers", "20", "--models", "3", "--repetitions", "1")
    outcome = cli("bench", "limits", *size, "--json")
    assert outcome.code == 0, outcome.stderr
    figures = json.loads(outcome.stdout)
    assert figures.pop("schema_version") == 1
    assert {"none_ms", "all_ms", "split_ms", "swap_stall_ms"} <= figures.keys()
    assert all(value >= 0 for value in figures.values())
    lines = cli("bench", "limits", *size).stdout.splitlines()
    assert lines[0].endswith(", 1.00 times")
    assert lines[-1].startswith("stall of a change of policy: ")


HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def a_trace(folder: Path, requests: int) -> Path:
    place = folder / "trace.csv"
    lines = (
        f"2023-11-16 18:{n // 60:02}:{n % 60:02}.1234567,10,{20 + n % 7}\n" for n in range(requests)
    )
    place.write_text(HEADER + "".join(lines))
    return place


def test_predictions_are_measured_on_a_trace(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("bench", "predictions", "--trace", str(a_trace(tmp_path, 400)), "--json")
    assert outcome.code == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert (found["trace"], found["requests"], found["held_out"]) == ("trace.csv", 400, 200)
    assert (found["level"], found["tolerance"], found["holds"]) == (0.9, 0.02, True)
    assert {cell["predicted"] for cell in found["cells"]} == {"length", "service"}


def test_predictions_that_do_not_hold_are_a_failure(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell("service", "all", 900, 0.8, 1.5)
    monkeypatch.setattr(
        "inferd.cli.bench_predictions.calibration_of",
        lambda rows, seed: Calibration(1_800, 900, (cell,)),
    )
    outcome = cli("bench", "predictions", "--trace", str(a_trace(tmp_path, 4)))
    assert outcome.code == ExitCode.NOT_AS_PROMISED
    assert "80.0%" in outcome.stdout
    assert "10.0%" in outcome.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"", "line 1"),
        (HEADER.encode(), "no request"),
        (HEADER.encode() + b"yesterday,1,2\n", "line 2"),
        (b"\xff\xfe", "no UTF-8 text"),
    ],
    ids=str,
)
def test_a_file_that_is_no_trace_is_named(
    cli: Cli, tmp_path: Path, content: bytes | None, says: str
) -> None:
    place = tmp_path / "trace.csv"
    if content is not None:
        place.write_bytes(content)
    outcome = cli("bench", "predictions", "--trace", str(place))
    outcome.refused(ExitCode.CONFIGURATION, "trace.csv", says)


def test_posting_in_a_table_and_for_programs(cli: Cli) -> None:
    options = ("--seeds", "1", "--blocks", "100", "--delay-percent", "0.5")
    table = cli("bench", "posting", *options)
    assert table.code in {0, ExitCode.NOT_AS_PROMISED}, "100 blocks are few"
    assert table.stdout.count("price-by-age") == 6
    assert "times what one would who knew" in " ".join(table.stdout.split())

    outcome = cli("bench", "posting", *options, "--json")
    said = json.loads(outcome.stdout)
    assert said["schema_version"] == 1
    assert (said["seeds"], said["blocks"], said["delay_percent"]) == (1, 100, 0.5)
    assert len(said["cells"]) == 30
    assert said["worst_ratio"] >= 1.0
    assert "frontier" not in said


def test_posting_that_misses_its_target_is_shown_and_is_a_failure(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferd.bench.posting.measure.TARGET", 1.0)
    outcome = cli("bench", "posting", "--seeds", "1", "--blocks", "100", "--json")
    assert outcome.code == ExitCode.NOT_AS_PROMISED
    assert json.loads(outcome.stdout)["missed"] == 0
    assert "more than 1.00" in outcome.stderr


def test_a_series_that_cannot_be_read_is_one_line(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("bench", "posting", "--base-fee", str(tmp_path / "none.csv"))
    assert outcome.code == ExitCode.CONFIGURATION
    assert "none.csv cannot be read: No such file" in outcome.stderr
    assert outcome.stdout == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_the_figures_of_dispatch(cli: Cli, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    async def measure(**_: Any) -> Figures:
        return Figures(400, 250.0, 25.0, 4_000.0, 10.0, 1.5, 0.01, 90.0)

    monkeypatch.setattr("inferd.bench.dispatch.measure.measure", measure)
    outcome = cli("bench", "dispatch", *(["--json"] if as_json else []))
    assert outcome.code == 0
    if as_json:
        assert json.loads(outcome.stdout)["jobs_per_s"] == 4_000.0
    else:
        assert "4000 a second on one core" in outcome.stdout
        assert "10.0 times the 25 us" in outcome.stdout


_ALONE = workers_bench.Run(
    ("good", "slow"), 50, 50, 0, 20, 50, 2.5, 0, (), 0, {"good": 5, "slow": 1}
)
_TOGETHER = workers_bench.Run(
    tuple(Kind), 50, 50, 0, 25, 50, 2.0, 3, ("liar",), 2, {"good": 5, "slow": 1, "liar": 0}
)


@pytest.mark.parametrize(
    ("together", "said"),
    [
        (_TOGETHER, None),
        (replace(_TOGETHER, settled=49), "49 of 50 requests were settled"),
        (replace(_TOGETHER, doubled=1), "1 ended twice"),
        (replace(_TOGETHER, suspended=()), "suspended: nobody"),
        (replace(_TOGETHER, suspended=("good", "liar")), "suspended: good, liar"),
    ],
)
def test_the_figures_of_workers(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, together: workers_bench.Run, said: str | None
) -> None:
    async def measure(*_: Any, **__: Any) -> workers_bench.Figures:
        return workers_bench.Figures(_ALONE, together)

    monkeypatch.setattr("inferd.bench.workers.measure.measure", measure)
    monkeypatch.setattr("inferd.workers.model_files.smollm2", lambda _: None)
    table, figures = cli("bench", "workers"), cli("bench", "workers", "--json")
    assert json.loads(figures.stdout)["ratio"] == 0.8
    assert "goodput with all five: 0.80 of the good ones alone; 3 deaths" in table.stdout
    assert table.code == figures.code == (0 if said is None else ExitCode.NOT_AS_PROMISED)
    assert said is None or said in table.stderr
