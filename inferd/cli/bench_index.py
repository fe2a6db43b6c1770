"""`inferd bench index`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from inferd.bench.index.way import Way
from inferd.cli.output import SCHEMA_VERSION, note, show_json
from inferd.cli.session import JsonOption, run_async

_ONE_EACH_UP_TO = 20
_MOST_IN_A_TRANSACTION = 300


def index_command(
    events: Annotated[int, typer.Option(min=1, help="Requests on the chain.")] = 100_000,
    per_block: Annotated[int, typer.Option(min=1, help="Requests in a block.")] = 200,
    per_transaction: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MOST_IN_A_TRANSACTION,
            help="Requests that share a transaction; by default one where a block has at most"
            f" {_ONE_EACH_UP_TO}, else all of a block, up to {_MOST_IN_A_TRANSACTION}.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each way, in turns.")] = 3,
    against: Annotated[
        list[Way] | None,
        typer.Option(help="Only against this way, not all; may be given more than once."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Measure latency at the head of the chain instead.")
    ] = False,
    poll_interval_s: Annotated[
        float,
        typer.Option(
            min=0.001, help="With --live: the daemon's `index.poll_interval_s`, in seconds."
        ),
    ] = 0.25,
    websocket: Annotated[
        bool,
        typer.Option(
            help="With --live: hear of new heads by websocket, as with `rpc_ws_urls`, or only poll."
        ),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Measure how fast events come into PostgreSQL, against three other ways of doing it.

    Makes a fresh chain of real requests, some 1.3 kB of JSON each, and copies it into a fresh
    database with inferd's own indexer and with each of the others, in turns. Speeds depend on
    the machine and on what else it does; the ratios much less. With `--live` it measures the
    time from a mined block to its rows and a woken listener, at 1 s and 0.25 s blocks.

    Example: inferd bench index --events 20000 --rounds 1
    """
    # web3.py and the rest take a while to load, and no other command needs this.
    from inferd.bench.index.chain import Shape  # noqa: PLC0415
    from inferd.bench.index.compare import compare, report  # noqa: PLC0415
    from inferd.bench.index.live import live_report, measure_live  # noqa: PLC0415

    if live:
        latencies = live_report(
            run_async(
                measure_live(poll_interval_s=poll_interval_s, listens=websocket, progress=note)
            )
        )
        if as_json:
            show_json(
                {
                    "schema_version": SCHEMA_VERSION,
                    "poll_interval_s": poll_interval_s,
                    "websocket": websocket,
                    "live": latencies,
                }
            )
        else:
            Console(highlight=False).print(_live_table(latencies))
        return
    shared = per_transaction or _shared(per_block)
    shape = Shape(events, per_block, min(shared, per_block))
    others = [way for way in Way if way is not Way.INFERD and (not against or way in against)]
    found = report(run_async(compare(shape, others, rounds=rounds, progress=note)))
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, **found})
    else:
        Console(highlight=False).print(_table(found))


def _shared(per_block: int) -> int:
    return 1 if per_block <= _ONE_EACH_UP_TO else min(per_block, _MOST_IN_A_TRANSACTION)


def _table(found: dict[str, Any]) -> Table:
    table = Table("way")
    for column in (
        "events/s",
        "CPU µs/event",
        "peak MB",
        "Anvil µs/event",
        "PostgreSQL µs/event",
        "inferd is faster by",
    ):
        table.add_column(column, justify="right")
    for way, took in found.items():
        if isinstance(took, dict) and "wall_s" in took:
            table.add_row(
                way,
                f"{took['events_per_s']:,}",
                _each(took["cpu_s"], found),
                f"{took['peak_mb']:.0f}",
                _each(took["anvil_cpu_s"], found),
                _each(took["postgres_cpu_s"], found),
                f"{found['ratios'][way]:.2f}" if way in found["ratios"] else "",
            )
    return table


def _each(cpu_s: float, found: dict[str, Any]) -> str:
    return f"{cpu_s / found['events'] * 1e6:.1f}"


def _live_table(latencies: Sequence[dict[str, Any]]) -> Table:
    table = Table()
    for column in ("block time", "events a block", "blocks", "p50 ms", "p99 ms", "max ms"):
        table.add_column(column, justify="right")
    for found in latencies:
        table.add_row(
            f"{found['block_time_s']:g} s",
            *(str(found[key]) for key in ("events_per_block", "blocks", "p50_ms", "p99_ms")),
            str(found["max_ms"]),
        )
    return table
