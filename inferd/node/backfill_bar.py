"""How far a backfill is, for a person at the terminal that the logs go to: a bar below them."""

from __future__ import annotations

import logging
import os
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from indexer.status import IndexerStatus


class _Stream(Protocol):
    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


class BackfillBar:
    """Nothing at all where the stream is no terminal: what reads it there gets the logs alone."""

    def __init__(self, stream: TextIO, start_block: int) -> None:
        """`stream` is the one that the logs go to; the deployment is in `start_block`."""
        self._stream = stream
        self._start_block = start_block
        dumb = os.environ.get("TERM") in {"dumb", "unknown"}
        self._console = Console(file=stream) if stream.isatty() and not dumb else None
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._above: _Stream = _AboveTheBar(self._console) if self._console else stream

    def observe(self, index: IndexerStatus) -> None:
        """Shows where the backfill is, or takes the bar away where there is none."""
        if self._console is None:
            return
        if index.left_s is None or index.head is None or index.indexed is None:
            self.close()
            return
        if self._progress is None:
            self._progress = self._begun(self._console)
        self._progress.update(
            self._task,
            total=index.head - self._start_block + 1,
            completed=index.indexed - self._start_block + 1,
            left=f"about {index.left_s:.0f} s left",
        )
        self._progress.refresh()

    def close(self) -> None:
        """Takes the bar away; logs go to the stream again as they are."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
            _redirect_logs(self._above, self._stream)

    def _begun(self, console: Console) -> Progress:
        progress = Progress(
            TextColumn("backfill"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("blocks, {task.fields[left]}"),
            console=console,
            transient=True,
            # It is drawn when there is news, and needs no thread.
            auto_refresh=False,
            # Of all that is written, logs alone are expected; rich would fold their lines.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = progress.add_task("", total=None, left="")
        progress.start()
        _redirect_logs(self._stream, self._above)
        return progress


def _redirect_logs(before: _Stream, after: _Stream) -> None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is before:
            handler.setStream(after)


class _AboveTheBar:
    """A stream for logs: whole lines, as they are, and the bar drawn anew below them."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> None:
        self._console.out(text, end="", highlight=False)

    def flush(self) -> None:
        """Each line is written through."""
