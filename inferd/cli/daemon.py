"""`inferd node`, and `inferd demo`, which runs one."""

from __future__ import annotations

import typer

from inferd.cli.demo import demo
from inferd.cli.session import session_of
from inferd.node.settings import load_settings


def register(app: typer.Typer) -> None:
    app.command()(node)
    app.command()(demo)


def node(context: typer.Context) -> None:
    """Run the daemon: index, schedule, dispatch, settle, until SIGTERM or Ctrl-C.

    SIGHUP makes it read its settings again; policies, limits and which workers of
    other machines are used change from the next round on.

    Example: inferd --config inferd.toml node
    """
    session = session_of(context)
    settings = session.settings
    from inferd.node.daemon import run  # noqa: PLC0415 - only this command needs the whole daemon

    run(settings, lambda: load_settings(session.config))
