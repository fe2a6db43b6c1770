"""Commands in processes that begin with everything loaded: each start of an interpreter that loads
the daemon takes some two seconds of a processor, and some tests need nine of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from inferd.cli import main

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["inferd.cli.app", "inferd.node.daemon", "inferd.workers.service.agent", "tests.forks"]
)


def _nothing() -> None:
    """Nothing is changed before the command runs."""


class Forked:
    """`inferd` with these arguments; like a `subprocess.Popen`, as far as tests need it."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        first: Callable[[], None] = _nothing,
    ) -> None:
        """`first`, a function of a module, is called in the process before its command."""
        self._process = _CONTEXT.Process(
            target=_run, args=(list(arguments), str(log), dict(environment), first)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("inferd", timeout or 0.0)
        return code


def _run(
    arguments: list[str], log: str, environment: dict[str, str], first: Callable[[], None]
) -> None:
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for ours, standard in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(ours, standard)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["inferd", *arguments]
    first()
    main(arguments)
