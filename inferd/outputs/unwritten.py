"""Outputs that wait in memory for a disk that does not take them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from inferd.outputs.files import OutputUnwritable

T = TypeVar("T")

_MOST_BYTES = 64_000_000
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0


class Unwritten:
    """Those of one dispatcher: together they take 64 MB of memory at most."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self.count = 0
        """Outputs that wait now."""
        self.reason = ""
        """What the disk said last."""

    async def keep_trying(
        self, once: Callable[[], Awaitable[T]], *, size_bytes: int, until_s: float, log: Any
    ) -> T:
        """Repeats `once`, which writes an output of that size, while the disk does not take it.

        Raises OutputUnwritable after `until_s`, in seconds of `time.monotonic`, and at once where
        too many others wait already: memory is no place for what was meant for the disk.
        """
        try:
            return await once()
        except OutputUnwritable as error:
            self.reason = error.reason
            if self._bytes and self._bytes + size_bytes > self._most_bytes:
                raise
        log.error("output_not_written", reason=self.reason, output_bytes=size_bytes)
        pause_s = _FIRST_PAUSE_S
        with self._held(size_bytes):
            while True:
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                try:
                    return await once()
                except OutputUnwritable as error:
                    self.reason = error.reason
                    if time.monotonic() + pause_s > until_s:
                        raise

    @contextmanager
    def _held(self, size_bytes: int) -> Iterator[None]:
        self.count += 1
        self._bytes += size_bytes
        try:
            yield
        finally:
            self.count -= 1
            self._bytes -= size_bytes
