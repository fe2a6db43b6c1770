"""`inferd node`, and `inferd demo`, which runs one."""

from __future__ import annotations

from typing import Annotated

import typer

from inferd.cli.demo import demo
from inferd.cli.session import session_of
from inferd.node.roles import ALL, require_usable, roles_of
from inferd.node.settings import load_settings

_RolesOption = Annotated[
    str | None,
    typer.Option(
        "--roles",
        metavar="ROLE,...",
        help="What this process does of a node that is split over processes on one database: any"
        " of index, schedule, dispatch, settle, api. Without it, all.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command()(node)
    app.command()(demo)


def node(context: typer.Context, roles: _RolesOption = None) -> None:
    """Run the daemon: index, schedule, dispatch, settle, until SIGTERM or Ctrl-C.

    One process does all of it, or several on one database divide the roles among them; standbys and
    further dispatchers may be started as well. Each opens only the keys that its roles need.

    SIGHUP makes it read its settings again; policies, limits and which workers of
    other machines are used change from the next round on.

    Example: inferd --config inferd.toml node --roles schedule,dispatch
    """
    session = session_of(context)
    had = ALL if roles is None else roles_of(roles)
    settings = session.settings
    require_usable(settings, had)
    from inferd.node.daemon import run  # noqa: PLC0415 - only this command needs the whole daemon

    run(settings, had, lambda: load_settings(session.config))
