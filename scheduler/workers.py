"""The workers as columns, and each model's workers as its seats, kept between rounds.

A *seat* is a worker in its role as a server of one model. A worker's *rank* is its position in the
order of ids: the tie-break between equal workers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler.kinds import PER_SIGMA, Floats, Ints, p90_factors
from scheduler.model import ModelId, ServiceEstimate, WorkerId, WorkerView


class ModelSeats:
    """The seats of one model, one element each, in the order of ranks."""

    def __init__(self, rank: Ints, memory_mb: Ints, views: list[WorkerView], model: ModelId):
        self.rank = rank
        self.memory_mb = memory_mb
        self.position = {int(one): at for at, one in enumerate(rank)}
        estimates = [view.service[model] for view in views]
        self.base_ms = np.array(
            [_base_ms(one, view, model) for one, view in zip(estimates, views, strict=True)]
        )
        self.per_token_ms = np.array([one.per_token_ms for one in estimates], np.float64)
        self.sigma = np.array([one.sigma for one in estimates], np.float64)
        self.p90_factor = np.array([one.p90_factor for one in estimates], np.float64)
        self.success_lower = np.array([one.success_lower for one in estimates], np.float64)
        self.ewma_ms = np.array([one.ewma_ms for one in estimates], np.float64)
        self.measured = bool(self.ewma_ms.any())
        """Whether there is a moving average for any of them."""
        self.version = 0
        """Changes with everything that facts about the model depend on."""
        self.memories_mb: Ints = np.unique(memory_mb)
        """The distinct memories, rising."""
        self.by_memory: Ints = np.lexsort((rank, -memory_mb))
        """Positions of the seats, the largest memory first."""
        falling = memory_mb[self.by_memory]
        self.starts: Ints = np.flatnonzero(np.r_[True, falling[1:] != falling[:-1]])
        """Where in `by_memory` each distinct memory begins, the largest first."""
        self._factors: dict[int, Floats] = {}

    def factors(self, sigma_class: int) -> Floats:
        """p90 / mean of each seat, for a class of the tokens' spread."""
        factors = self._factors.get(sigma_class)
        if factors is None:
            law = p90_factors(self.sigma, sigma_class / PER_SIGMA)
            factors = self._factors[sigma_class] = law * self.p90_factor
        return factors

    def revise(self, rank: int, view: WorkerView, model: ModelId) -> None:
        """Takes over the worker's present estimate."""
        at, estimate = self.position[rank], view.service[model]
        self.base_ms[at] = _base_ms(estimate, view, model)
        self.per_token_ms[at] = estimate.per_token_ms
        self.sigma[at] = estimate.sigma
        self.p90_factor[at] = estimate.p90_factor
        self.success_lower[at] = estimate.success_lower
        self.ewma_ms[at] = estimate.ewma_ms
        self.measured = bool(self.ewma_ms.any())
        self._factors.clear()
        self.version += 1


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
        ranks: dict[ModelId, list[int]] = {}
        for rank, view in enumerate(views):
            for model in view.service:
                if model in ranks:
                    ranks[model].append(rank)
                else:
                    ranks[model] = [rank]
        self.seats: dict[ModelId, ModelSeats] = {}
        for model, theirs in ranks.items():
            rank_column = np.array(theirs, np.int64)
            self.seats[model] = ModelSeats(
                rank_column, self.memory_mb[rank_column], [views[rank] for rank in theirs], model
            )
        self.structure += 1
        self._stale = False

    def ranks(self, ids: Iterable[WorkerId]) -> frozenset[int]:
        """The ranks of those that are here."""
        return frozenset(self._rank[one] for one in ids if one in self._rank)

    def view(self, rank: int) -> WorkerView:
        """What is known of the worker."""
        return self._views[self.ids[rank]]

    def models_of(self, rank: int) -> Iterable[ModelId]:
        """What the worker serves."""
        return self._views[self.ids[rank]].service

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
        self.proved[rank] = _proved(view)
        for model, estimate in view.service.items():
            known = old.service[model]
            if (known is not estimate and known != estimate) or old.loaded != view.loaded:
                self.seats[model].revise(rank, view, model)
            elif touched:
                self.seats[model].version += 1


def _proved(view: WorkerView) -> float:
    return max((one.success_lower for one in view.service.values()), default=0.0)


def _base_ms(estimate: ServiceEstimate, view: WorkerView, model: ModelId) -> float:
    """A cold model is loaded first; within a round it stays cold, as nothing is begun yet."""
    cold = view.loaded is not None and model not in view.loaded
    return estimate.base_ms + (estimate.load_ms if cold else 0.0)
