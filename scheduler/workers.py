"""The workers as columns, and each model's workers as its seats, kept between rounds.

A *seat* is a worker in its role as a server of one model. A worker's *rank* is its position in the
order of ids: the tie-break between equal workers. Seats stand model by model, each model's in the
order of ranks, so that a model's columns are slices of those of all seats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from scheduler.kinds import PER_SIGMA, Floats, Ints, p90_factors
from scheduler.model import ModelId, ServiceEstimate, WorkerId, WorkerView


class Seats:
    """All seats of all models, one element each."""

    def __init__(self, rank: Ints, model: Ints, estimates: Sequence[ServiceEstimate]) -> None:
        self.rank = rank
        self.model = model
        """Index of the model among the workers' own, see `ModelSeats.number`."""
        self.base_ms: Floats = np.empty(len(rank))
        """With the time that loading the model takes, where it is not loaded."""
        self.per_token_ms = np.array([one.per_token_ms for one in estimates], np.float64)
        self.sigma = np.array([one.sigma for one in estimates], np.float64)
        self.p90_factor = np.array([one.p90_factor for one in estimates], np.float64)
        self.success_lower = np.array([one.success_lower for one in estimates], np.float64)
        self.ewma_ms = np.array([one.ewma_ms for one in estimates], np.float64)
        self.changed: Ints = np.zeros(len(rank), np.int64)
        """The `version` of its model that first had it as it is now."""

    def factors(self, at: Ints, sigma_class: int) -> Floats:
        """p90 / mean of those seats, for a class of the tokens' spread."""
        factors: Floats = p90_factors(self.sigma[at], sigma_class / PER_SIGMA)
        factors *= self.p90_factor[at]
        return factors


class ModelSeats:
    """The seats of one model, one element each, in the order of ranks."""

    def __init__(self, number: int, seats: Seats, first: int, end: int, memory_mb: Ints) -> None:
        part = slice(first, end)
        self.number = number
        """Which of the workers' models it is."""
        self._all, self._first = seats, first
        self.rank = seats.rank[part]
        self.memory_mb = memory_mb
        self.base_ms = seats.base_ms[part]
        self.per_token_ms = seats.per_token_ms[part]
        self.success_lower = seats.success_lower[part]
        self.ewma_ms = seats.ewma_ms[part]
        self.changed = seats.changed[part]
        self.position = {rank: at for at, rank in enumerate(self.rank.tolist())}
        self.measured = bool(self.ewma_ms.any())
        """Whether there is a moving average for any of them."""
        self.version = 0
        """Changes with everything that facts about the model depend on."""
        self.memories_mb: Ints = np.unique(memory_mb)
        """The distinct memories, rising."""
        self.by_memory: Ints = np.lexsort((self.rank, -memory_mb))
        """Positions of the seats, the largest memory first."""
        self._factors: dict[int, tuple[int, Floats]] = {}

    def factors(self, sigma_class: int) -> Floats:
        """p90 / mean of each seat, for a class of the tokens' spread. Do not change it."""
        seen, factors = self._factors.get(sigma_class, (-1, self.base_ms))
        if seen < 0:
            stale = np.arange(len(self.rank))
            factors = np.empty(len(stale))
        elif seen < self.version:
            stale = np.flatnonzero(self.changed > seen)
        else:
            return factors
        factors[stale] = self._all.factors(self._first + stale, sigma_class)
        self._factors[sigma_class] = self.version, factors
        return factors

    def revise(self, rank: int, view: WorkerView, model: ModelId) -> None:
        """Takes over the worker's present estimate."""
        at, estimate = self.position[rank], view.service[model]
        self.base_ms[at] = _base_ms(estimate, view, model)
        self.per_token_ms[at] = estimate.per_token_ms
        self._all.sigma[self._first + at] = estimate.sigma
        self._all.p90_factor[self._first + at] = estimate.p90_factor
        self.success_lower[at] = estimate.success_lower
        self.ewma_ms[at] = estimate.ewma_ms
        self.measured = self.measured or estimate.ewma_ms != 0.0
        self.touch(rank)

    def touch(self, rank: int) -> None:
        """The worker is another one than before in what facts about the model depend on."""
        self.version += 1
        self.changed[self.position[rank]] = self.version


