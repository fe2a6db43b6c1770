"""A circuit breaker that counts calls, not seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum


class Circuit(StrEnum):
    CLOSED = "closed"
    """Calls go through."""
    OPEN = "open"
    """No calls for now."""
    HALF_OPEN = "half_open"
    """One call may try."""


class CircuitBreaker:
    """Opens where at least half of the last calls failed; after a pause one success closes it."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        window: int = 20,
        minimum: int = 5,
        failure_share: float = 0.5,
        pause_s: float = 10.0,
    ) -> None:
        """`clock` gives monotonic seconds. Fewer than `minimum` calls never open it."""
        self._clock = clock
        self._minimum = minimum
        self._failure_share = failure_share
        self._pause_s = pause_s
        self._calls: deque[bool] = deque(maxlen=window)
        self._opened_at_s: float | None = None

    @property
    def circuit(self) -> Circuit:
        if self._opened_at_s is None:
            return Circuit.CLOSED
        paused_s = self._clock() - self._opened_at_s
        return Circuit.HALF_OPEN if paused_s >= self._pause_s else Circuit.OPEN

    def record(self, *, success: bool) -> None:
        """One call's outcome. While open it is a call from before, and tells nothing new."""
        circuit = self.circuit
        if circuit is Circuit.OPEN:
            return
        if circuit is Circuit.HALF_OPEN:
            self._opened_at_s = None if success else self._clock()
            self._calls.clear()
            return
        self._calls.append(success)
        failures = self._calls.count(False)
        enough = len(self._calls) >= self._minimum
        if enough and failures >= self._failure_share * len(self._calls):
            self._opened_at_s = self._clock()
            self._calls.clear()
