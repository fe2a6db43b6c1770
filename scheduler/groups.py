"""The groups of requests that a round looks for workers for, opened as their turns come."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.cells import Cells
from scheduler.kinds import Floats, Ints, mean_ms, p90_ms
from scheduler.model import Block
from scheduler.policies.protocol import Policy, SeatsView
from scheduler.prospects import Prospects
from scheduler.seats import Group, Kind, Loads, OpenSeats
from scheduler.workers import ModelSeats, WorkerTable


class Groups:
    """Of one round; a group is named as in `scheduler.prospects`, an arm is a policy's index."""

    def __init__(
        self,
        cells: Cells,
        workers: WorkerTable,
        policies: Sequence[Policy],
        prospects: Prospects,
        most: Ints,
        block: Block,
    ) -> None:
        self._cells, self._workers, self._policies = cells, workers, policies
        self._prospects, self._most = prospects, most
        self.loads = [Loads(workers, most, policy, block.number) for policy in policies]
        """By arm."""
        self._models: list[ModelSeats] = list(workers.seats.values())
        self._open: list[list[OpenSeats]] = [[] for _ in self._models]
        """By model, one an arm, once one of its seats is looked for."""
        self._places: list[dict[int, list[tuple[Floats, int]]]] = [{} for _ in policies]
        """By arm and rank, where the worker's load is in the columns of models."""
        self._views: dict[int, SeatsView] = {}
        """By kind: all arms see the same open seats."""
        self._kinds: list[dict[int, Kind]] = [{} for _ in policies]
        self._groups: list[dict[int, Group]] = [{} for _ in policies]
        self._suiting: dict[tuple[int, int, int], NDArray[np.bool_]] = {}
        """By model, memory and whether only own workers will do: which open seats suit."""

    def of(self, name: int, arm: int = 0) -> Group:
        """The group by one policy. Raises InvalidKeys."""
        group = self._groups[arm].get(name)
        if group is None:
            group = self._groups[arm][name] = self._opened(name, arm)
        return group

    def reserve(self, rank: int, used: int) -> None:
        """So many slots of the worker are taken now."""
        for loads, places in zip(self.loads, self._places, strict=True):
            of_worker = loads.of(rank, used)
            for load, local in places.get(rank, ()):
                load[local] = of_worker

    def worth_waiting(self, name: int, budget_ms: int, tried: Collection[int]) -> bool:
        """Whether an untried worker that is busy now could still finish before the deadline.

        A slot of a busy worker comes free after mean / slots on average.
        """
        cell, owned_only = divmod(name, 2)
        prospects, workers = self._prospects, self._workers
        seats = self._models[prospects.model[cell]]
        rank = seats.rank
        suits = self._suits(seats, int(self._cells.needed_mb[cell]), owned_only=bool(owned_only))
        suits &= workers.available[rank] & (workers.slots[rank] > 0)
        suits &= ~np.isin(rank, np.array(list(tried), np.int64))
        mean = mean_ms(seats.base_ms, seats.per_token_ms, float(prospects.tokens[cell]))
        p90 = p90_ms(mean, seats.factors(int(prospects.sigma_class[cell])))
        waited = p90[suits] + mean[suits] / workers.slots[rank[suits]]
        return bool((waited <= budget_ms).any())

    def times_ms(self, names: Ints, ranks: Ints) -> tuple[Floats, Floats]:
        """Mean and p90 of requests of those groups on those workers."""
        prospects, every = self._prospects, self._workers.all_seats
        cell = names // 2
        model, seat = prospects.model[cell], np.empty(len(cell), np.int64)
        for number in np.unique(model).tolist():
            theirs = np.flatnonzero(model == number)
            first = self._workers.seats_of(number)[0]
            seat[theirs] = first + np.searchsorted(self._models[number].rank, ranks[theirs])
        mean = mean_ms(every.base_ms[seat], every.per_token_ms[seat], prospects.tokens[cell])
        sigma_class, factors = prospects.sigma_class[cell], np.empty(len(cell))
        for one in np.unique(sigma_class).tolist():
            theirs = np.flatnonzero(sigma_class == one)
            factors[theirs] = every.factors(seat[theirs], one)
        return mean, p90_ms(mean, factors)

    def _opened(self, name: int, arm: int) -> Group:
        cell, owned_only = divmod(name, 2)
        prospects = self._prospects
        model, code = int(prospects.model[cell]), int(prospects.kind[cell])
        kind = self._kinds[arm].get(code)
        if kind is None:
            if not self._open[model]:
                self._seat(model)
            view = self._views.get(code)
            if view is None:
                view = self._views[code] = self._open[model][0].view(
                    float(prospects.tokens[cell]), int(prospects.sigma_class[cell])
                )
            kind = Kind(self._open[model][arm], view, self._policies[arm])
            self._kinds[arm][code] = kind
        least_mb, needed_mb = prospects.least_mb[model], int(self._cells.needed_mb[cell])
        if not owned_only and needed_mb <= least_mb:
            return Group(kind, None)
        question = (model, needed_mb, owned_only)
        suits = self._suiting.get(question)
        if suits is None:
            of_model = self._suits(self._models[model], needed_mb, owned_only=bool(owned_only))
            suits = self._suiting[question] = of_model[kind.seats.at]
        return Group(kind, suits)

    def _seat(self, model: int) -> None:
        prospects = self._prospects
        for loads, places in zip(self.loads, self._places, strict=True):
            seats = OpenSeats(
                self._models[model],
                self._workers,
                self._most,
                prospects.used,
                loads,
                prospects.least_mb[model],
            )
            self._open[model].append(seats)
            for local, rank in enumerate(seats.rank):
                if rank in places:
                    places[rank].append((seats.load, local))
                else:
                    places[rank] = [(seats.load, local)]

    def _suits(self, seats: ModelSeats, least_mb: int, *, owned_only: bool) -> NDArray[np.bool_]:
        suits = seats.memory_mb >= least_mb
        if owned_only:
            suits &= self._workers.owned[seats.rank]
        return suits
