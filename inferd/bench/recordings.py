"""Reads recorded series from files that the operator names: UTF-8, whatever the locale says."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar, TypeVar

from indexer.errors import OperatorError
from scheduler.simulation.base_fee import COLUMNS, BaseFeeSeries, read_series
from scheduler.simulation.regime import HOURLY_COLUMN, Regime, fit_regime, read_hourly
from scheduler.simulation.trace import HEADER, TraceRow, parse_azure

T = TypeVar("T")


class BadRecording(OperatorError):
    """A file is no trace of requests, or no series of prices."""

    code: ClassVar[str] = "bad_recording"


def read_recording(
    path: Path, parse: Callable[[Iterable[str]], T], *, option: str, columns: str
) -> T:
    """What `parse` makes of the file's lines; it raises ValueError for a bad one.

    `option` named the file, and `columns` are what its head should have. Raises BadRecording.
    """
    help_text = f"`{option}` takes a CSV file with a head of {columns}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadRecording(
            f"{path} cannot be read: {error.strerror or error}", help_text=help_text
        ) from None
    lines = _Counted(_text_of(data, path, help_text))
    try:
        return parse(lines)
    except csv.Error as error:
        reason = f"line {lines.number}: {error}"
    except ValueError as error:
        reason = str(error)
    raise BadRecording(f"{path} cannot be used: {reason}", help_text=help_text)


def load_trace(path: Path) -> tuple[TraceRow, ...]:
    """The requests of a trace in the format of the Azure LLM inference traces.

    Raises BadRecording.
    """
    return read_recording(path, parse_azure, option="--trace", columns=",".join(HEADER))


def load_series(path: Path) -> BaseFeeSeries:
    """A series of consecutive blocks. Raises BadRecording."""
    return read_recording(path, read_series, option="--base-fee", columns=",".join(COLUMNS))


def load_regime(path: Path) -> Regime:
    """The law of hourly gas prices. Raises BadRecording."""

    def fitted(lines: Iterable[str]) -> Regime:
        return fit_regime(read_hourly(lines))

    return read_recording(path, fitted, option="--hourly", columns=HOURLY_COLUMN)


def _text_of(data: bytes, path: Path, help_text: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadRecording(
            f"{path} cannot be used: line {line} is no UTF-8 text", help_text=help_text
        ) from None


class _Counted:
    """Lines, and the number of the one that was read last."""

    def __init__(self, text: str) -> None:
        self._lines = io.StringIO(text, newline="")
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.number += 1
            yield line
