"""Ends a test process in which nothing gets on any more, where pytest-timeout cannot.

Its alarm is off as soon as a test has failed, so that taking down may then wait for ever, and it
does not come through while the main thread waits in C code. The stacks of all threads are told, and
xdist takes the process for crashed and names its test.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

AFTER_S = 420.0
"""Of one phase of a test; longer than pytest-timeout's, which is the gentler end."""


class StuckTests:
    """A plugin. To be made while nothing is captured: it keeps the standard error of that time."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._stderr = os.dup(2)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None]:
        with self._watched():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        with self._watched():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        with self._watched():
            return (yield)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        faulthandler.dump_traceback_later(self._after_s, exit=True, file=self._stderr)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
