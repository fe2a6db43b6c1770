"""The contracts cost what is recorded, and no more than they may."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from indexer.errors import ExitCode
from inferd.bench.gas import FIGURES, OverBudget, check_budget, differences, measure

RECORD = Path(__file__).parents[2] / "contracts" / "gas.json"
REWRITE = "record it with `inferd bench gas --json > contracts/gas.json`"
TOLERANCE = 0.01


@pytest.fixture(scope="module")
def measured() -> dict[str, int]:
    return asyncio.run(measure())


@pytest.mark.xdist_group("gas")
def test_gas_is_what_is_recorded(measured: dict[str, int]) -> None:
    """In both directions: what has become cheaper must not creep back."""
    recorded = json.loads(RECORD.read_text())["gas"]

    found = differences(measured, recorded, TOLERANCE)

    assert not found, f"{'; '.join(found)}: {REWRITE}"


@pytest.mark.xdist_group("gas")
def test_gas_is_within_its_budget(measured: dict[str, int]) -> None:
    check_budget(measured)


def test_a_figure_over_its_budget_is_named() -> None:
    plenty = {figure.key: figure.budget or 10**6 for figure in FIGURES}
    check_budget(plenty)

    with pytest.raises(OverBudget, match="result_single takes 60001 of 60000") as refused:
        check_budget(plenty | {"result_single": 60_001})

    assert refused.value.exit_code is ExitCode.NOT_AS_PROMISED


@pytest.mark.parametrize(
    ("measured", "recorded", "found"),
    [
        ({"a": 1_010}, {"a": 1_000}, []),
        ({"a": 990}, {"a": 1_000}, []),
        ({"a": 1_011}, {"a": 1_000}, ["a is 1011, recorded 1000"]),
        ({"a": 989}, {"a": 1_000}, ["a is 989, recorded 1000"]),
        ({"a": 1, "b": 1}, {"a": 1}, ["b is not recorded"]),
        ({"a": 1}, {"a": 1, "b": 1}, ["b is not measured any more"]),
    ],
)
def test_what_differs_is_named(
    measured: dict[str, int], recorded: dict[str, int], found: list[str]
) -> None:
    assert differences(measured, recorded, 0.01) == found
