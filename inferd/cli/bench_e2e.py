"""`inferd bench e2e`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from inferd.cli.output import SCHEMA_VERSION, note, show_json
from inferd.cli.session import JsonOption, run_async


def e2e_command(
    rate: Annotated[float, typer.Option(min=0.1, max=5_000, help="Requests per second.")] = 200.0,
    seconds: Annotated[
        float, typer.Option(min=2, max=7_200, help="How long they are sent.")
    ] = 300.0,
    folder: Annotated[
        Path | None,
        typer.Option(help="A new folder that keeps the logs and the database."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the whole path under load: from requests on a chain to results on it.

    Starts Anvil with blocks of 1 s, PostgreSQL and a daemon with four workers whose model answers
    at once. Requests are sent at the rate whatever the daemon does. What was settled, lost or
    settled twice is read from the chain. Exit code 3 where something was.

    Example: inferd bench e2e --rate 50 --seconds 30
    """
    # web3.py and the rest take a while to load, and no other command needs this.
    from inferd.bench.e2e.measure import measure  # noqa: PLC0415
    from inferd.bench.e2e.verdict import check  # noqa: PLC0415

    found = run_async(measure(rate, seconds, folder=folder, say=note))
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, **found})
    else:
        console = Console(highlight=False)
        console.print(_figures(found))
        console.print(_stages(found))
    check(found)


def _figures(found: dict[str, Any]) -> Table:
    table = Table("figure", f"{found['rate']:g} requests/s for {found['seconds']:g} s")
    batches = [found[f"batch_{which}"] for which in ("p50", "p95", "max")]
    for name, value in (
        ("settled per second", found["settled_per_s"]),
        ("asked, settled", f"{found['asked']:,}, {found['settled']:,}"),
        ("lost, settled twice", f"{found['lost']}, {found['doubled']}"),
        ("blocks from sent to settled, p95", found["p95_blocks"]),
        ("posts", f"{found['posts']}, {found['reverted_posts']} reverted"),
        ("results in a post, p50, p95, most", batches),
        ("gas per result", f"{found['gas_per_result']:,}"),
        ("CPUs in use", _each(found["cpu_share"])),
        ("daemon's CPU per request", f"{found['daemon_cpu_ms_per_request']} ms"),
        ("PostgreSQL's", f"{found['postgres_cpu_ms_per_request']} ms"),
        ("transactions of the database per request", found["commits_per_request"]),
        ("peak memory, MB", _each(found["peak_mb"])),
        (
            "daemon's memory half way and at the end, MB",
            f"{found['daemon_mb_half_way']}, {found['daemon_mb_at_the_end']}",
        ),
    ):
        table.add_row(name, str(value))
    return table


def _each(by_name: dict[str, float]) -> str:
    return ", ".join(f"{name} {value}" for name, value in by_name.items())


def _stages(found: dict[str, Any]) -> Table:
    table = Table("until")
    figures = [f"p{percent}_{unit}" for unit in ("ms", "blocks") for percent in (50, 95, 99)]
    for figure in figures:
        table.add_column(figure.replace("_", " "), justify="right")
    for stage, values in found["stages"].items():
        table.add_row(stage, *(f"{values[figure]:,.0f}" for figure in figures))
    return table
