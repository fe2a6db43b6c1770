"""`inferd watch`: requests as they move; a live table on a terminal, a line a change elsewhere."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from indexer.types import WEI_PER_GWEI
from inferd.cli.client import NodeClient, NodeUnreachable
from inferd.cli.output import escape, note, show, show_json
from inferd.cli.session import JsonOption, Session, run_async, session_of
from inferd.cli.waiting import ENDS, POLL_S
from inferd.node.api_models import SCHEMA_VERSION, RequestState, RequestView

_ROWS = 20
_STYLES = {
    RequestState.SETTLED: "green",
    RequestState.REFUSED: "red",
    RequestState.EXPIRED: "red",
    RequestState.REFUNDED: "yellow",
}

Draw = Callable[[Sequence[RequestView]], None]


def register(app: typer.Typer) -> None:
    app.command("watch")(watch_command)


def watch_command(
    context: typer.Context,
    request_id: Annotated[
        int | None, typer.Argument(metavar="ID", help="One request; default: the newest.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Follow one request until it is settled, refused or refunded; or all of them until Ctrl-C.

    Without a terminal, and with --json, it prints a line for each change.

    Example: inferd watch 7
    """
    session = session_of(context)
    if as_json or not sys.stdout.isatty():
        run_async(_follow(session, request_id, ChangePrinter(as_json=as_json)))
        return
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        run_async(
            _follow(session, request_id, lambda views: live.update(table_of(views), refresh=True))
        )


async def _follow(session: Session, request_id: int | None, draw: Draw) -> None:
    async with NodeClient(session.settings.node_url) as client:
        views = await _read(client, request_id)
        away = False
        while True:
            draw(views)
            if request_id is not None and views[0].state in ENDS:
                return
            await asyncio.sleep(POLL_S)
            try:
                views = await _read(client, request_id)
                away = False
            except NodeUnreachable as error:
                if not away:
                    note(f"waiting: {error.message}")
                away = True


async def _read(client: NodeClient, request_id: int | None) -> list[RequestView]:
    if request_id is None:
        return (await client.requests(_ROWS)).requests
    return [await client.request(request_id)]


class ChangePrinter:
    """Prints a request when it is new or has changed, oldest first."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._shown: dict[int, str] = {}

    def __call__(self, views: Sequence[RequestView]) -> None:
        for view in reversed(views):
            line = line_of(view)
            if self._shown.get(view.id) == line:
                continue
            self._shown[view.id] = line
            if self._as_json:
                body = {"schema_version": SCHEMA_VERSION, **view.model_dump(mode="json")}
                show_json(body, one_line=True)
            else:
                show(line)


def line_of(view: RequestView) -> str:
    """A request in one line; it changes only when something happened to the request."""
    words = [f"request {view.id} {view.state}: {view.model}, fee {view.fee_wei} wei"]
    if view.reason is not None:
        words.append(f"{view.reason}: {view.sentence}")
    if view.worker is not None:
        words.append(f"worker {view.worker}")
    if view.state in {RequestState.SETTLED, RequestState.REFUNDED}:
        words.append(f"after {view.waited_blocks} blocks")
    if view.batch_size is not None:
        words.append(f"batch of {view.batch_size}")
    if view.tx_hash is not None:
        words.append(f"transaction {view.tx_hash}")
    if view.callback is not None:
        words.append(f"callback {view.callback}")
    return ", ".join(words)


def table_of(views: Sequence[RequestView]) -> Table:
    """The requests as a table for a terminal; every text in it is escaped."""
    table = Table("request", "model", "fee", "state", "worker", "blocks", "batch", "transaction")
    for view in views:
        state = view.state if view.reason is None else f"{view.state}: {view.reason}"
        table.add_row(
            _cell(view.id),
            _cell(view.model),
            _cell(f"{int(view.fee_wei) // WEI_PER_GWEI} gwei"),
            Text(escape(state), style=_STYLES.get(view.state, "")),
            _cell(_short(view.worker)),
            _cell(view.waited_blocks),
            _cell("" if view.batch_size is None else view.batch_size),
            _cell(_short(view.tx_hash)),
        )
    return table


def _cell(value: object) -> Text:
    # Text, never a str: rich would read [tags] in it.
    return Text(escape(str(value)))


def _short(identity: str | None) -> str:
    return "" if identity is None else f"{identity[:10]}…"
