"""The command line as a whole: global options and the list of commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from inferd import __version__
from inferd.cli import (
    admin,
    ask,
    audit,
    bench,
    canary,
    cancel,
    configuration,
    contracts,
    daemon,
    deliver,
    dispute,
    fees,
    index,
    key,
    local_chain,
    policy,
    report,
    result,
    settlement,
    state,
    watch,
    withdraw,
    worker,
    workers,
)
from inferd.cli.output import show
from inferd.cli.session import Session
from inferd.node.logs import configure_logs

app = typer.Typer(
    name="inferd",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        show(f"inferd {__version__}")
        raise typer.Exit


@app.callback()
def inferd(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="PATH",
            help="Settings file; else INFERD_CONFIG, ./inferd.toml, or the user's own.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the release."),
    ] = False,
) -> None:
    """Turns AI inference requests on an EVM chain into results on that chain.

    Results go to stdout; logs, progress and errors to stderr.

    Example: inferd submit --model smollm2-135m --prompt "Why is the sky blue?"
    --fee 0.01ether --deadline 10m --wait
    """
    # Unconfigured, structlog would log to stdout, among the results. The settings, once read, say
    # how much to log; until then only their variable does.
    asked = os.environ.get("INFERD_LOG_LEVEL", "").lower()
    configure_logs("debug" if asked == "debug" else "warning", "console")
    context.obj = Session(config)


for commands in (
    local_chain,
    key,
    contracts,
    worker,
    workers,
    canary,
    daemon,
    ask,
    audit,
    cancel,
    fees,
    watch,
    result,
    deliver,
    withdraw,
    dispute,
    state,
    report,
    index,
    policy,
    settlement,
    admin,
    bench,
    configuration,
):
    commands.register(app)
