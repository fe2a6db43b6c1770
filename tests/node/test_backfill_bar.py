"""The bar of a backfill: on a terminal only, below logs that stay as they are."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

import pytest

from indexer.status import IndexerStatus
from inferd.node.backfill_bar import BackfillBar

HALF_WAY = IndexerStatus(head=1_099, indexed=599, left_s=12.4)
AT_THE_HEAD = IndexerStatus(head=1_099, indexed=1_099)
LINE = '{"event": "' + "x" * 500 + '"}'


@dataclass
class Terminal:
    stream: TextIO
    reader: int

    def shown(self) -> str:
        """All that was written since the last call."""
        os.set_blocking(self.reader, False)
        shown = b""
        while True:
            try:
                shown += os.read(self.reader, 1 << 16)
            except BlockingIOError:
                return shown.decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    reader, writer = os.openpty()
    with os.fdopen(writer, "w", buffering=1) as stream:
        yield Terminal(stream, reader)
    os.close(reader)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """With no handlers but those that a test adds."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    return root


def test_terminal__a_bar_while_there_is_a_backfill(terminal: Terminal) -> None:
    bar = BackfillBar(terminal.stream, start_block=100)
    bar.observe(IndexerStatus())
    assert terminal.shown() == ""
    bar.observe(HALF_WAY)
    shown = terminal.shown()
    assert "backfill" in shown
    assert "500/1000" in shown
    assert "about 12 s left" in shown
    bar.observe(AT_THE_HEAD)
    assert "\x1b[2K" in terminal.shown(), "the bar's line is erased"
    bar.observe(AT_THE_HEAD)
    bar.close()
    assert terminal.shown() == ""


@pytest.mark.parametrize("line", [LINE, "\x1b[1mcoloured\x1b[0m [not] {markup}"])
def test_terminal__logs_come_whole_and_as_they_are(
    terminal: Terminal, root: logging.Logger, line: str
) -> None:
    handler = logging.StreamHandler(terminal.stream)
    root.addHandler(handler)
    bar = BackfillBar(terminal.stream, start_block=100)
    bar.observe(HALF_WAY)
    terminal.shown()
    root.error(line)
    shown = terminal.shown()
    assert f"{line}\r\n" in shown
    assert "500/1000" in shown.split(line)[1], "the bar is drawn anew below"
    bar.close()
    assert handler.stream is terminal.stream
    terminal.shown()
    root.error(line)
    assert terminal.shown() == f"{line}\r\n"


@pytest.mark.parametrize("kind", ["dumb terminal", "file"])
def test_no_terminal__nothing_but_logs(
    terminal: Terminal, root: logging.Logger, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream: TextIO = io.StringIO()
    if kind == "dumb terminal":
        monkeypatch.setenv("TERM", "dumb")
        stream = terminal.stream
    handler = logging.StreamHandler(stream)
    root.addHandler(handler)
    bar = BackfillBar(stream, start_block=100)
    bar.observe(HALF_WAY)
    root.error("a line")
    bar.close()
    shown = terminal.shown() if kind == "dumb terminal" else stream.getvalue()  # type: ignore[attr-defined]
    assert shown.replace("\r", "") == "a line\n"
