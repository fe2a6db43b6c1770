"""How a command ends: its exit code, and one line on what is wrong with one on what to do."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import platformdirs
from typer import Abort, TyperException
from typer.main import get_command

from indexer.errors import ExitCode, OperatorError
from indexer.rpc import RpcError
from inferd.cli.app import app
from inferd.cli.output import ReaderGone, escape, note


def outcome_of(arguments: Sequence[str]) -> int:
    """Runs the command line and turns every end of it into an exit code."""
    try:
        code = get_command(app).main(
            args=list(arguments) or ["--help"], prog_name="inferd", standalone_mode=False
        )
        sys.stdout.flush()
    except (ReaderGone, BrokenPipeError):
        return _quietly()
    except (KeyboardInterrupt, Abort):
        return ExitCode.INTERRUPTED
    except OperatorError as error:
        return _report(error.message, error.help_text, error.exit_code)
    except TyperException as error:
        return _report_usage(error)
    except RpcError as error:
        return _report(
            f"the RPC endpoint refuses: {error}",
            "try again, or use another endpoint in `rpc_urls`",
            ExitCode.TRY_AGAIN,
        )
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else ExitCode.CONFIGURATION
    except Exception as error:  # the last place that can tell a person about it
        return _report_fault(error)
    return code if isinstance(code, int) else ExitCode.OK


def _report(message: str, help_text: str, code: int) -> int:
    note(f"error: {message}")
    note(f"help: {help_text}")
    return code


def _report_usage(error: TyperException) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "inferd"
    message = " ".join(error.format_message().split())
    return _report(message, f"`{command} --help` explains it", ExitCode.USAGE)


def _report_fault(error: Exception) -> int:
    what = f"inferd has a fault: {type(error).__name__}"
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        sys.stderr.write(escape(traceback.format_exc(), keep_lines=True))
        return _report(what, "please report it with the lines above", ExitCode.INTERNAL)
    place = _keep_traceback()
    help_text = (
        f"please report it with {place}" if place else "with INFERD_LOG_LEVEL=debug it shows where"
    )
    return _report(what, help_text, ExitCode.INTERNAL)


def _keep_traceback() -> Path | None:
    """Writes the traceback where only this user can read it; None where nothing can be written."""
    try:
        folder = platformdirs.user_log_path("inferd", ensure_exists=True)
        place = folder / "last-fault.log"
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(traceback.format_exc())
    except OSError:
        return None
    return place


def _quietly() -> int:
    """Whoever read our output has left (`inferd watch | head -1`): nothing is wrong."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return ExitCode.OK
    return ExitCode.OK
