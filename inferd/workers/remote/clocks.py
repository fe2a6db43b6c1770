"""How far a worker's clock is from ours. Pure.

One exchange gives an offset, right to half its round trip: what the worker's clock said, less the
middle of the exchange by ours (RFC 5905, section 8, with one stamp at the worker). Of the last
exchanges the one with the shortest round trip is believed (the clock filter of its section 10).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_KEPT = 8


@dataclass(frozen=True, slots=True)
class Offset:
    """The worker's clock less ours."""

    skew_ms: float
    error_ms: float
    """At most so far from the truth."""


class SkewFilter:
    def __init__(self) -> None:
        self._samples: deque[Offset] = deque(maxlen=_KEPT)

    @property
    def offset(self) -> Offset | None:
        """None before the first exchange."""
        return min(self._samples, key=lambda sample: sample.error_ms, default=None)

    def add(self, *, sent_ms: float, received_ms: float, theirs_ms: float) -> None:
        """One exchange, by our clock, and what the worker's said in between."""
        half_ms = max(0.0, received_ms - sent_ms) / 2.0
        self._samples.append(Offset(theirs_ms - (sent_ms + half_ms), half_ms))
