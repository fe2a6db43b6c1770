"""The best times of a model's seats for each kind of request, kept up to date block by block.

Seats stand with the largest memory first and are cut into *blocks* of a few. For each block and
kind the least times are kept, so that a round computes again only the blocks in which a seat has
changed, and those of all seats for kinds that are new. What holds for a request is the least over
the blocks from the first to the last whose seats have its memory. This is exact, and costs the same
whatever the seats' figures are: no seat is assumed to be like another one.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scheduler.kinds import Floats, Ints, mean_ms, p90_ms, sigma_class_of, tokens_of
from scheduler.workers import ModelSeats, WorkerTable

_BLOCK = 32
"""Seats of a block. Fewer make more blocks to go through, more make more seats to compute again
for one that has changed."""
_AT_ONCE = 1 << 15
"""Pairs of seat and kind that are computed in one go, so that they stay in the cache."""
_UNAVAILABLE_MS = 1e12
"""Added to the mean of an unavailable worker, so that it comes after all available ones."""

_P90 = ("p90_ms", "owned_p90_ms", "available_p90_ms", "available_owned_p90_ms")
_MEAN = ("service_ms", "owned_service_ms")


class Blocks:
    """Of one model, for as long as its seats are the same ones."""

    def __init__(self, seats: ModelSeats, workers: WorkerTable, classes: Ints) -> None:
        """`classes`, rising, are what requests ask for: each the number of the model's distinct
        memories that are too small."""
        self._seats, self._workers = seats, workers
        self.classes = classes
        falling = seats.memory_mb[seats.by_memory]
        self._ends = np.searchsorted(-falling, -seats.memories_mb[classes[::-1]], side="right")
        """Of each class, the largest memory first: how many seats have enough."""
        self._order: Ints = seats.by_memory[: self._ends[-1]]
        sizes = np.diff(self._ends, prepend=0)
        number = -(-sizes // _BLOCK)
        first, last = (np.repeat(one, number) for one in (self._ends - sizes, self._ends - 1))
        within = np.arange(len(first)) - np.repeat(np.cumsum(number) - number, number)
        row = (first + within * _BLOCK)[:, None] + np.arange(_BLOCK)
        self._at: Ints = self._order[np.minimum(row, last[:, None])]
        """By block, positions of its seats; the last one again where there are fewer."""
        cuts = [0, *np.cumsum(number).tolist()]
        self._parts = [slice(*cut) for cut in pairwise(cuts)]
        """The blocks that each class adds to those before, in the order of `_ends`."""
        self._block_of = np.full(len(seats.rank), -1, np.int64)
        self._block_of[self._at] = np.arange(len(self._at))[:, None]
        self._version = seats.version
        self.kinds: Ints = np.zeros(0, np.int64)
        """Rising."""
        self._least = {name: np.zeros((len(self._at), 0)) for name in (*_P90, *_MEAN)}

    def settle(self, kinds: Ints) -> None:
        """Brings the times of these kinds up to date. Forgets others where they are too many."""
        seats = self._seats
        if not self._has(kinds):
            wanted = np.unique(kinds)
            if len(self.kinds) <= 2 * len(wanted):
                wanted = np.union1d(self.kinds, wanted)
            self._keep(wanted)
        if self._version < seats.version:
            blocks = self._block_of[seats.changed > self._version]
            self._version = seats.version
            self._compute(np.unique(blocks[blocks >= 0]), np.arange(len(self.kinds)))

    def place(self, kinds: Ints) -> Ints:
        """Where each of these kinds stands in what `facts` gives; they are settled."""
        places: Ints = np.searchsorted(self.kinds, kinds)
        return places

    def _has(self, kinds: Ints) -> bool:
        if not len(self.kinds):
            return False
        place = np.minimum(self.place(kinds), len(self.kinds) - 1)
        return bool((self.kinds[place] == kinds).all())

    def _keep(self, kinds: Ints) -> None:
        """Makes these, rising, the kinds; computes those that were not there."""
        is_known = np.isin(kinds, self.kinds)
        before = self.place(kinds[is_known])
        for name, least in self._least.items():
            self._least[name] = np.empty((len(self._at), len(kinds)))
            self._least[name][:, is_known] = least[:, before]
        self.kinds = kinds
        if not is_known.all():
            self._compute(np.arange(len(self._at)), np.flatnonzero(~is_known))

    def facts(self) -> dict[str, NDArray[np.generic]]:
        """By name, for each class and each kind: (classes, kinds); counts by class only."""
        seats, workers = self._seats, self._workers
        rank = seats.rank[self._order]
        available = workers.available[rank]
        numbers = {
            "available": np.cumsum(available, dtype=np.int64),
            "available_slots": np.cumsum(workers.slots[rank] * available),
        }
        facts: dict[str, NDArray[np.generic]] = {"registered": self._ends[::-1]}
        facts |= {name: totals[self._ends - 1][::-1] for name, totals in numbers.items()}
        for name in _P90:
            least = [np.minimum.reduce(self._least[name][part]) for part in self._parts]
            facts[name] = np.minimum.accumulate(least, axis=0)[::-1]
        blocks = [self._quickest(name, facts) for name in _MEAN]
        # Class by class: all at once could be many.
        surely = [self._success(np.stack(one)) for one in zip(*blocks, strict=True)]
        facts["success_lower"], facts["owned_success_lower"] = np.stack(surely[::-1], axis=1)
        return facts

    def _compute(self, blocks: Ints, columns: Ints) -> None:
        kinds, step = self.kinds[columns], max(1, _AT_ONCE // (_BLOCK * len(columns)))
        every = len(columns) == len(self.kinds)
        for first in range(0, len(blocks), step):
            part = blocks[first : first + step]
            for name, least in self._times(self._at[part].reshape(-1), kinds).items():
                if every:
                    self._least[name][part] = least
                else:
                    self._least[name][part[:, None], columns] = least

    def _times(self, at: Ints, kinds: Ints) -> dict[str, Floats]:
        """The least times of each block of these seats."""
        seats, rank = self._seats, self._seats.rank[at]
        tokens, size = np.unique(tokens_of(kinds), return_inverse=True)
        mean = mean_ms(seats.base_ms[at][:, None], seats.per_token_ms[at][:, None], tokens)
        classes, column = np.unique(sigma_class_of(kinds), return_inverse=True)
        factors = np.stack([seats.factors(int(one))[at] for one in classes], axis=1)
        # `take` keeps a seat's times together, as an index in brackets would not.
        p90 = p90_ms(np.take(mean, size, axis=1), np.take(factors, column, axis=1))
        others, away = ~self._workers.owned[rank], ~self._workers.available[rank]
        times = dict(zip(_P90[:2], _least_of_all_and_owned(p90, others), strict=True))
        if away.any():
            p90[away] = np.inf
            mean[away] += _UNAVAILABLE_MS
            some = _least_of_all_and_owned(p90, others)
        else:
            some = times[_P90[0]], times[_P90[1]]
        times |= zip(_P90[2:], some, strict=True)
        quickest = _least_of_all_and_owned(mean, others)
        return times | {
            name: np.take(least, size, axis=1) for name, least in zip(_MEAN, quickest, strict=True)
        }

    def _quickest(self, name: str, facts: dict[str, NDArray[np.generic]]) -> Ints:
        """The block with the least mean for each class and kind, of equal ones the first."""
        every = self._least[name]
        found = np.stack([every[part].argmin(axis=0) + part.start for part in self._parts])
        least = np.take_along_axis(every, found, axis=0)
        for before, one in pairwise(range(len(found))):
            earlier = least[before] <= least[one]
            np.copyto(least[one], least[before], where=earlier)
            np.copyto(found[one], found[before], where=earlier)
        least[np.isfinite(least) & (least >= _UNAVAILABLE_MS)] -= _UNAVAILABLE_MS
        facts[name] = least[::-1]
        return found

    def _success(self, blocks: Ints) -> Floats:
        """Of the quickest seats of blocks, one a kind, among all and among owned ones."""
        seats, workers = self._seats, self._workers
        at = self._at[blocks]
        rank = seats.rank[at]
        tokens = tokens_of(self.kinds)[:, None]
        mean = mean_ms(seats.base_ms[at], seats.per_token_ms[at], tokens)
        mean += np.where(workers.available[rank], 0.0, _UNAVAILABLE_MS)
        mean[1][~workers.owned[rank[1]]] = np.inf
        quickest = mean.argmin(axis=-1)
        surely: Floats = seats.success_lower[
            np.take_along_axis(at, quickest[..., None], axis=-1)[..., 0]
        ]
        return surely


def _least_of_all_and_owned(times: Floats, others: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """By block and kind; `others` are the seats of workers that are not the operator's own."""
    blocks = times.reshape(-1, _BLOCK, times.shape[1])
    least: Floats = np.minimum.reduce(blocks, axis=1)
    if not others.any():
        return least, least
    if others.all():
        return least, np.full(least.shape, np.inf)
    own = np.where(others.reshape(-1, _BLOCK, 1), np.inf, blocks)
    return least, np.minimum.reduce(own, axis=1)
