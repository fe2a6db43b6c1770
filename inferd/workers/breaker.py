"""A circuit breaker that counts calls, not seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Circuit(StrEnum):
    CLOSED = "closed"
    """Calls go through."""
    OPEN = "open"
    """No calls for now."""
    HALF_OPEN = "half_open"
    """A few calls may try."""


class _Call(NamedTuple):
    success: bool
    slow: bool


class CircuitBreaker:
    """Opens where half of the last calls failed, or most of them were slow.

    After a pause it lets `probes` calls try: so many successes in a row close it; one that fails or
    is slow opens it again, for twice as long as before.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        window: int = 20,
        minimum: int = 5,
        failure_share: float = 0.5,
        slow_share: float = 0.8,
        probes: int = 2,
        pause_s: float = 10.0,
        longest_pause_s: float = 300.0,
    ) -> None:
        """`clock` gives monotonic seconds. Fewer than `minimum` calls never open it."""
        self._clock = clock
        self._minimum = minimum
        self._failure_share = failure_share
        self._slow_share = slow_share
        self._probes = probes
        self._first_pause_s = pause_s
        self._longest_pause_s = longest_pause_s
        self._pause_s = pause_s
        self._calls: deque[_Call] = deque(maxlen=window)
        self._opened_at_s: float | None = None
        self._probed = 0

    @property
    def circuit(self) -> Circuit:
        if self._opened_at_s is None:
            return Circuit.CLOSED
        return Circuit.HALF_OPEN if self.opens_in_s <= 0 else Circuit.OPEN

    @property
    def opens_in_s(self) -> float:
        """Seconds until calls may try again; 0 where they may."""
        if self._opened_at_s is None:
            return 0.0
        return max(0.0, self._opened_at_s + self._pause_s - self._clock())

    @property
    def failure_share(self) -> float:
        """Of the calls in the window."""
        return self._share(lambda call: not call.success)

    @property
    def slow_share(self) -> float:
        """Of the calls in the window."""
        return self._share(lambda call: call.slow)

    def most_at_once(self, slots: int) -> int:
        """How many calls may be under way."""
        circuit = self.circuit
        if circuit is Circuit.OPEN:
            return 0
        return slots if circuit is Circuit.CLOSED else min(slots, self._probes - self._probed)

    def record(self, *, success: bool, slow: bool = False) -> None:
        """One call's outcome. While open it is a call from before, and tells nothing new."""
        circuit = self.circuit
        if circuit is Circuit.OPEN:
            return
        if circuit is Circuit.HALF_OPEN:
            self._probe(well=success and not slow)
            return
        self._calls.append(_Call(success, slow))
        enough = len(self._calls) >= self._minimum
        if enough and (
            self.failure_share >= self._failure_share or self.slow_share >= self._slow_share
        ):
            self._open()

    def _probe(self, *, well: bool) -> None:
        if not well:
            self._pause_s = min(2 * self._pause_s, self._longest_pause_s)
            self._open()
            return
        self._probed += 1
        if self._probed >= self._probes:
            self._opened_at_s = None
            self._pause_s = self._first_pause_s

    def _open(self) -> None:
        self._opened_at_s = self._clock()
        self._calls.clear()
        self._probed = 0

    def _share(self, of: Callable[[_Call], bool]) -> float:
        return sum(map(of, self._calls)) / len(self._calls) if self._calls else 0.0
