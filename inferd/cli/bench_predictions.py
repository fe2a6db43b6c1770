"""`inferd bench predictions`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from indexer.errors import ExitCode, OperatorError
from inferd.bench.recordings import load_trace
from inferd.cli.output import SCHEMA_VERSION, note, show_json
from inferd.cli.session import JsonOption
from scheduler.calibration import LEVEL
from scheduler.simulation.predictions import COUNTED_CELL, TOLERANCE, Calibration, calibration_of
from scheduler.simulation.trace import CONVERSATION, TraceRow, drawn

_DRAWN = 20_000


class NotCalibrated(OperatorError):
    """The p90s that the scheduler reckons with do not hold."""

    code: ClassVar[str] = "not_calibrated"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


def predictions_command(
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A recorded trace, CSV with TIMESTAMP,ContextTokens,GeneratedTokens (the Azure"
            " LLM inference traces); by default one is drawn.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Measure how often lengths and service times stay under the p90 predicted for them.

    Each request of the trace is predicted before it is seen, on simulated workers of unequal and
    drifting speed; the first half only teaches. Ends with exit code 3 where a cell with 500
    requests or more is further than 2 % from 90 %. The loss is the pinball loss, divided by that
    of the best constant that could have been chosen afterwards.

    Example: inferd bench predictions --trace azure_llm_2023_conv.csv
    """
    rows = _drawn(seed) if trace is None else load_trace(trace)
    note(f"predicting {len(rows):,} requests; it takes some {len(rows) // 4000 + 1} s")
    found = calibration_of(rows, seed)
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "trace": None if trace is None else trace.name,
                "requests": found.requests,
                "held_out": found.held_out,
                "level": LEVEL,
                "tolerance": TOLERANCE,
                "worst_error": found.worst_error,
                "holds": found.holds,
                "cells": [{**asdict(cell), "counts": cell.counts} for cell in found.cells],
            }
        )
    else:
        Console(highlight=False).print(_table(found))
    if not found.holds:
        raise NotCalibrated(
            f"a p90 covers {found.worst_error:.1%} more or less than {LEVEL:.0%} of the outcomes",
            help_text=f"cells with fewer than {COUNTED_CELL} requests do not count; a trace with"
            " sudden changes may need another seed to tell chance from fault",
        )


def _drawn(seed: int) -> tuple[TraceRow, ...]:
    return drawn(CONVERSATION, _DRAWN, np.random.default_rng(seed))


def _table(found: Calibration) -> Table:
    table = Table("p90 of", "cell")
    for column in ("requests", "coverage", "loss"):
        table.add_column(column, justify="right")
    for cell in found.cells:
        good = abs(cell.coverage - LEVEL) <= TOLERANCE
        table.add_row(
            cell.predicted,
            cell.of,
            f"{cell.requests:,}",
            f"{cell.coverage:.1%}",
            f"{cell.loss_ratio:.2f}",
            style=("green" if good else "red") if cell.counts else "dim",
        )
    return table
