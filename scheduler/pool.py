"""The workers of a round, indexed by model and memory: who could serve a request at all.

A request's question depends only on its model and on how many workers have at least its memory.
So the answers are computed once per (model, distinct worker memory), and one bisection per
request finds its answer, however many workers there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from math import inf
from typing import NamedTuple

from scheduler.model import ModelId, WorkerId, WorkerView

MIN_SERVICE_MS = 1.0
"""No service is taken to be quicker, so that no lease has a length of zero."""
MAX_SERVICE_MS = 1e9
"""No service is taken to be slower (11 days), so that sums of predictions stay in 64 bits."""

MEMORY_CLASSES = 8
"""Into how many classes of memory the workers of a model are divided at most."""


class Seat(NamedTuple):
    """A worker in its role as a server of one model."""

    rank: int
    """Position of the worker in the order of ids: the tie-break between equal workers."""
    worker: WorkerView
    mean_ms: float
    p90_ms: float


class Facts(NamedTuple):
    """What the workers that serve one model with at least some memory can do.

    A p90 is the best one of the group, infinite if the group is empty.
    """

    registered: int
    registered_p90_ms: float
    registered_owned_p90_ms: float
    available: int
    available_slots: int
    available_p90_ms: float
    available_owned_p90_ms: float


class ModelPool:
    """All registered workers of one model."""

    __slots__ = ("_facts", "_memories_mb", "seats")

    def __init__(self, seats: Sequence[Seat]) -> None:
        self.seats = seats
        self._memories_mb: list[int] = []
        self._facts: list[Facts] = []
        registered = available = slots = 0
        best = owned_best = free_best = free_owned_best = inf
        for memory_mb, group in groupby(sorted(seats, key=_memory_of, reverse=True), _memory_of):
            for _, worker, _, p90_ms in group:
                registered += 1
                best = min(best, p90_ms)
                if worker.owned:
                    owned_best = min(owned_best, p90_ms)
                if worker.available:
                    available += 1
                    slots += worker.slots
                    free_best = min(free_best, p90_ms)
                    if worker.owned:
                        free_owned_best = min(free_owned_best, p90_ms)
            self._memories_mb.append(memory_mb)
            self._facts.append(
                Facts(registered, best, owned_best, available, slots, free_best, free_owned_best)
            )
        self._memories_mb.reverse()
        self._facts.reverse()

    @property
    def largest_memory_mb(self) -> int:
        return self._memories_mb[-1]

    def memory_class_mb(self, memory_mb: int) -> int:
        """The largest of a few thresholds that every worker with the memory asked for reaches.

        The distinct memories themselves if they are few, else every n-th of them: an index kept per
        class stays small, however many different sizes there are.
        """
        at = bisect_left(self._memories_mb, memory_mb)
        step = -(-len(self._memories_mb) // MEMORY_CLASSES)
        return self._memories_mb[at // step * step]

    def facts(self, memory_mb: int) -> Facts | None:
        """The facts about the workers with at least `memory_mb`; None if there is no such one."""
        at = bisect_left(self._memories_mb, memory_mb)
        return self._facts[at] if at < len(self._facts) else None


class Pool:
    """All registered workers of a round."""

    __slots__ = ("models", "workers")

    def __init__(self, workers: Iterable[WorkerView]) -> None:
        self.workers: tuple[WorkerView, ...] = tuple(sorted(workers, key=_id_of))
        for one, other in pairwise(self.workers):
            if one.id == other.id:
                raise ValueError(f"the snapshot holds worker 0x{one.id.hex()} twice")
        by_model: dict[ModelId, list[Seat]] = {}
        for rank, worker in enumerate(self.workers):
            for model, service in worker.service.items():
                seat = Seat(rank, worker, _clamped(service.mean_ms), _clamped(service.p90_ms))
                seats = by_model.get(model)
                if seats is None:
                    by_model[model] = [seat]
                else:
                    seats.append(seat)
        self.models = {model: ModelPool(seats) for model, seats in by_model.items()}


def _memory_of(seat: Seat) -> int:
    return seat.worker.memory_mb


def _id_of(worker: WorkerView) -> WorkerId:
    return worker.id


def _clamped(service_ms: float) -> float:
    return min(max(service_ms, MIN_SERVICE_MS), MAX_SERVICE_MS)
