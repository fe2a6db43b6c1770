"""What the workers could do for each kind of request, kept between rounds.

Whether and how fast a request can be served depends on its kind and on which workers have its
memory, hence only on its *cell*: the kind, and how many of the model's distinct worker
memories are smaller than what it asks for. Facts are looked up once a cell, for all cells of a
model at once, and again only when a worker of that model has changed (see `scheduler.blocks`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.blocks import Blocks
from scheduler.kinds import Ints, model_of
from scheduler.pending import NO_CELL, PendingTable
from scheduler.workers import ModelSeats, WorkerTable

MODEL_UNKNOWN = -2
"""In place of a cell: no registered worker serves the model."""
MEMORY_TOO_LARGE = -3
"""In place of a cell: none that serves it has the memory."""

_MEMORIES = 1 << 20

FACTS: dict[str, type] = {
    "needed_mb": np.int64,
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

    needed_mb: NDArray[np.int64]
    """What a worker must have to serve all requests of the cell."""
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
        self._blocks: dict[int, Blocks] = {}
        """By the model's number among the workers'."""
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
            self._blocks.clear()
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

    def _locate(self, table: PendingTable, slots: Ints, workers: WorkerTable) -> None:
        kinds = table.kind[slots]
        models = model_of(kinds)
        codes = kinds * _MEMORIES
        by_model = np.argsort(models)
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
        models = model_of(self.kind(cells))
        is_stale = np.zeros(len(seats_of), np.bool_)
        is_stale[models[self._version[cells] != versions[models]]] = True
        theirs = np.flatnonzero(is_stale[models])
        theirs = theirs[np.argsort(models[theirs], kind="stable")]
        edges = np.flatnonzero(np.diff(models[theirs])) + 1
        for rows in np.split(theirs, edges) if len(theirs) else ():
            seats = seats_of[int(models[rows[0]])]
            if seats is None:
                raise AssertionError("a cell of a model without workers")
            self._look_up(cells[rows], seats, workers)
            self._version[cells[rows]] = seats.version

    def _look_up(self, cells: Ints, seats: ModelSeats, workers: WorkerTable) -> None:
        """Takes over the present facts of all cells in use of one model."""
        memory = self.code[cells] % _MEMORIES
        blocks = self._blocks.get(seats.number)
        if blocks is None or not np.isin(memory, blocks.classes).all():
            blocks = self._blocks[seats.number] = Blocks(seats, workers, np.unique(memory))
        kinds = self.kind(cells)
        blocks.settle(kinds)
        row, column = np.searchsorted(blocks.classes, memory), blocks.place(kinds)
        self.needed_mb[cells] = seats.memories_mb[memory]
        for name, values in blocks.facts().items():
            getattr(self, name)[cells] = values[row, column] if values.ndim == 2 else values[row]
