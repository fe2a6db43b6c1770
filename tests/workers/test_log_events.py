"""What workers write into logs is what docs/operating.md tells of."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import inferd.workers

_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
_NAME = re.compile(r"[a-z]+(_[a-z]+)*")
PACKAGE = Path(inferd.workers.__file__).parent
DOCS = PACKAGE.parent.parent / "docs" / "operating.md"


def events_of(source: str) -> Iterator[str]:
    """First arguments of calls of a logger's methods; of a choice between two, both."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=level), args=[first, *_]) if level in _LEVELS:
                for inner in (
                    (first.body, first.orelse) if isinstance(first, ast.IfExp) else [first]
                ):
                    match inner:
                        case ast.Constant(value=str(text)) if _NAME.fullmatch(text):
                            yield text


def test_every_event_of_workers_is_in_the_docs() -> None:
    events = {
        event for file in PACKAGE.rglob("*.py") for event in events_of(file.read_text("utf-8"))
    }
    assert {"job_done", "worker_in", "worker_out", "result_not_needed"} <= events
    (section,) = re.findall(r"^## Logs and traces\n(.*?)^## ", DOCS.read_text("utf-8"), re.M | re.S)
    told = set(re.findall(r"`([a-z_]+)`", section))
    assert events - told == set()