class WorkerTable:
    """All registered workers. Columns are by rank."""

    def __init__(self) -> None:
        self._views: dict[WorkerId, WorkerView] = {}
        self._stale = True
        self._rank: dict[WorkerId, int] = {}
        self.structure = 0
        """Changes whenever ranks or seats are others than before."""
        self.settle()

    def __len__(self) -> int:
        return len(self._views)

    def views(self) -> tuple[WorkerView, ...]:
        """All that is known, in the order of ids."""
        return tuple(self._views[one] for one in sorted(self._views))

    def put(self, views: Iterable[WorkerView]) -> None:
        """Adds workers or replaces what is known of them."""
        for view in views:
            old = self._views.get(view.id)
            self._views[view.id] = view
            if old is view or self._stale:
                continue
            if (
                old is None
                or old.memory_mb != view.memory_mb
                or old.service.keys() != (view.service.keys())
            ):
                self._stale = True
            else:
                self._revise(old, view)

    def remove(self, ids: Iterable[WorkerId]) -> None:
        """Removes workers; those that are not there are passed over."""
        for one in ids:
            if self._views.pop(one, None) is not None:
                self._stale = True

    def settle(self) -> None:
        """Brings the columns up to date; call it before they are read."""
        if not self._stale:
            return
        self.ids: list[WorkerId] = sorted(self._views)
        views = [self._views[one] for one in self.ids]
        self._rank = {one: rank for rank, one in enumerate(self.ids)}
        self.slots = np.array([view.slots for view in views], np.int64)
        self.in_flight = np.array([view.in_flight for view in views], np.int64)
        self.memory_mb = np.array([view.memory_mb for view in views], np.int64)
        self.available = np.array([view.available for view in views], np.bool_)
        self.owned = np.array([view.owned for view in views], np.bool_)
        self.proved = np.array([_proved(view) for view in views], np.float64)
        """The best lower bound of success with any of its models."""
        self._seat(views)
        self.structure += 1
        self._stale = False

    def ranks(self, ids: Iterable[WorkerId]) -> frozenset[int]:
        """The ranks of those that are here."""
        return frozenset(self._rank[one] for one in ids if one in self._rank)

    def view(self, rank: int) -> WorkerView:
        """What is known of the worker."""
        return self._views[self.ids[rank]]

    def seats_of(self, model: int) -> Ints:
        """The seats, among all, of the model with that number."""
        return np.arange(self._ends[model], self._ends[model + 1])

    def _seat(self, views: Sequence[WorkerView]) -> None:
        ranks: dict[ModelId, list[int]] = {}
        for rank, view in enumerate(views):
            for model in view.service:
                if model in ranks:
                    ranks[model].append(rank)
                else:
                    ranks[model] = [rank]
        sizes = [len(theirs) for theirs in ranks.values()]
        rank_column = np.array([rank for theirs in ranks.values() for rank in theirs], np.int64)
        self.all_seats = Seats(
            rank_column,
            np.repeat(np.arange(len(sizes)), sizes),
            [views[rank].service[model] for model, theirs in ranks.items() for rank in theirs],
        )
        self.all_seats.base_ms[:] = [
            _base_ms(views[rank].service[model], views[rank], model)
            for model, theirs in ranks.items()
            for rank in theirs
        ]
        memory_mb = self.memory_mb[rank_column]
        self._ends: list[int] = [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
        self.seats: dict[ModelId, ModelSeats] = {
            model: ModelSeats(number, self.all_seats, first, end, memory_mb[first:end])
            for number, (model, first, end) in enumerate(
                zip(ranks, self._ends, self._ends[1:], strict=False)
            )
        }
        self.models_of: list[list[int]] = [[] for _ in views]
        """By rank, the numbers of the models that the worker serves."""
        for number, theirs in enumerate(ranks.values()):
            for rank in theirs:
                self.models_of[rank].append(number)

    def _revise(self, old: WorkerView, view: WorkerView) -> None:
        rank = self._rank[view.id]
        self.in_flight[rank] = view.in_flight
        touched = old.slots != view.slots or (old.available, old.owned) != (
            view.available,
            view.owned,
        )
        self.slots[rank] = view.slots
        self.available[rank] = view.available
        self.owned[rank] = view.owned
        if old.service is view.service and old.loaded == view.loaded and not touched:
            return
        self.proved[rank] = _proved(view)
        for model, estimate in view.service.items():
            known = old.service[model]
            if (known is not estimate and known != estimate) or old.loaded != view.loaded:
                self.seats[model].revise(rank, view, model)
            elif touched:
                self.seats[model].touch(rank)


def _proved(view: WorkerView) -> float:
    return max((one.success_lower for one in view.service.values()), default=0.0)


def _base_ms(estimate: ServiceEstimate, view: WorkerView, model: ModelId) -> float:
    """A cold model is loaded first; within a round it stays cold, as nothing is begun yet."""
    cold = view.loaded is not None and model not in view.loaded
    return estimate.base_ms + (estimate.load_ms if cold else 0.0)
