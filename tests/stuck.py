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
_GRACE_S = 120.0
"""What a test that has a time of its own (`pytest.mark.timeout`) gets beyond it, for the same."""


class StuckTests:
    """A plugin. To be made while nothing is captured: it keeps the standard error of that time."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._stderr = os.dup(2)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        with self._watched(item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        with self._watched(item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        with self._watched(item):
            return (yield)

    @contextmanager
    def _watched(self, item: pytest.Item) -> Iterator[None]:
        own = item.get_closest_marker("timeout")
        after_s = max(self._after_s, own.args[0] + _GRACE_S) if own else self._after_s
        faulthandler.dump_traceback_later(after_s, exit=True, file=self._stderr)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
