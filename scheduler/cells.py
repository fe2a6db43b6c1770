"""What the workers could do for each kind of request, kept between rounds.

Whether and how fast a request can be served depends on its kind and on which workers have its
memory, hence only on its *cell*: the kind, and how many of the model's distinct worker
memories are smaller than what it asks for. Facts are computed once a cell, for all cells of a model
at once, and again only when a worker of that model has changed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.front import front
from scheduler.kinds import (
    Floats,
    Ints,
    mean_ms,
    model_of,
    p90_ms,
    sigma_class_of,
    tokens_of,
)
from scheduler.pending import NO_CELL, PendingTable
from scheduler.workers import ModelSeats, WorkerTable

MODEL_UNKNOWN = -2
"""In place of a cell: no registered worker serves the model."""
MEMORY_TOO_LARGE = -3
"""In place of a cell: none that serves it has the memory."""

_MEMORIES = 1 << 20
_KINDS_AT_ONCE = 256
_UNAVAILABLE_MS = 1e12
"""Added to the mean of an unavailable worker, so that it comes after all available ones."""

FACTS: dict[str, type] = {
    "registered": np.int64,
    "available": np.int64,
    "available_slots": np.int64,
    "p90_ms": np.float64,
    "owned_p90_ms": np.float64,
    "available_p90_ms": np.float64,
    "available_owned_p90_ms": np.float64,
    "service_ms": np.float64,
    "success_lower": np.float64,
    "owned_service_ms": np.float64,
    "owned_success_lower": np.float64,
}


class Cells:
    """Facts by cell. A p90 is the best one, infinite where there is nobody.

    `service_ms` is the least mean among the available workers, among all registered ones if none
    is available; `success_lower` is of that worker.
    """

    registered: NDArray[np.int64]
    available: NDArray[np.int64]
    available_slots: NDArray[np.int64]
    p90_ms: NDArray[np.float64]
    owned_p90_ms: NDArray[np.float64]
    available_p90_ms: NDArray[np.float64]
    available_owned_p90_ms: NDArray[np.float64]
    service_ms: NDArray[np.float64]
    success_lower: NDArray[np.float64]
    owned_service_ms: NDArray[np.float64]
    owned_success_lower: NDArray[np.float64]

    def __init__(self) -> None:
        self._basis = (-1, -1)
        self._index: dict[int, int] = {}
        self.code: Ints = np.zeros(0, np.int64)
        """kind * 2**20 + number of smaller memories."""
        self._version: Ints = np.zeros(0, np.int64)
        for name, kind in FACTS.items():
            setattr(self, name, np.zeros(0, kind))

    def __len__(self) -> int:
        return len(self._index)

    def settle(self, table: PendingTable, workers: WorkerTable) -> None:
        """Gives every pending request its cell, and every such cell its present facts."""
        slots = table.order()
        basis = (workers.structure, table.naming)
        if self._basis != basis or len(self._index) > 1024 + 4 * len(table):
            self._basis = basis
            self._index.clear()
            self._version[:] = -1
            table.cell[slots] = NO_CELL
        fresh = slots[table.cell[slots] == NO_CELL]
        if len(fresh):
            self._locate(table, fresh, workers)
        used = np.bincount(table.cell[slots].clip(-1) + 1, minlength=len(self) + 1)[1:] > 0
        self._compute(np.flatnonzero(used), table, workers)

    def kind(self, cells: Ints) -> Ints:
        """The kinds of the cells."""
        kinds: Ints = self.code[cells] // _MEMORIES
        return kinds

    def least_memory_mb(self, cell: int, seats: ModelSeats) -> int:
        """What a worker must have to serve all requests of the cell."""
        return int(seats.memories_mb[self.code[cell] % _MEMORIES])

    def memory_mb(self, cells: Ints, seats: ModelSeats) -> Ints:
        """What a worker must have to serve all requests of each cell, all of one model."""
        memories: Ints = seats.memories_mb[self.code[cells] % _MEMORIES]
        return memories

    def _locate(self, table: PendingTable, slots: Ints, workers: WorkerTable) -> None:
        kinds = table.kind[slots]
        models = model_of(kinds)
        codes = kinds * _MEMORIES
        by_model = np.argsort(models, kind="stable")
        edges = np.flatnonzero(np.diff(models[by_model])) + 1
        for rows in np.split(by_model, edges):
            seats = workers.seats.get(table.models[int(models[rows[0]])])
            if seats is None:
                codes[rows] = MODEL_UNKNOWN
                continue
            smaller = np.searchsorted(seats.memories_mb, table.memory_mb[slots[rows]])
            largest = len(seats.memories_mb)
            codes[rows] = np.where(smaller == largest, MEMORY_TOO_LARGE, codes[rows] + smaller)
        distinct, where = np.unique(codes, return_inverse=True)
        cells = [code if code < 0 else self._cell(code) for code in distinct.tolist()]
        table.cell[slots] = np.array(cells, np.int64)[where]

    def _cell(self, code: int) -> int:
        cell = self._index.get(code)
        if cell is None:
            cell = self._index[code] = len(self._index)
            if cell >= len(self.code):
                self._grow()
            self.code[cell] = code
            self._version[cell] = -1
        return cell

    def _grow(self) -> None:
        capacity = max(256, 2 * len(self.code))
        for name in ("code", "_version", *FACTS):
            old = getattr(self, name)
            column = np.full(capacity, -1, old.dtype)
            column[: len(old)] = old
            setattr(self, name, column)

    def _compute(self, cells: Ints, table: PendingTable, workers: WorkerTable) -> None:
        """The facts of those cells whose model's workers have changed since, and of new ones."""
        if not len(cells):
            return
        seats_of = [workers.seats.get(model) for model in table.models]
        versions = np.array([-2 if one is None else one.version for one in seats_of], np.int64)
        stale = cells[self._version[cells] != versions[model_of(self.kind(cells))]]
        kinds = self.kind(stale)
        by_kind = np.argsort(kinds, kind="stable")
        stale, kinds = stale[by_kind], kinds[by_kind]
        for rows in np.split(np.arange(len(stale)), np.flatnonzero(np.diff(model_of(kinds))) + 1):
            if not len(rows):
                continue
            seats = seats_of[int(model_of(kinds[rows[:1]])[0])]
            if seats is None:
                raise AssertionError("a cell of a model without workers")
            distinct, column = np.unique(kinds[rows], return_inverse=True)
            for first in range(0, len(distinct), _KINDS_AT_ONCE):
                part = slice(first, first + _KINDS_AT_ONCE)
                inside = (column >= first) & (column < first + _KINDS_AT_ONCE)
                facts = _facts(seats, workers, distinct[part])
                theirs = stale[rows[inside]]
                memory = self.code[theirs] % _MEMORIES
                for name, values in facts.items():
                    getattr(self, name)[theirs] = (
                        values[memory, column[inside] - first]
                        if values.ndim == 2
                        else values[memory]
                    )
            self._version[stale[rows]] = seats.version


