"""`inferd chain`: a local Anvil chain in the foreground."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, ClassVar

import typer

from indexer.errors import ExitCode, OperatorError
from inferd.chain.anvil import Anvil, load_anvil_config, start_anvil
from inferd.cli.output import note, show, show_json
from inferd.cli.session import JsonOption


class AnvilEnded(OperatorError):
    """Anvil ended without being asked to."""

    code: ClassVar[str] = "anvil_ended"
    exit_code: ClassVar[ExitCode] = ExitCode.TRY_AGAIN


def register(app: typer.Typer) -> None:
    app.command()(chain)


def chain(
    config_file: Annotated[
        Path | None,
        typer.Option("--config-file", metavar="PATH", help="Another anvil.toml than ./anvil.toml."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start a local chain (Anvil) as anvil.toml says, until Ctrl-C.

    Prints its URL and the addresses of its funded accounts, whose keys are public.

    Example: inferd chain --config-file anvil.toml
    """
    config = load_anvil_config(config_file)
    with start_anvil(config) as anvil:
        signal.signal(signal.SIGTERM, _leave)
        addresses = [config.account(index).address for index in range(config.accounts.count)]
        if as_json:
            show_json(
                {
                    "schema_version": 1,
                    "url": anvil.url,
                    "chain_id": config.chain_id,
                    "accounts": addresses,
                },
                one_line=True,
            )
        else:
            show(anvil.url)
            for index, address in enumerate(addresses):
                show(f"account {index} {address}")
        note(f"chain {config.chain_id} runs; Ctrl-C ends it")
        _wait(anvil)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(ExitCode.OK)


def _wait(anvil: Anvil) -> None:
    code = anvil.process.wait()
    raise AnvilEnded(
        f"Anvil ended by itself with exit code {code}",
        help_text="start it again; the machine may be out of memory",
    )
