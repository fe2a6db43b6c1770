"""Which worker a request takes: the one with the least work x load.

Load is this router's own count of what it has given out, never a polled figure. With figures that
are a block old, the globally least loaded choice herds, while the best of two drawn at random stays
good (Mitzenmacher, "The power of two choices"): hence `p2c` and `peak-ewma` draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.policies.protocol import Floats, Ints, LoadsView, OrderView, SeatsView


class EarliestCompletion:
    """The worker that is expected to be done first.

    mean * (1 + used / slots): work that shares a worker slows each other down, from not at all when
    idle to twice the time when almost full.
    """

    __slots__ = ()

    @property
    def sampled(self) -> int:
        return 0

    def work(self, seats: SeatsView) -> Floats:
        return seats.mean_ms

    def load(self, workers: LoadsView, used: Ints) -> Floats:
        return slowdown(workers.slots, used)


def slowdown(slots: Ints, used: Ints) -> Floats:
    """How many times as long a request takes on a worker of whose slots `used` are taken."""
    times: Floats = (slots + used) / slots
    return times


class _OldestFirst:
    __slots__ = ()

    @property
    def version(self) -> str:
        return "1"

    @property
    def sampled(self) -> int:
        return 0

    def scores(self, view: OrderView) -> Floats:
        return -view.submitted_at_s

    def work(self, seats: SeatsView) -> Floats:
        return np.ones(len(seats.slots))


@dataclass(frozen=True, slots=True)
class RoundRobin(_OldestFirst):
    """One request each, in turn; at each block the turn begins one worker further on."""

    @property
    def name(self) -> str:
        return "round-robin"

    def load(self, workers: LoadsView, used: Ints) -> Floats:
        given = (used - workers.in_flight).astype(np.float64)
        passes: Floats = given * workers.workers + workers.turn
        return passes


@dataclass(frozen=True, slots=True)
class WeightedRoundRobin(_OldestFirst):
    """In turn, each worker in proportion to what it can serve (stride scheduling).

    The key is the pass at which a worker's next turn is due, (given + phase) / (slots / mean).
    """

    @property
    def name(self) -> str:
        return "weighted-round-robin"

    def work(self, seats: SeatsView) -> Floats:
        return seats.mean_ms

    def load(self, workers: LoadsView, used: Ints) -> Floats:
        phase = (workers.turn + 1) / workers.workers
        passes: Floats = (used - workers.in_flight + phase) / workers.slots
        return passes


@dataclass(frozen=True, slots=True)
class LeastRequests(_OldestFirst):
    """The worker whose slots would be the least full with one request more."""

    @property
    def name(self) -> str:
        return "least-requests"

    def load(self, workers: LoadsView, used: Ints) -> Floats:
        return fullness(workers.slots, used)


@dataclass(frozen=True, slots=True)
class TwoChoices(LeastRequests):
    """The less loaded of two workers drawn at random."""

    @property
    def name(self) -> str:
        return "p2c"

    @property
    def sampled(self) -> int:
        return 2


@dataclass(frozen=True, slots=True)
class PeakEwma(TwoChoices):
    """Of two drawn at random, the one with less latency x (requests in flight + 1) per slot.

    The latency is a moving average that takes a peak at once and forgets it slowly.
    """

    @property
    def name(self) -> str:
        return "peak-ewma"

    def work(self, seats: SeatsView) -> Floats:
        return seats.ewma_ms


def fullness(slots: Ints, used: Ints) -> Floats:
    """Requests a slot with one request more."""
    full: Floats = (used + 1) / slots
    return full
