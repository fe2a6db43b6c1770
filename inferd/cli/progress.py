"""How far a long command is, on stderr: a bar on a terminal, and lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from inferd.cli.output import note

_LINE_EVERY_S = 5.0


@contextmanager
def shown_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how much is done; both numbers count blocks."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Lines(what, total).tell
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("blocks, left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


def remaining_s(done: int, total: int, elapsed_s: float) -> float | None:
    """What is left at the speed so far; None while there is none. Pure."""
    return (total - done) * elapsed_s / done if done > 0 else None


class _Lines:
    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._began_s = self._told_s = time.monotonic()

    def tell(self, done: int) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s < _LINE_EVERY_S and done < self._total:
            return
        self._told_s = now_s
        left_s = remaining_s(done, self._total, now_s - self._began_s)
        left = "" if left_s is None or done >= self._total else f", about {left_s:.0f} s left"
        note(f"{self._what}: {done} of {self._total} blocks{left}")
