"""`inferd bench round`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from inferd.cli.output import SCHEMA_VERSION, note, show_json
from inferd.cli.session import JsonOption, run_async


def round_command(
    pending: Annotated[int, typer.Option(min=8, help="Requests that wait.")] = 100_000,
    workers: Annotated[int, typer.Option(min=8, help="Workers, all of them idle.")] = 10_000,
    models: Annotated[int, typer.Option(min=1, help="Models asked for and served.")] = 50,
    repetitions: Annotated[int, typer.Option(min=1, help="Rounds the medians are of.")] = 7,
    daemon: Annotated[
        bool,
        typer.Option(
            "--daemon",
            help="Measure instead how long the event loop is held up by rounds over a real"
            " database; --workers and --models are of no effect.",
        ),
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=2, help="With --daemon: how long rounds run.")
    ] = 20.0,
    as_json: JsonOption = False,
) -> None:
    """Measure one scheduling round, alone and on one core.

    From tables of requests and workers to the rows of its decisions, without the database; the
    same after 100 new requests and 50 ended leases; how it grows with requests and with workers;
    and a scan over all pairs of both, where that can be run. Times by the clock depend on the
    machine and on what else it does, those of the processor less.

    Example: inferd bench round --pending 10000 --workers 1000
    """
    from inferd.bench.round.daemon import measure_daemon  # noqa: PLC0415 - the same
    from inferd.bench.round.measure import measure  # noqa: PLC0415 - no other command needs it
    from inferd.bench.round.world import Size  # noqa: PLC0415

    if daemon:
        held_up = run_async(measure_daemon(pending, seconds=seconds, progress=note))
        if as_json:
            show_json({"schema_version": SCHEMA_VERSION, **held_up})
        else:
            Console(highlight=False).print(_daemon_table(held_up))
        return
    found = measure(Size(pending, workers, models), repetitions=repetitions, progress=note)
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, **found})
    else:
        Console(highlight=False).print(_table(found))


def _daemon_table(found: dict[str, Any]) -> Table:
    table = Table(f"{found['pending']:,} pending, {found['rounds']} rounds")
    for column in ("late p50 ms", "late p99 ms", "late max ms"):
        table.add_column(column, justify="right")
    for name in ("without_rounds", "with_rounds"):
        table.add_row(name.replace("_", " "), *(str(value) for value in found[name].values()))
    table.caption = (
        f"first round {found['first_round_ms']} ms, the others {found['round_ms']} ms (median)"
    )
    return table


def _table(found: dict[str, Any]) -> Table:
    scanned = found["scan"]
    table = Table("figure")
    table.add_column(f"{found['pending']:,} x {found['workers']:,} x {found['models']}")
    for name, value in (
        ("assigned, kept, refused", [found[one] for one in ("assigned", "kept", "refused")]),
        ("round", f"{found['round_ms']} ms ({found['round_cpu_ms']} ms of processor time)"),
        ("filling the tables before", f"{found['fill_ms']} ms"),
        (
            "round after a small change",
            f"{found['small_change_ms']} ms ({found['small_change_cpu_ms']} ms)",
        ),
        ("peak memory", f"{found['peak_mb']} MB"),
        ("grows with requests^", found["exponent_pending"]),
        ("grows with workers^", found["exponent_workers"]),
        (
            f"scan over {scanned['pending']:,} x {scanned['workers']:,} pairs",
            f"{scanned['scan_cpu_ms']} ms, {found['ratio_scan']} times the round's "
            f"{scanned['round_cpu_ms']} ms; at the size above some "
            f"{found['ratio_scan_projected']:,} times",
        ),
    ):
        table.add_row(name, str(value))
    return table
