"""The trial of the predictions: what it measures, and that they hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scheduler.simulation.predictions import TOLERANCE, WORKERS, calibration_of
from scheduler.simulation.trace import CODE, CONVERSATION, TraceRow, drawn


@pytest.mark.parametrize("law", [CONVERSATION, CODE], ids=["conversation", "code"])
def test_the_p90s_hold_in_every_cell_that_counts(law) -> None:
    found = calibration_of(drawn(law, 8_000, np.random.default_rng(3)), seed=3)
    counting = [cell for cell in found.cells if cell.counts]
    assert {cell.predicted for cell in counting} == {"length", "service"}
    assert len(counting) >= 6
    assert found.worst_error <= TOLERANCE
    assert found.holds


def test_the_same_seed_gives_the_same_figures() -> None:
    trace = drawn(CONVERSATION, 600, np.random.default_rng(4))
    assert calibration_of(trace, 5) == calibration_of(trace, 5)
    assert calibration_of(trace, 5) != calibration_of(trace, 6)


def test_half_is_held_out_and_all_of_it_is_in_the_cells() -> None:
    found = calibration_of(drawn(CONVERSATION, 1_000, np.random.default_rng(4)))
    assert (found.requests, found.held_out) == (1_000, 500)
    workers = [cell for cell in found.cells if cell.of.startswith("worker")]
    assert len(workers) == WORKERS
    assert sum(cell.requests for cell in workers) == 500


def _changing(seed: int) -> tuple[TraceRow, ...]:
    """Short and long outputs in turns, 60 requests each time."""
    rows = drawn(CONVERSATION, 6_000, np.random.default_rng(seed))
    return tuple(
        replace(row, generated_tokens=1 + int(row.generated_tokens * (6 if at // 60 % 2 else 0.3)))
        for at, row in enumerate(rows)
    )


def test_only_with_the_factor_the_p90s_hold_while_lengths_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert calibration_of(_changing(3), seed=3).holds
    monkeypatch.setattr("scheduler.calibration.tracked", lambda log_factor, **_: log_factor)
    assert not calibration_of(_changing(3), seed=3).holds


def test_an_empty_trace_shows_nothing() -> None:
    found = calibration_of(())
    assert (found.held_out, found.worst_error, found.holds) == (0, 0.0, True)
