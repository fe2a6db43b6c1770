"""`inferd bench posting`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from inferd.cli.output import SCHEMA_VERSION, note, show_json
from inferd.cli.session import JsonOption


def posting_command(
    base_fee: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A recorded series of blocks, as CSV; without it series are drawn, one a seed.",
        ),
    ] = None,
    hourly: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Hourly gas prices, as CSV, that drawn series follow from hour to hour.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of arrivals in each cell.")] = 8,
    blocks: Annotated[int, typer.Option(min=100, help="Length of a drawn series.")] = 1_000,
    spikes: Annotated[
        float, typer.Option(min=0.0, max=1000.0, help="Spikes in 1,000 blocks of a drawn series.")
    ] = 0.0,
    delay_percent: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="What one result's waiting for one block is worth, in percent of the fixed gas"
            " of a post at the median base fee.",
        ),
    ] = 1.0,
    plots: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write plots and a page there, with the frontier of gas and delay."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what the time of posting costs, against one who knows the future.

    Runs the daemon's own decision, and simpler rules, over a path of base fees: at 0.3, 1 and 3
    results a block and deadlines of 10 and 25 blocks. The clairvoyant's cost is the least that
    posting the same results in time could have cost. Ends with exit code 3 where inferd misses
    a deadline, or costs more than 1.10 times that without spikes.

    Example: inferd bench posting --seeds 4
    """
    # numpy takes a while to load, and few other commands need it.
    from inferd.bench.posting.measure import (  # noqa: PLC0415
        Setup,
        check_target,
        measure,
        measure_frontier,
    )
    from inferd.bench.posting.plots import summary, write_plots  # noqa: PLC0415
    from inferd.bench.recordings import load_regime, load_series  # noqa: PLC0415

    setup = Setup(
        seeds,
        delay_percent,
        blocks,
        load_series(base_fee) if base_fee is not None else None,
        load_regime(hourly) if hourly is not None else None,
        spikes,
    )
    measured = measure(setup, note)
    if plots is not None:
        frontier = measure_frontier(setup, note)
        write_plots(plots, measured, frontier)
        measured["frontier"] = frontier
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, **measured})
    else:
        console = Console(highlight=False)
        console.print(_table(measured))
        console.print(summary(measured))
    check_target(measured)


def _table(measured: dict[str, Any]) -> Table:
    table = Table("rate", "deadline", "rule")
    for column in ("cost", "highest", "gas", "delay", "missed"):
        table.add_column(column, justify="right")
    for row in measured["cells"]:
        table.add_row(
            f"{row['rate']:g}",
            str(row["deadline_blocks"]),
            row["policy"],
            f"{row['cost_ratio']:.3f}",
            f"{row['highest_cost_ratio']:.3f}",
            f"{row['gas_ratio']:.3f}",
            f"{row['mean_delay_blocks']:.1f}",
            str(row["missed"]),
            style="bold" if row["policy"] == "inferd" else "",
        )
    return table
