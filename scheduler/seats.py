"""Finding the worker that will finish first, among many and under constraints.

Each candidate has one integer as its key: predicted completion in microseconds, times the number
of workers, plus the worker's rank. Keys are unique, so ties are decided by worker id, and they only
grow within a round, because reservations only add load. Hence a stored key is a lower bound,
and an outdated one is corrected when it comes up instead of being kept current in every model.

The heap answers the usual question, "who finishes first?". If that worker does not suit a request
(memory, deadline, already tried), the tree answers "who finishes first among those that do?":
its leaves are sorted by p90, and its nodes keep the least key and p90 and the largest memory of
what is still free below, so that whole subtrees are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heapreplace
from math import inf
from sys import maxsize

from scheduler.model import WorkerId, WorkerView
from scheduler.pool import Seat

_FULL = maxsize
_NO_MEMORY = -1


class Loads:
    """How many slots of each worker are taken: in flight at the start, reserved since."""

    __slots__ = ("_size", "_slots", "_used")

    def __init__(self, workers: Sequence[WorkerView]) -> None:
        self._size = max(1, len(workers))
        self._slots = [worker.slots if worker.available else 0 for worker in workers]
        self._used = [worker.in_flight for worker in workers]

    def key(self, seat: Seat) -> int:
        """The seat's present key.

        Predicted completion = mean * (1 + used / slots): work that shares a worker slows each
        other down, from not at all when idle to twice the time when almost full.
        """
        rank = seat.rank
        used, slots = self._used[rank], self._slots[rank]
        if used >= slots:
            return _FULL
        return int(seat.mean_ms * 1000.0 * (slots + used) / slots) * self._size + rank

    def rank(self, key: int) -> int:
        return key % self._size

    def completion_ms(self, key: int) -> float:
        return key // self._size / 1000.0

    def reserve(self, seat: Seat) -> None:
        self._used[seat.rank] += 1


class Candidates:
    """The free seats of one model in one round."""

    __slots__ = ("_heap", "_hopeless_ms", "_loads", "_seats", "_tree")

    def __init__(self, seats: Sequence[Seat], loads: Loads) -> None:
        self._loads = loads
        free = [(key, seat) for seat in seats if (key := loads.key(seat)) != _FULL]
        self._seats = {seat.rank: seat for _, seat in free}
        self._heap = [key for key, _ in free]
        heapify(self._heap)
        self._tree: _Tree | None = None
        self._hopeless_ms: dict[int, int] = {}
        """By memory, the largest budget that found nobody: seats fill up but never free up, so no
        smaller budget needs to be tried again."""

    def first(
        self, budget_ms: int, memory_mb: int, excluded: Collection[WorkerId]
    ) -> tuple[Seat, float] | None:
        """The suitable seat with the earliest predicted completion, and that time in ms."""
        heap = self._heap
        while heap:
            stored = heap[0]
            seat = self._seats[self._loads.rank(stored)]
            key = self._loads.key(seat)
            if key == _FULL:
                heappop(heap)
            elif key != stored:
                heapreplace(heap, key)
            elif _suits(seat, budget_ms, memory_mb, excluded):
                return seat, self._loads.completion_ms(key)
            else:
                return self._search(budget_ms, memory_mb, excluded)
        return None

    def _search(
        self, budget_ms: int, memory_mb: int, excluded: Collection[WorkerId]
    ) -> tuple[Seat, float] | None:
        if budget_ms <= self._hopeless_ms.get(memory_mb, -1):
            return None
        if self._tree is None:
            self._tree = _Tree(list(self._seats.values()), self._loads)
        found = self._tree.first(budget_ms, memory_mb, excluded)
        if found is not None:
            return found[0], self._loads.completion_ms(found[1])
        if not excluded:
            self._hopeless_ms[memory_mb] = budget_ms
        return None


class _Tree:
    """A tournament over the seats of a model, in the order of their p90."""

    __slots__ = ("_keys", "_leaves", "_loads", "_memories_mb", "_p90s_ms", "_seats")

    def __init__(self, seats: Sequence[Seat], loads: Loads) -> None:
        self._loads = loads
        self._seats = sorted(seats, key=lambda seat: (seat.p90_ms, seat.rank))
        self._leaves = leaves = 1 << max(0, len(seats) - 1).bit_length()
        self._keys = [_FULL] * (2 * leaves)
        self._p90s_ms = [inf] * (2 * leaves)
        self._memories_mb = [_NO_MEMORY] * (2 * leaves)
        for leaf, seat in enumerate(self._seats, start=leaves):
            self._write(leaf, loads.key(seat), seat)
        for node in range(leaves - 1, 0, -1):
            self._combine(node)

    def first(
        self, budget_ms: int, memory_mb: int, excluded: Collection[WorkerId]
    ) -> tuple[Seat, int] | None:
        """The suitable seat with the least key, by depth-first branch and bound."""
        keys, p90s_ms, memories_mb = self._keys, self._p90s_ms, self._memories_mb
        best: Seat | None = None
        best_key = _FULL
        stack = [1]
        while stack:
            node = stack.pop()
            if keys[node] >= best_key or p90s_ms[node] > budget_ms or memories_mb[node] < memory_mb:
                continue
            if node < self._leaves:
                left = 2 * node
                nearer = keys[left] <= keys[left + 1]
                stack += (left + 1, left) if nearer else (left, left + 1)
                continue
            seat = self._seats[node - self._leaves]
            key = self._loads.key(seat)
            if key != keys[node]:
                self._update(node, key, seat)
            if key < best_key and seat.worker.id not in excluded:
                best, best_key = seat, key
        return None if best is None else (best, best_key)

    def _write(self, leaf: int, key: int, seat: Seat) -> None:
        self._keys[leaf] = key
        free = key != _FULL
        self._p90s_ms[leaf] = seat.p90_ms if free else inf
        self._memories_mb[leaf] = seat.worker.memory_mb if free else _NO_MEMORY

    def _combine(self, node: int) -> bool:
        """Whether the node's figures have changed."""
        left, right = 2 * node, 2 * node + 1
        keys, p90s_ms, memories_mb = self._keys, self._p90s_ms, self._memories_mb
        key = keys[left] if keys[left] < keys[right] else keys[right]
        p90_ms = p90s_ms[left] if p90s_ms[left] < p90s_ms[right] else p90s_ms[right]
        memory_mb = (
            memories_mb[left] if memories_mb[left] > memories_mb[right] else memories_mb[right]
        )
        if keys[node] == key and p90s_ms[node] == p90_ms and memories_mb[node] == memory_mb:
            return False
        keys[node], p90s_ms[node], memories_mb[node] = key, p90_ms, memory_mb
        return True

    def _update(self, leaf: int, key: int, seat: Seat) -> None:
        self._write(leaf, key, seat)
        node = leaf // 2
        while node and self._combine(node):
            node //= 2


def _suits(seat: Seat, budget_ms: int, memory_mb: int, excluded: Collection[WorkerId]) -> bool:
    return (
        seat.p90_ms <= budget_ms
        and seat.worker.memory_mb >= memory_mb
        and seat.worker.id not in excluded
    )
