"""How many requests a worker bears at a time, found out by asking. Pure: the time is given.

Additive increase, multiplicative decrease (Chiu and Jain 1989), as TCP does it (RFC 5681): while
nothing speaks against it the limit grows by one with each answer (slow start), after the first
congestion by one with each limit-full of answers, and halves with each congestion. What was begun
before the last halving says nothing new about it (the same RFC's one reduction per window), so a
burst of refusals halves it once. Congestion is "busy", no answer in time, and an answer that took
longer than 99 of 100 would.
"""

from __future__ import annotations

_DECREASE = 0.5
_FIRST = 4.0
"""Of a worker that nothing is known of."""
_MOST = 4096.0


class AdaptiveLimit:
    """At least 1, and at most the worker's slots."""

    def __init__(self) -> None:
        self._limit = _FIRST
        self._threshold = _MOST
        self._decreased_at_s = float("-inf")

    def of(self, slots: int) -> int:
        """The limit of a worker with so many slots."""
        return max(0, min(slots, int(self._limit)))

    def answered(self, *, in_flight: int) -> None:
        """An answer came in time, while so many were in flight, itself included.

        A limit that is not used up is not raised: nothing shows that more would go well.
        """
        if 2 * in_flight < self._limit:
            return
        step = 1.0 if self._limit < self._threshold else 1.0 / self._limit
        self._limit = min(_MOST, self._limit + step)

    def congested(self, *, begun_at_s: float, now_s: float) -> None:
        """Something that began then was too much for the worker."""
        if begun_at_s < self._decreased_at_s:
            return
        self._limit = self._threshold = max(1.0, self._limit * _DECREASE)
        self._decreased_at_s = now_s
