"""The gas table, and an end that a script can see."""

from __future__ import annotations

import json

import pytest

from indexer.errors import ExitCode
from inferd.bench.gas import FIGURES
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
