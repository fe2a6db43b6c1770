"""Pauses that grow with each failure."""

from __future__ import annotations

import random


class Backoff:
    """Exponential with full jitter: callers that failed together do not come back together."""

    def __init__(self, first_s: float, max_s: float, *, dice: random.Random | None = None) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._dice = dice or random.Random()  # noqa: S311 - spreads load, keeps no secret
        self._failures = 0

    def next_s(self) -> float:
        """The pause after one more failure: up to `first_s`, then up to twice as long each time."""
        ceiling_s = min(self._max_s, self._first_s * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return self._dice.uniform(0, ceiling_s)

    def reset(self) -> None:
        """It worked: the next failure is the first one again."""
        self._failures = 0
