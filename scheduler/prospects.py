"""Which groups of requests may still find a worker in this round.

A *group* is a cell of requests, apart from those of the cell that only the operator's own workers
make worth their gas. Seats fill up but never free up within a round, so once a group has found
nobody for a budget, no smaller budget needs to be tried again. Near saturation hardly any seat is
open, and those that are may suit hardly any request: so groups that none of them suits are left out
before any of their requests is looked at.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.cells import Cells
from scheduler.kinds import Floats, Ints, model_of, sigma_class_of, tokens_of
from scheduler.openings import least_p90
from scheduler.pending import PendingTable
from scheduler.workers import WorkerTable

_NOT_YET = -1.0
_FEW = 64
"""As many open seats of a model are gone through again after each search in vain."""


class Prospects:
    """Of one round. Models are named by the workers' numbers."""

    def __init__(
        self, table: PendingTable, cells: Cells, workers: WorkerTable, group: Ints, most: Ints
    ) -> None:
        """`group` is of each request that takes part; `most` the slots that each worker may use."""
        self._cells, self._workers, self._most = cells, workers, most
        self.used: Ints = workers.in_flight.copy()
        """Slots taken, by rank; the round counts on."""
        self.hopeless = np.full(2 * len(cells), _NOT_YET)
        """By group, the largest budget that finds nobody."""
        numbers = np.array(
            [
                -1 if (one := workers.seats.get(model)) is None else one.number
                for model in table.models
            ],
            np.int64,
        )
        self.kind: Ints = cells.kind(np.arange(len(cells)))
        """By cell, as the three that follow."""
        self.model: Ints = numbers[model_of(self.kind)]
        self.tokens: Floats = tokens_of(self.kind)
        self.sigma_class: Ints = sigma_class_of(self.kind)
        asked = np.flatnonzero(np.bincount(group // 2, minlength=len(cells)))
        self._asked = asked[np.argsort(self.model[asked], kind="stable")]
        bounds = np.searchsorted(self.model[self._asked], np.arange(len(workers.seats) + 1))
        self._bounds: list[int] = bounds.tolist()
        least_mb = np.full(len(workers.seats), np.iinfo(np.int64).max)
        np.minimum.at(least_mb, self.model[asked], cells.needed_mb[asked])
        self.least_mb: list[int] = least_mb.tolist()
        """By model, the least memory that any request asks for; seats with less are of no use."""
        self._memory_mb: list[int] = workers.memory_mb.tolist()
        self._filled: set[int] = set()
        """Models of which a seat has filled up since their groups were last gone through."""
        every = workers.all_seats
        is_useful = workers.memory_mb[every.rank] >= least_mb[every.model]
        is_open = is_useful & (workers.available & (self.used < most))[every.rank]
        free = np.bincount(every.model[is_open], minlength=len(least_mb))
        of_use = np.bincount(every.model[is_useful], minlength=len(least_mb))
        self._free: list[int] = free.tolist()
        """By model, open seats of use that are left."""
        self._raise(self._asked[free[self.model[self._asked]] == 0], np.inf, np.inf)
        # Where most seats are open, all available ones are as good a bound.
        is_mostly = (2 * free >= of_use) & (free > 0)
        plenty = self._asked[is_mostly[self.model[self._asked]]]
        self._raise(plenty, cells.available_p90_ms[plenty], cells.available_owned_p90_ms[plenty])
        is_scarce = ~is_mostly & (free > 0)
        scarce = self._asked[is_scarce[self.model[self._asked]]]
        self._bound(scarce, np.flatnonzero(is_open & is_scarce[every.model]))

    def fill(self, rank: int) -> None:
        """No slot of the worker is left."""
        memory_mb = self._memory_mb[rank]
        for model in self._workers.models_of[rank]:
            if memory_mb >= self.least_mb[model]:
                self._free[model] -= 1
                self._filled.add(model)
                if not self._free[model]:
                    self._raise(self.asked(model), np.inf, np.inf)

    def in_vain(self, group: int, budget_ms: int) -> None:
        """Nobody was found: what has filled up since may leave others without hope too."""
        self.hopeless[group] = budget_ms
        model = int(self.model[group // 2])
        if model in self._filled and self._free[model] <= _FEW:
            self._filled.remove(model)
            workers = self._workers
            seats = workers.seats_of(model)
            rank = workers.all_seats.rank[seats]
            is_open = workers.available[rank] & (self.used[rank] < self._most[rank])
            is_open &= workers.memory_mb[rank] >= self.least_mb[model]
            self._bound(self.asked(model), seats[is_open])

    def spared(self, chosen: NDArray[np.bool_], rows_group: Ints) -> tuple[Floats, Ints]:
        """For each of the rows, by its group: the least p90 on a seat of the workers that are
        chosen by rank and have a slot left, and how many such seats its model has.

        None of these workers is the operator's own.
        """
        workers = self._workers
        every = workers.all_seats
        seats = np.flatnonzero((chosen & (self.used < workers.slots))[every.rank])
        count = np.bincount(every.model[seats], minlength=len(workers.seats))
        least_ms = np.full(2 * len(self._cells), np.inf)
        cells = self._asked[count[self.model[self._asked]] > 0]
        least_ms[2 * cells], _ = least_p90(self._cells, cells, self.model, workers, seats)
        return least_ms[rows_group], count[self.model[rows_group // 2]]

    def asked(self, model: int) -> Ints:
        """The cells of the model that requests are in."""
        return self._asked[self._bounds[model] : self._bounds[model + 1]]

    def _bound(self, asked: Ints, open_: Ints) -> None:
        if len(asked):
            self._raise(asked, *least_p90(self._cells, asked, self.model, self._workers, open_))

    def _raise(self, cells: Ints, any_ms: Floats | float, own_ms: Floats | float) -> None:
        """Raises the bounds of groups to what seats can do."""
        bounds = self.hopeless.reshape(-1, 2)
        for own, p90_ms_ in enumerate((any_ms, own_ms)):
            # A budget as long as the p90 is enough; the number before infinity is as good as it.
            bound = np.where(np.isinf(p90_ms_), np.inf, np.nextafter(p90_ms_, -np.inf))
            bounds[cells, own] = np.maximum(bounds[cells, own], bound)
