"""How much may be asked twice. Pure: no clock.

Retries and hedges help one request and burden the workers for all, most of all when these are in
trouble already. So they come out of a bucket that first tries fill: at most a fifth of traffic in
the long run, whatever happens (as Finagle's `RetryBudget` and the Google SRE book's "Handling
Overload" have it).
"""

from __future__ import annotations

SHARE = 0.2
"""Retries per first try, at most."""
RESERVE = 10.0
"""Retries that are there before the first try, and kept at most."""


class RetryBudget:
    """After n first tries there have been at most `reserve + share * n` retries."""

    def __init__(self, *, share: float = SHARE, reserve: float = RESERVE) -> None:
        self._share = share
        self._reserve = reserve
        self._tokens = reserve

    @property
    def tokens(self) -> float:
        """Retries that may be made now."""
        return self._tokens

    def first_try(self) -> None:
        """Something is asked for the first time."""
        self._tokens = min(self._reserve, self._tokens + self._share)

    def take(self) -> bool:
        """Whether one retry may be made; it counts as made then."""
        # Sums of fifths are not exact.
        if self._tokens < 1.0 - 1e-9:
            return False
        self._tokens -= 1.0
        return True
