"""`inferd bench policies`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from inferd.cli.output import SCHEMA_VERSION, note, show_json
from inferd.cli.session import JsonOption


def policies_command(
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Arrivals and lengths: CSV with TIMESTAMP,ContextTokens,GeneratedTokens; without"
            " it they are drawn from a law fitted to a public trace.",
        ),
    ] = None,
    base_fee: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A recorded series of blocks, as CSV; without it series are drawn, one a seed.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=2, help="Worlds in each of the cells that targets are judged on.")
    ] = 30,
    others: Annotated[
        int | None,
        typer.Option(min=2, help="Worlds in each of the other cells; by default a fifth of that."),
    ] = None,
    requests: Annotated[int, typer.Option(min=10, help="Requests in a world of load 1.")] = 500,
    processes: Annotated[int, typer.Option(min=1, help="Worlds at the same time.")] = 2,
    plots: Annotated[
        Path, typer.Option(metavar="DIR", help="Where plots and a page are written.")
    ] = Path("docs/benchmarks"),
    as_json: JsonOption = False,
) -> None:
    """Compare all policies in the simulator, with one who knows the future.

    Runs the daemon's own rounds and posting decisions in virtual time. The value of a policy is
    the fees of what it delivered in time less the gas it paid, relative to a bound that no
    policy can exceed. Ends with exit code 3 where the default policy misses a target.

    Example: inferd bench policies --seeds 4 --requests 300
    """
    # numpy takes a while to load, and few other commands need it.
    from inferd.bench.policies.cells import all_cells  # noqa: PLC0415
    from inferd.bench.policies.plots import summary, write_plots  # noqa: PLC0415
    from inferd.bench.policies.recordings import load  # noqa: PLC0415
    from inferd.bench.policies.report import check_targets, report  # noqa: PLC0415
    from inferd.bench.policies.run import measure  # noqa: PLC0415

    recordings = load(trace, base_fee)
    rest = others or max(2, seeds // 5)
    cells = [(cell, seeds if cell.target else rest) for cell in all_cells(requests)]
    found = report(
        measure(cells, recordings, processes, note),
        {
            "trace": "a fitted law" if trace is None else trace.name,
            "base_fee": "drawn series" if base_fee is None else base_fee.name,
        },
    )
    write_plots(plots, found)
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, **found})
    else:
        console = Console(highlight=False)
        console.print(_table(found))
        console.print(_losses(found))
        console.print(summary(found))
    check_targets(found)


def _table(found: dict[str, Any]) -> Table:
    """Over the target cells; `worst` is of all cells."""
    table = Table(Column("policy", no_wrap=True))
    for column in (
        "value",
        "95 %",
        "worst",
        "on time",
        "queue p95",
    ):
        table.add_column(column, justify="right")
    for name, policy in found["policies"].items():
        worst = min(cell["value_ratio"] for cell in policy["cells"].values())
        table.add_row(
            name,
            f"{policy['value_ratio']:.3f}",
            f"{policy['value_ratio_low']:.3f}-{policy['value_ratio_high']:.3f}",
            f"{worst:.3f}",
            f"{policy['on_time']:.1%}",
            f"{policy['queue_s']['p95']:.1f} s",
            style="bold" if name == found["default"] else "",
        )
    return table


def _losses(found: dict[str, Any]) -> Table:
    table = Table("cell", "policy that earns more", title=f"Where {found['default']} loses")
    table.add_column("by", justify="right")
    table.add_column("95 %", justify="right")
    for loss in found["default_loses"]:
        table.add_row(
            loss["cell"],
            loss["policy"],
            f"{loss['mean']:.4f}",
            f"{loss['low']:.4f} … {loss['high']:.4f}",
        )
    return table
