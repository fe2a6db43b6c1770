"""Finding the worker with the least key, among many and under constraints.

Keys only rise within a round, because reservations only add load. So the least few (key, rank) of a
group of requests, once found, stay the least until they are used up: a *window* holds them with
the keys that they will have at their next loads, up to the bound below which no other worker can
come. Most requests take the head of their group's window; where that does not suit one (deadline,
already tried), all open seats are looked through.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.kinds import PER_SIGMA, Floats, Ints, mean_ms, p90_factors, p90_ms
from scheduler.model import RequestKey
from scheduler.policies.protocol import Policy, SeatsView
from scheduler.workers import ModelSeats, WorkerTable

_WINDOW = 32
"""Seats in a window."""
_LOADS = 4
"""Loads of each that are looked ahead."""


class Found(NamedTuple):
    """A seat for a request."""

    rank: int
    used: int
    """Its slots that are taken already."""
    mean_ms: float
    p90_ms: float


@dataclass(slots=True)
class OpenSeats:
    """The seats of a model that have a free slot, in the order of ranks; some may have filled up
    since."""

    rank: Ints
    slots: Ints
    in_flight: Ints
    memory_mb: Ints
    owned: NDArray[np.bool_]
    base_ms: Floats
    per_token_ms: Floats
    sigma: Floats
    success_lower: Floats
    ewma_ms: Floats
    turn: Ints

    @staticmethod
    def of(seats: ModelSeats, workers: WorkerTable, used: Ints, turn_from: int) -> OpenSeats:
        """The seats that are open when `used` slots of each worker are taken."""
        rank = seats.rank
        at = np.flatnonzero(workers.available[rank] & (used[rank] < workers.slots[rank]))
        rank = rank[at]
        return OpenSeats(
            rank=rank,
            slots=workers.slots[rank],
            in_flight=workers.in_flight[rank],
            memory_mb=workers.memory_mb[rank],
            owned=workers.owned[rank],
            base_ms=seats.base_ms[at],
            per_token_ms=seats.per_token_ms[at],
            sigma=seats.sigma[at],
            success_lower=seats.success_lower[at],
            ewma_ms=seats.ewma_ms[at],
            turn=(rank - turn_from) % max(1, len(workers)),
        )

    def pick(self, at: Ints) -> OpenSeats:
        return OpenSeats(
            self.rank[at],
            self.slots[at],
            self.in_flight[at],
            self.memory_mb[at],
            self.owned[at],
            self.base_ms[at],
            self.per_token_ms[at],
            self.sigma[at],
            self.success_lower[at],
            self.ewma_ms[at],
            self.turn[at],
        )


class Group:
    """The open seats for the requests of one cell, in one round."""

    __slots__ = ("_at", "_entries", "_mean", "_p90", "_policy", "_seats", "_used", "_workers")

    def __init__(
        self,
        seats: OpenSeats,
        tokens: float,
        sigma_class: int,
        used: Ints,
        policy: Policy,
        workers: int,
    ) -> None:
        self._seats, self._used = seats, used
        self._policy, self._workers = policy, workers
        self._mean = mean_ms(seats.base_ms, seats.per_token_ms, tokens)
        self._p90 = p90_ms(self._mean, p90_factors(seats.sigma, sigma_class / PER_SIGMA))
        self._entries: list[Found] = []
        self._at = 0

    def first(self, budget_ms: int, tried: Collection[int], used: list[int]) -> Found | None:
        """The seat with the least key that is in time and not among the tried ranks."""
        entries, at = self._entries, self._at
        while True:
            while at < len(entries) and used[entries[at].rank] != entries[at].used:
                at += 1
            self._at = at
            if at == len(entries):
                if not self._refill():
                    return None
                entries, at = self._entries, 0
                continue
            found = entries[at]
            if found.p90_ms <= budget_ms and found.rank not in tried:
                return found
            return self._search(budget_ms, tried)

    def drawn(
        self, budget_ms: int, tried: Collection[int], block_hash: bytes, key: RequestKey
    ) -> Found | None:
        """The seat with the least key among a few that the hash of block and request draws."""
        at = self._suitable(budget_ms, tried)
        if len(at) > self._policy.sampled:
            chosen: list[int] = []
            left = list(range(len(at))) if len(at) < 4 * self._policy.sampled else None
            number = int.from_bytes(
                blake2b(
                    block_hash + key.id.to_bytes(32, "big") + key.commitment,
                    digest_size=8 * self._policy.sampled,
                ).digest()
            )
            while len(chosen) < self._policy.sampled:
                if left is not None:
                    number, one = divmod(number, len(left))
                    chosen.append(left.pop(one))
                else:
                    number, one = divmod(number, len(at))
                    while one in chosen:
                        one = (one + 1) % len(at)
                    chosen.append(one)
            at = at[np.sort(np.array(chosen, np.int64))]
        return self._least(at)

    def _search(self, budget_ms: int, tried: Collection[int]) -> Found | None:
        return self._least(self._suitable(budget_ms, tried))

    def _suitable(self, budget_ms: int, tried: Collection[int]) -> Ints:
        rank = self._seats.rank
        suits = (self._used[rank] < self._seats.slots) & (self._p90 <= budget_ms)
        if tried:
            suits &= ~np.isin(rank, np.array(list(tried), np.int64))
        return np.flatnonzero(suits)

    def _least(self, at: Ints) -> Found | None:
        if not len(at):
            return None
        used = self._used[self._seats.rank[at]]
        best = int(at[int(self._keys(at, used).argmin())])
        rank = int(self._seats.rank[best])
        return Found(rank, int(self._used[rank]), float(self._mean[best]), float(self._p90[best]))

    def _refill(self) -> bool:
        """Fills the window; False if no seat is open any more."""
        self._at = 0
        self._entries = []
        at = np.flatnonzero(self._used[self._seats.rank] < self._seats.slots)
        if not len(at):
            return False
        used = self._used[self._seats.rank[at]]
        keys = self._keys(at, used)
        bound: tuple[float, int, int] | None = None
        if len(at) > _WINDOW:
            kth = np.partition(keys, _WINDOW)[_WINDOW]
            near = np.flatnonzero(keys <= kth)
            near = near[np.argsort(keys[near], kind="stable")]
            beyond = near[_WINDOW]
            bound = (float(keys[beyond]), int(self._seats.rank[at[beyond]]), -1)
            near = near[:_WINDOW]
            at, used, keys = at[near], used[near], keys[near]
        ranks = self._seats.rank[at].tolist()
        means, p90s = self._mean[at].tolist(), self._p90[at].tolist()
        slots = self._seats.slots[at]
        waiting = list(zip(keys.tolist(), ranks, used.tolist(), means, p90s, strict=True))
        for ahead in range(1, _LOADS + 1):
            further = np.flatnonzero(used + ahead < slots)
            if not len(further):
                break
            later = self._keys(at[further], used[further] + ahead).tolist()
            for key, index in zip(later, further.tolist(), strict=True):
                taken = int(used[index]) + ahead
                if ahead == _LOADS:
                    limit = (key, ranks[index], taken)
                    bound = limit if bound is None else min(bound, limit)
                else:
                    waiting.append((key, ranks[index], taken, means[index], p90s[index]))
        waiting.sort()
        inside = waiting if bound is None else [one for one in waiting if one[:3] < bound]
        # A policy whose keys fall under load would leave none.
        self._entries = [Found(*one[1:]) for one in inside or waiting[:1]]
        return True

    def _keys(self, at: Ints, used: Ints) -> Floats:
        seats, mean = self._seats, self._mean[at]
        slots, ewma_ms = seats.slots[at], seats.ewma_ms[at]
        keys = self._policy.load_keys(
            SeatsView(
                rank=seats.rank[at],
                turn=seats.turn[at],
                workers=self._workers,
                slots=slots,
                in_flight=seats.in_flight[at],
                mean_ms=mean,
                p90_ms=self._p90[at],
                ewma_ms=np.where(ewma_ms > 0.0, ewma_ms, mean),
                success_lower=seats.success_lower[at],
                weight=slots / mean,
            ),
            used,
        )
        if np.shape(keys) != (len(at),) or not np.isfinite(keys).all():
            raise InvalidKeys(f"policy {self._policy.name} gave a key that is no finite number")
        return keys


class InvalidKeys(ValueError):
    """A policy returned something else than one finite number a seat."""