def _facts(seats: ModelSeats, workers: WorkerTable, kinds: Ints) -> dict[str, NDArray[np.generic]]:
    """By name, for each of the model's memories, rising, and each kind: (memories, kinds)."""
    rank = seats.rank[seats.by_memory]
    numbers = {
        "registered": np.ones(len(rank), np.int64),
        "available": workers.available[rank].astype(np.int64),
        "available_slots": np.where(workers.available[rank], workers.slots[rank], 0),
    }
    totals = {
        name: np.cumsum(np.add.reduceat(values, seats.starts))[::-1]
        for name, values in numbers.items()
    }
    order = front(seats, workers)
    # Each memory that is left stands for those between it and the next larger one.
    falling = seats.memory_mb[order]
    starts = np.flatnonzero(np.r_[True, falling[1:] != falling[:-1]])
    rows = np.searchsorted(-falling[starts], -seats.memories_mb, side="right") - 1
    available = workers.available[seats.rank[order]]
    owned = workers.owned[seats.rank[order]]
    mean = mean_ms(
        seats.base_ms[order][:, None], seats.per_token_ms[order][:, None], tokens_of(kinds)
    )
    classes, column = np.unique(sigma_class_of(kinds), return_inverse=True)
    factors = np.stack([seats.factors(int(one))[order] for one in classes], axis=1)
    p90 = p90_ms(mean, factors[:, column])

    def best(mask: NDArray[np.bool_] | None) -> Floats:
        masked = p90 if mask is None or mask.all() else np.where(mask[:, None], p90, np.inf)
        return np.minimum.accumulate(np.minimum.reduceat(masked, starts, axis=0), axis=0)

    late = mean + np.where(available, 0.0, _UNAVAILABLE_MS)[:, None]
    success = seats.success_lower[order]
    service, surely = _quickest(late, success, starts)
    all_owned = bool(owned.all())
    if all_owned:
        own_service, own_surely = service, surely
    else:
        others = np.where(owned, 0.0, np.inf)[:, None]
        own_service, own_surely = _quickest(late + others, success, starts)
    registered_p90 = best(None)
    available_p90 = best(available)
    facts = {
        "p90_ms": registered_p90,
        "owned_p90_ms": registered_p90 if all_owned else best(owned),
        "available_p90_ms": available_p90,
        "available_owned_p90_ms": available_p90 if all_owned else best(available & owned),
        "service_ms": service,
        "success_lower": surely,
        "owned_service_ms": own_service,
        "owned_success_lower": own_surely,
    }
    return totals | {name: values[rows] for name, values in facts.items()}


def _quickest(late: Floats, success: Floats, starts: Ints) -> tuple[Floats, Floats]:
    """The least mean and that worker's success, for each memory, falling, and each kind."""
    ends = np.r_[starts[1:], len(late)]
    columns = np.arange(late.shape[1])
    least = np.empty((len(starts), late.shape[1]))
    surely = np.empty_like(least)
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        first = late[start:end].argmin(axis=0) + start
        least[at] = late[first, columns]
        surely[at] = success[first]
        if at:
            earlier = least[at - 1] <= least[at]
            least[at][earlier] = least[at - 1][earlier]
            surely[at][earlier] = surely[at - 1][earlier]
    unavailable = np.isfinite(least) & (least >= _UNAVAILABLE_MS)
    least[unavailable] -= _UNAVAILABLE_MS
    return least, surely
