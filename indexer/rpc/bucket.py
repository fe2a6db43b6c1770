"""How many calls a second one endpoint bears. Pure: the time is given."""

from __future__ import annotations

from collections import deque

_MIN_PER_S = 3.0
_MAX_PER_S = 1_000.0
_FIRST_CUT = 0.5
_FIRST_MIN_PER_S = 20.0
_CUT = 0.9
_CUT_EVERY_S = 1.0
_RAISE = 1.05
_RAISE_EVERY_S = 1.0
_MEASURED_S = 1.0


class TokenBucket:
    """Without a limit until the endpoint asks for fewer calls.

    The first time, it is half of what was sent in the last second, at least 20; then a tenth less
    each time, at most once a second, since calls that are refused together are refused once.
    It is raised by a twentieth for every second that is calm, and falls away above 1,000 a second.
    A bucket may go into debt, so that a batch larger than the limit is possible at all.
    """

    def __init__(self) -> None:
        self._per_s: float | None = None
        self._tokens = 0.0
        self._at_s = 0.0
        self._changed_at_s = 0.0
        self._cut_at_s = 0.0
        self._sent: deque[tuple[float, int]] = deque()

    @property
    def per_s(self) -> float | None:
        """Calls per second; None without a limit."""
        return self._per_s

    def wait_s(self, now_s: float) -> float:
        """How long until the next call may be sent; 0 where it may be sent now."""
        self._refill(now_s)
        if self._per_s is None or self._tokens > 0:
            return 0.0
        return -self._tokens / self._per_s + 0.001

    def take(self, now_s: float, calls: int = 1) -> None:
        """So many calls are sent now."""
        self._refill(now_s)
        if self._per_s is not None:
            self._tokens -= calls
        self._sent.append((now_s, calls))
        while self._sent[0][0] < now_s - _MEASURED_S:
            self._sent.popleft()

    def slow_down(self, now_s: float) -> None:
        """The endpoint asked for fewer calls."""
        self._refill(now_s)
        if self._per_s is None:
            sent = sum(calls for at_s, calls in self._sent if at_s >= now_s - _MEASURED_S)
            self._per_s = max(_FIRST_MIN_PER_S, sent / _MEASURED_S * _FIRST_CUT)
            self._tokens = 0.0
        elif now_s - self._cut_at_s < _CUT_EVERY_S:
            return
        else:
            self._per_s = max(_MIN_PER_S, self._per_s * _CUT)
            self._tokens = min(self._tokens, 0.0)
        self._cut_at_s = self._changed_at_s = now_s

    def _refill(self, now_s: float) -> None:
        if self._per_s is None:
            self._at_s = now_s
            return
        steps = int((now_s - self._changed_at_s) / _RAISE_EVERY_S)
        if steps > 0:
            self._changed_at_s += steps * _RAISE_EVERY_S
            self._per_s *= _RAISE ** min(steps, 1_000)
            if self._per_s > _MAX_PER_S:
                self._per_s = None
                return
        passed_s = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._tokens = min(self._per_s, self._tokens + passed_s * self._per_s)
