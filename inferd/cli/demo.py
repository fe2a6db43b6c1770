"""`inferd demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def demo(
    requests: Annotated[
        Path | None, typer.Option(help="A TOML file of requests instead of the built-in dozen.")
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(help="Emptied first; keeps the logs, the database and the chain's files."),
    ] = Path(".inferd/demo"),
) -> None:
    """Run the whole path on real parts and show it.

    Starts PostgreSQL, Anvil and the daemon with two workers, submits a dozen requests, and checks
    every digest and every wei against the chain. Exit code 3 where anything is not as promised.

    Example: inferd demo
    """
    # The demo takes the whole of inferd with it: other commands need not wait for that.
    from inferd.demo.run import run_demo  # noqa: PLC0415
    from inferd.demo.script import load_script  # noqa: PLC0415

    run_demo(folder, load_script(requests), Console())
