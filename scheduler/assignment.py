"""Which worker computes which request, within the free slots of one round.

Requests come in the policy's order. Each takes the seat with the least key of the policy among
those that serve its model, have its memory, a free slot, and finish in time at p90 (see
`scheduler.seats`). Load is this router's own: in flight at the start of the round plus what the
round has reserved, never a polled figure.

A worker whose lease on the request failed is passed over while another one can still do it: one
that is merely busy is waited for as long as the deadline allows, then a tried one is used again.

Requests that no free seat is left for are never looked at one by one: seats fill up but never free
up within a round, so once a group of requests (cell, own workers only) has found nobody for a
budget, no smaller budget needs to be tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler.admission import Admission
from scheduler.cells import Cells
from scheduler.kinds import Floats, Ints, mean_ms, model_of, p90_ms, sigma_class_of, tokens_of
from scheduler.limits import OpenLimit, Reached
from scheduler.model import Block, PendingRequest, WorkerId
from scheduler.pending import PendingTable
from scheduler.policies.protocol import Policy
from scheduler.seats import Found, Group, OpenSeats
from scheduler.workers import ModelSeats, WorkerTable

_CHUNK = 2048
_NOT_YET = -1.0


@dataclass(slots=True)
class Assignments:
    """What was given out, in the order of scores; rows are positions among the admitted."""

    rows: list[int] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    waiting: dict[int, int] = field(default_factory=dict)
    """Requests kept for a busy worker that has not failed on them, and how many have."""
    limited: dict[int, Reached] = field(default_factory=dict)


class Assigner:
    """The assignments of one round."""

    def __init__(
        self,
        table: PendingTable,
        cells: Cells,
        workers: WorkerTable,
        admission: Admission,
        policy: Policy,
        block: Block,
    ) -> None:
        rows = admission.admitted
        self._cells, self._workers, self._policy, self._block = cells, workers, policy, block
        self._slots = admission.slots[rows]
        self._requests = table.request
        self._tried = table.tried[self._slots]
        self._budget_ms = admission.budget_ms[rows]
        self._group = admission.cell[rows] * 2 + admission.owned_only[rows]
        self._used: Ints = workers.in_flight.copy()
        self._used_list: list[int] = self._used.tolist()
        self._slots_list: list[int] = workers.slots.tolist()
        self._hopeless = np.full(2 * len(cells), _NOT_YET)
        """By group, the largest budget that found nobody."""
        kinds = cells.kind(np.arange(len(cells)))
        self._cell_model = model_of(kinds)
        self._cell_tokens: Floats = tokens_of(kinds)
        self._cell_sigma = sigma_class_of(kinds)
        self._models: dict[int, OpenSeats] = {}
        self._free: dict[int, int] = {}
        """Open seats left, by model."""
        self._index = {model: at for at, model in enumerate(table.models)}
        self._seats: list[ModelSeats | None] = [workers.seats.get(m) for m in table.models]
        self._groups: dict[int, Group] = {}

    def run(self, ranking: Ints, limits: Sequence[OpenLimit] = ()) -> Assignments:
        """Serves the requests in that order."""
        self._close_full_models()
        result = Assignments()
        for first in range(0, len(ranking), _CHUNK):
            chunk = ranking[first : first + _CHUNK]
            alive = chunk[self._budget_ms[chunk] > self._hopeless[self._group[chunk]]]
            if len(alive):
                self._serve(alive, limits, result)
        return result

    def _serve(self, rows: Ints, limits: Sequence[OpenLimit], result: Assignments) -> None:
        hopeless = self._hopeless
        for row, group, budget_ms, tried in zip(
            rows.tolist(),
            self._group[rows].tolist(),
            self._budget_ms[rows].tolist(),
            self._tried[rows].tolist(),
            strict=True,
        ):
            if budget_ms <= hopeless[group]:
                continue
            if limits and (reached := self._reached(row, limits)) is not None:
                result.limited[row] = reached
                continue
            if tried:
                found = self._retry(row, group, budget_ms, result)
            else:
                found = self._find(row, group, budget_ms, ())
                if found is None:
                    hopeless[group] = budget_ms
            if found is None:
                continue
            result.rows.append(row)
            result.found.append(found)
            self._reserve(found.rank)
            if limits:
                request, worker = self._request(row), self._workers.ids[found.rank]
                for limit in limits:
                    limit.assigned(row, request, worker)

    def _reached(self, row: int, limits: Sequence[OpenLimit]) -> Reached | None:
        request = self._request(row)
        for limit in limits:
            reached = limit.reached(row, request)
            if reached is not None:
                return reached
        return None

    def _retry(self, row: int, group: int, budget_ms: int, result: Assignments) -> Found | None:
        failed: frozenset[WorkerId] = self._request(row).tried
        tried = self._workers.ranks(failed)
        found = self._find(row, group, budget_ms, tried)
        if found is None and self._worth_waiting(group, budget_ms, tried):
            result.waiting[row] = len(failed)
            return None
        if found is None:
            found = self._find(row, group, budget_ms, ())
            if found is None:
                self._hopeless[group] = budget_ms
        return found

    def _find(self, row: int, group: int, budget_ms: int, tried: Collection[int]) -> Found | None:
        seats = self._groups.get(group)
        if seats is None:
            seats = self._groups[group] = self._open_group(group)
        if self._policy.sampled:
            return seats.drawn(budget_ms, tried, self._block.hash, self._request(row).key)
        return seats.first(budget_ms, tried, self._used_list)

    def _open_group(self, group: int) -> Group:
        cell, owned_only = divmod(group, 2)
        model = int(self._cell_model[cell])
        seats = self._model_seats(model)
        opened = self._models.get(model)
        if opened is None or 2 * self._free[model] < len(opened.rank):
            opened = self._models[model] = OpenSeats.of(
                seats, self._workers, self._used, self._block.number
            )
        suits = opened.memory_mb >= self._cells.least_memory_mb(cell, seats)
        if owned_only:
            suits &= opened.owned
        return Group(
            opened if suits.all() else opened.pick(np.flatnonzero(suits)),
            float(self._cell_tokens[cell]),
            int(self._cell_sigma[cell]),
            self._used,
            self._policy,
            len(self._workers),
        )

    def _worth_waiting(self, group: int, budget_ms: int, tried: Collection[int]) -> bool:
        """Whether an untried worker that is busy now could still finish before the deadline.

        A slot of a busy worker comes free after mean / slots on average.
        """
        cell, owned_only = divmod(group, 2)
        seats, workers = self._model_seats(int(self._cell_model[cell])), self._workers
        rank = seats.rank
        suits = workers.available[rank] & (workers.slots[rank] > 0)
        suits &= seats.memory_mb >= self._cells.least_memory_mb(cell, seats)
        suits &= ~np.isin(rank, np.array(list(tried), np.int64))
        if owned_only:
            suits &= workers.owned[rank]
        mean = mean_ms(seats.base_ms, seats.per_token_ms, float(self._cell_tokens[cell]))
        p90 = p90_ms(mean, seats.factors(int(self._cell_sigma[cell])))
        waited = p90[suits] + mean[suits] / workers.slots[rank[suits]]
        return bool((waited <= budget_ms).any())

    def _reserve(self, rank: int) -> None:
        used = self._used_list[rank] + 1
        self._used_list[rank] = used
        self._used[rank] = used
        if used < self._slots_list[rank]:
            return
        for name in self._workers.models_of(rank):
            model = self._index.get(name)
            if model is not None:
                self._free[model] -= 1
                if not self._free[model]:
                    self._close(self._cell_model == model)

    def _close_full_models(self) -> None:
        workers = self._workers
        open_ = workers.available & (self._used < workers.slots)
        full = np.zeros(len(self._seats), np.bool_)
        for model, seats in enumerate(self._seats):
            self._free[model] = 0 if seats is None else int(open_[seats.rank].sum())
            full[model] = not self._free[model]
        self._close(full[self._cell_model])

    def _close(self, cells: NDArray[np.bool_]) -> None:
        self._hopeless[np.repeat(cells, 2)] = np.inf

    def _request(self, row: int) -> PendingRequest:
        request: PendingRequest = self._requests[self._slots[row]]
        return request

    def _model_seats(self, model: int) -> ModelSeats:
        seats = self._seats[model]
        if seats is None:
            raise AssertionError("a request of a model without workers was admitted")
        return seats
