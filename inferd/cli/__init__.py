"""The `inferd` command. Results and nothing else on stdout; logs, progress and errors on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from indexer.errors import ExitCode


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command and ends the process with its exit code (indexer.errors.ExitCode)."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code and never raises. `None` = sys.argv."""
    try:
        # Loading the commands takes a second, in which Ctrl-C must not end in a traceback either.
        from inferd.cli.outcome import outcome_of  # noqa: PLC0415

        return outcome_of(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
