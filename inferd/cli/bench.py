"""`inferd bench ...`: what contracts, posting and policies cost or earn, how fast the rest is."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from inferd.bench.gas import FIGURES, check_budget, measure
from inferd.cli.bench_dispatch import dispatch_command
from inferd.cli.bench_e2e import e2e_command
from inferd.cli.bench_index import index_command
from inferd.cli.bench_limits import limits_command
from inferd.cli.bench_policies import policies_command
from inferd.cli.bench_posting import posting_command
from inferd.cli.bench_predictions import predictions_command
from inferd.cli.bench_round import round_command
from inferd.cli.bench_workers import workers_command
from inferd.cli.output import SCHEMA_VERSION, note, show_json
from inferd.cli.session import JsonOption, run_async


def register(app: typer.Typer) -> None:
    bench = typer.Typer(
        help="Measure what contracts, posting and policies cost or earn, and how fast and right"
        " the rest is.\n\n"
        "Example: inferd bench gas",
        rich_markup_mode="rich",
    )
    bench.command("gas")(gas_command)
    bench.command("index")(index_command)
    bench.command("e2e")(e2e_command)
    bench.command("predictions")(predictions_command)
    bench.command("posting")(posting_command)
    bench.command("round")(round_command)
    bench.command("dispatch")(dispatch_command)
    bench.command("workers")(workers_command)
    bench.command("limits")(limits_command)
    bench.command("policies")(policies_command)
    app.add_typer(bench, name="bench")


def gas_command(as_json: JsonOption = False) -> None:
    """Measure the gas of whole transactions in steady state, on a fresh Anvil.

    Every slot that a transaction writes is in use before it. Ends with exit code 3
    where a figure is over its budget. `inferd bench gas --json > contracts/gas.json`
    records the figures.

    Example: inferd bench gas
    """
    note("measuring on a fresh chain; it takes some 10 s")
    measured = run_async(measure())
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, "gas": measured})
    else:
        Console(highlight=False).print(_table(measured))
    check_budget(measured)


def _table(measured: dict[str, int]) -> Table:
    table = Table("figure", "what")
    table.add_column("gas", justify="right")
    table.add_column("budget", justify="right")
    for figure in FIGURES:
        gas, budget = measured[figure.key], figure.budget
        style = "" if budget is None else "green" if gas <= budget else "red"
        table.add_row(
            figure.key,
            figure.what,
            f"{gas:,}",
            "" if budget is None else f"{budget:,}",
            style=style,
        )
    return table
