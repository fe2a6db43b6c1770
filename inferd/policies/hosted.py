"""A policy of another package, asked from the daemon: in a process of its own, with a deadline.

A thread cannot be stopped: a policy that loops for ever would take a core from the daemon until it
ends. A process can. It is killed when an answer is late, and started again after a pause that
grows from 1 s to 60 s as long as it keeps failing; until it is up again, its rounds go to the
fallback. The process knows no key and no password (it gets no INFERD_* variable) and is asked for
nothing but numbers, which are checked. That guards against mistakes, not against malice: it is
code that the operator installed and it runs as the same user.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from indexer.database import plain_text
from inferd.policies.wire import BadMessage, Message, Wire
from scheduler.policies import Floats, Ints, LoadsView, OrderView, SeatsView

_FIRST_PAUSE_S = 1.0
_MAX_PAUSE_S = 60.0
_START_WITHIN_S = 20.0
_HELLO_WITHIN_S = 1.0  # from its first byte to its last


class PolicyFailed(Exception):
    """The policy gave no usable answer in time; the text says which one, and why."""


class HostedPolicy:
    """Keeps to the protocol of policies. Each method may raise PolicyFailed.

    For one thread at a time, but that any may close it.
    """

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._budget_s = self._left_s = 0.0
        self._clock = clock
        self._changing = threading.Lock()
        """Held while a process is started or ended."""
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: Wire | None = None
        self._hello: Mapping[str, Any] | None = None
        self._started_s = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._not_before_s = 0.0
        self.start()

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        """ "?" until the process is up."""
        return "?" if self._hello is None else plain_text(str(self._hello["version"]))

    @property
    def sampled(self) -> int:
        return 0 if self._hello is None else int(self._hello["sampled"])

    def start(self) -> None:
        """Starts the process, unless it runs or it failed a moment ago. Does not wait for it."""
        with self._changing:
            if not self._closed:
                self._start()

    def is_up(self, wait_s: float = 0.0) -> bool:
        """Whether it can be asked; waits for it so long. Raises PolicyFailed where it cannot be
        loaded, or took too long to."""
        if self._hello is not None:
            return True
        self.start()
        wire = self._wire
        if wire is None:
            return False
        if not wire.has_arrived(wait_s):
            if self._clock() - self._started_s > _START_WITHIN_S:
                raise self._broken(f"did not start within {_START_WITHIN_S:.0f} s")
            return False
        try:
            said = wire.receive(time.monotonic() + _HELLO_WITHIN_S)
        except (BadMessage, OSError) as error:
            raise self._broken(f"ended as it started: {error}") from error
        if "error" in said.values:
            raise self._broken(f"cannot be loaded: {said.values['error']}")
        self._hello = said.values
        return True

    def begin_round(self, budget_s: float) -> None:
        """From here on all its answers together may take so long. Raises PolicyFailed while it is
        not up."""
        self._budget_s = self._left_s = budget_s
        if not self.is_up():
            raise self._failed("is being started")

    def scores(self, view: OrderView) -> Floats:
        return self._ask("scores", view, {}, len(view))

    def work(self, seats: SeatsView) -> Floats:
        return self._ask("work", seats, {}, len(seats.slots))

    def load(self, workers: LoadsView, used: Ints) -> Floats:
        return self._ask("load", workers, {"used": used}, len(used))

    def close(self) -> None:
        """Ends the process, for good."""
        with self._changing:
            self._closed = True
            self._end()

    def _start(self) -> None:
        if self._process is not None or self._clock() < self._not_before_s:
            return
        ours, theirs = socket.socketpair()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("INFERD_")}
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "inferd.policies.child",
                    str(theirs.fileno()),
                    self._name,
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        self._wire = Wire(ours)
        self._started_s = self._clock()

    def _end(self) -> None:
        # What is asked in another thread hears of it by the end of the process.
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._wire is not None:
            self._wire.close()
        self._process = self._wire = self._hello = None

    def _ask(
        self,
        ask: str,
        view: OrderView | SeatsView | LoadsView,
        more: Mapping[str, Ints],
        expected: int,
    ) -> Floats:
        wire = self._wire
        if self._hello is None or wire is None:
            raise self._failed("is not up")
        values: dict[str, Any] = {"ask": ask}
        columns = dict(more)
        for part in fields(view):
            value = getattr(view, part.name)
            (columns if isinstance(value, np.ndarray) else values)[part.name] = value
        began_s = time.monotonic()
        deadline_s = began_s + self._left_s
        try:
            wire.send(Message(values, columns), deadline_s)
            answer = wire.receive(deadline_s)
        except TimeoutError:
            raise self._broken(f"took longer than its {self._budget_s * 1000:.0f} ms") from None
        except (BadMessage, OSError) as error:
            raise self._broken(f"ended while it was asked for {ask}: {error}") from error
        finally:
            self._left_s -= time.monotonic() - began_s
        if "error" in answer.values:
            raise self._failed(f"failed at {ask} with {answer.values['error']}")
        numbers = answer.columns.get("numbers")
        if numbers is None or numbers.dtype.kind != "f":
            raise self._broken(f"answered {ask} without numbers")
        if len(numbers) != expected:
            raise self._failed(f"gave {len(numbers)} numbers as {ask} of {expected}")
        self._pause_s = _FIRST_PAUSE_S
        return numbers

    def _failed(self, what: str) -> PolicyFailed:
        return PolicyFailed(f"{self._name} {what}")

    def _broken(self, what: str) -> PolicyFailed:
        with self._changing:
            self._end()
        self._not_before_s = self._clock() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)
        return self._failed(what)
