"""`inferd bench policies` as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexer.errors import ExitCode
from inferd.bench.policies.cells import all_cells
from inferd.bench.policies.run import Measured
from scheduler.policies import DEFAULT, POLICIES
from scheduler.simulation.figures import Figures, Quantiles
from tests.cli.support import Cli

NOTHING = Quantiles(0.0, 0.0, 0.0)
FIGURES = Figures(
    value_ratio=0.99,
    operator_ratio=0.99,
    on_time=1.0,
    queue=NOTHING,
    run=NOTHING,
    post=NOTHING,
    max_wait_s=0.0,
    jain=1.0,
    gas_per_result=1.0,
    posts=1,
    losing_posts=0,
    late=0,
    not_posted=0,
    failed_leases=0,
    negative_slack=0,
    rounds=1,
    fallbacks=0,
)


def measured() -> list[Measured]:
    """Every policy earns the same in a target cell and in another."""
    cells = all_cells(requests=20)
    return [
        Measured(cell, 2, {name: [FIGURES, FIGURES] for name in POLICIES}, [FIGURES, FIGURES])
        for cell in (cells[0], cells[-1])
    ]


def test_the_command_prints_the_table_or_nothing_but_json(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ready(*_: object) -> list[Measured]:
        return measured()

    monkeypatch.setattr("inferd.bench.policies.run.measure", ready)
    outcome = cli("bench", "policies", "--plots", str(tmp_path), "--json")
    found = json.loads(outcome.stdout)
    assert outcome.code == 0
    assert found["schema_version"] == 1
    assert found["policies"][DEFAULT.name]["value_ratio"] == pytest.approx(0.99)
    outcome = cli("bench", "policies", "--plots", str(tmp_path))
    assert outcome.code == 0
    assert "weighted-raw" in outcome.stdout
    assert "0.990" in outcome.stdout


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--trace", "a,b\n", "line 1 is 'a,b'"),
        ("--base-fee", "a,b\n", "needs the columns"),
        ("--trace", None, "No such file"),
    ],
)
def test_a_bad_file_is_one_clear_line(
    cli: Cli, tmp_path: Path, option: str, text: str | None, words: str
) -> None:
    path = tmp_path / "file.csv"
    if text is not None:
        path.write_text(text)
    outcome = cli("bench", "policies", option, str(path))
    assert outcome.code == ExitCode.CONFIGURATION
    assert outcome.stdout == ""
    error, help_line = outcome.stderr.splitlines()
    assert str(path) in error
    assert words in error
    assert option in help_line
