"""How well one endpoint serves, and which of several to ask. Pure: the time is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_LATENCY_WEIGHT = 0.2
_ERROR_WEIGHT = 0.1
_ERROR_COST_S = 2.0
"""What a call that fails costs, in seconds of latency."""
_FIRST_REST_S = 0.5
_MAX_REST_S = 30.0
_MIN_SAMPLES = 3
_LAGGING_BLOCKS = 3
_MUCH_BETTER = 0.6
_MIN_GAIN_S = 0.05
_SETTLED_S = 30.0


class Health:
    """What was seen of one endpoint."""

    def __init__(self) -> None:
        self.latency_s: float | None = None
        """Moving average over calls that cost every node about the same; None before the first."""
        self.error_rate = 0.0
        """Moving average over all calls, 0 to 1."""
        self.head: int | None = None
        """The newest block it has named."""
        self.lag_blocks = 0
        """Behind the newest of all when they were last asked together."""
        self.resting_until_s = 0.0
        self._samples = 0
        self._failures = 0

    def answered(self, took_s: float, *, comparable: bool) -> None:
        """A call was answered. `comparable`: one that costs every node about the same."""
        self.error_rate *= 1 - _ERROR_WEIGHT
        self.resting_until_s = 0.0
        self._failures = 0
        if not comparable:
            return
        before = took_s if self.latency_s is None else self.latency_s
        self.latency_s = before + _LATENCY_WEIGHT * (took_s - before)
        self._samples += 1

    def failed(self, now_s: float, *, jitter: float, at_least_s: float = 0.0) -> None:
        """A call failed: it rests, twice as long each time, up to 30 s or what it asked for.

        `jitter` from 0 to 1 takes up to half of the pause away.
        """
        self.error_rate += _ERROR_WEIGHT * (1 - self.error_rate)
        pause_s = min(_MAX_REST_S, _FIRST_REST_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        self.resting_until_s = now_s + max(at_least_s, pause_s * (1 - jitter / 2))

    def rests(self, now_s: float) -> bool:
        return now_s < self.resting_until_s

    @property
    def cost_s(self) -> float | None:
        """What a call to it costs on average, failures included; None before enough were seen."""
        if self.latency_s is None or self._samples < _MIN_SAMPLES:
            return None
        return self.latency_s + self.error_rate * _ERROR_COST_S


@dataclass(frozen=True, slots=True)
class Standing:
    """One endpoint when the next call is due."""

    resting_s: float
    """Seconds until it is to be asked again; 0 where it may be asked now."""
    cost_s: float | None
    lag_blocks: int
    """Behind the newest block of all, when they were last asked together."""


def order(standings: Sequence[Standing], current: int, *, since_s: float) -> list[int]:
    """The endpoints in the order in which to ask them.

    The current one stays first until it rests, lags, or another is clearly cheaper and the choice
    is older than 30 s (`since_s` is its age): endpoints of about the same quality are not changed
    to and fro. The resting ones come last, the one whose rest ends first before the others.
    """
    awake = [index for index, standing in enumerate(standings) if not standing.resting_s]
    asleep = [index for index, standing in enumerate(standings) if standing.resting_s]

    def rank(index: int) -> tuple[bool, bool, float, int]:
        standing = standings[index]
        cost_s = standing.cost_s
        lags = standing.lag_blocks > _LAGGING_BLOCKS
        return lags, cost_s is None, cost_s or 0.0, index

    awake.sort(key=rank)
    asleep.sort(key=lambda index: standings[index].resting_s)
    if current in awake and not _much_better(standings[awake[0]], standings[current], since_s):
        awake.remove(current)
        awake.insert(0, current)
    return awake + asleep


def _much_better(best: Standing, current: Standing, since_s: float) -> bool:
    if current.lag_blocks > _LAGGING_BLOCKS >= best.lag_blocks:
        return True
    if since_s < _SETTLED_S or best.cost_s is None or current.cost_s is None:
        return False
    gain_s = current.cost_s - best.cost_s
    return best.cost_s < current.cost_s * _MUCH_BETTER and gain_s > _MIN_GAIN_S
