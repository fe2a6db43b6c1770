"""Reads recorded traces of requests from files that the operator names."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from indexer.errors import OperatorError
from scheduler.simulation.trace import TraceError, TraceRow, parse_azure


class BadTrace(OperatorError):
    """A file is no trace of requests."""

    code: ClassVar[str] = "bad_trace"


def load_trace(path: Path) -> tuple[TraceRow, ...]:
    """The requests of a file in the format of the Azure LLM inference traces. Raises BadTrace."""
    try:
        with path.open(encoding="utf-8") as lines:
            return parse_azure(lines)
    except OSError as error:
        raise BadTrace(
            f"{path} cannot be read: {error.strerror}", help_text="name another file by `--trace`"
        ) from None
    except ValueError as error:
        what = str(error) if isinstance(error, TraceError) else "it is no UTF-8 text"
        raise BadTrace(
            f"{path} is no trace of requests: {what}",
            help_text="a trace is a CSV file TIMESTAMP,ContextTokens,GeneratedTokens",
        ) from None
