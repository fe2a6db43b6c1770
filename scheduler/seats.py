"""Finding the worker with the least key, among many and under constraints.

A key is `work * load`: the work depends on the kind of request, the load on the worker. So one
column of loads serves all kinds of a model and is kept up to date as the round reserves, and
the works of a kind are computed once a round: the best of hundreds of workers is then one product
and one minimum. A seat that is full has an infinite load, one that does not suit has infinite work.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from scheduler.kinds import Floats, Ints, mean_ms, p90_ms
from scheduler.model import RequestKey
from scheduler.policies.protocol import LoadsView, Policy, SeatsView
from scheduler.workers import ModelSeats, WorkerTable

_LEVELS = 8
"""Loads that are computed ahead for all open workers at once."""
_TINY = 1e-300

NOBODY = -1

Barred = NDArray[np.bool_] | None
"""Which seats a request may not have; None = it may have all."""


class InvalidKeys(ValueError):
    """A policy returned something else than one finite number, at least 0, a worker."""


class Loads:
    """How loaded each worker is that is open when a round begins, by one policy."""

    __slots__ = ("_ahead", "_levels", "_place", "_policy", "_rank", "_start", "_usable", "_view")

    def __init__(self, workers: WorkerTable, most: Ints, policy: Policy, turn_from: int) -> None:
        """`most` slots of each worker may be used, by rank."""
        rank = np.flatnonzero(workers.available & (workers.in_flight < most))
        start, usable = workers.in_flight[rank], most[rank]
        self._policy = policy
        self._view = LoadsView(
            workers.slots[rank], start, (rank - turn_from) % max(1, len(workers)), len(workers)
        )
        self._rank = rank
        self._place = dict(zip(rank.tolist(), range(len(rank)), strict=True))
        self._start: list[int] = start.tolist()
        self._usable: list[int] = usable.tolist()
        levels = min(_LEVELS, int(np.max(usable - start, initial=0)))
        self._levels = np.full((levels, len(rank)), np.inf)
        """By slots reserved since, then by worker."""
        for level in range(levels):
            loads = checked(policy.load(self._view, start + level), len(rank), policy)
            np.copyto(self._levels[level], loads, where=start + level < usable)
        self._ahead: list[list[float]] = self._levels.tolist()
        """The same twice: one for all at once, one for single looks."""

    def of(self, rank: int, used: int) -> float:
        """The worker's load with so many of its slots taken; infinite if it may not use more."""
        place = self._place[rank]
        level = used - self._start[place]
        if level < len(self._ahead):
            return self._ahead[level][place]
        if used >= self._usable[place]:
            return np.inf
        view, one = self._view, slice(place, place + 1)
        alone = LoadsView(view.slots[one], view.in_flight[one], view.turn[one], view.workers)
        load = self._policy.load(alone, np.array([used], np.int64))
        return float(checked(load, 1, self._policy)[0])

    def of_all(self, ranks: Ints, used: Ints) -> Floats:
        """The same of several workers, by rank."""
        place = np.searchsorted(self._rank, ranks)
        level = used - np.array(self._start, np.int64)[place]
        if np.max(level, initial=0) < len(self._levels):
            loads: Floats = self._levels[level, place]
            return loads
        return np.array([self.of(*one) for one in zip(ranks.tolist(), used.tolist(), strict=True)])

    def ahead(self, rank: int, used: int) -> list[float]:
        """The worker's loads for each of its free slots in turn, `used` being taken now."""
        return [self.of(rank, level) for level in range(used, self._usable[self._place[rank]])]


class OpenSeats:
    """The seats of a model that are open when one of them is first looked for in a round, in the
    order of ranks, and how loaded each is by one policy."""

    __slots__ = (
        "_base_ms",
        "_ewma_ms",
        "_factors",
        "_per_token_ms",
        "_slots",
        "_success_lower",
        "at",
        "buffer",
        "load",
        "local",
        "rank",
        "seats",
    )

    def __init__(
        self,
        seats: ModelSeats,
        workers: WorkerTable,
        most: Ints,
        used: Ints,
        loads: Loads,
        least_mb: int,
    ) -> None:
        """`used` slots of each worker are taken and `most` may be, by rank; no request asks for
        less memory than `least_mb`."""
        is_open = (workers.available & (used < most))[seats.rank]
        at = np.flatnonzero(is_open & (seats.memory_mb >= least_mb))
        rank = seats.rank[at]
        self.seats, self.at = seats, at
        """`at`: their positions among all seats of the model."""
        self.rank: list[int] = rank.tolist()
        self.local = dict(zip(self.rank, range(len(rank)), strict=True))
        """Where each worker is among these."""
        self.load = loads.of_all(rank, used[rank])
        self.buffer: Floats = np.empty(len(rank))
        self._slots, self._success_lower = workers.slots[rank], seats.success_lower[at]
        self._base_ms, self._per_token_ms = seats.base_ms[at], seats.per_token_ms[at]
        self._ewma_ms = seats.ewma_ms[at] if seats.measured else None
        self._factors: dict[int, Floats] = {}

    def places(self, ranks: Collection[int]) -> list[int]:
        """Where those of the workers are that are among these."""
        return [self.local[rank] for rank in ranks if rank in self.local]

    def view(self, tokens: float, sigma_class: int) -> SeatsView:
        """The seats as servers of one kind of request."""
        factors = self._factors.get(sigma_class)
        if factors is None:
            factors = self._factors[sigma_class] = self.seats.factors(sigma_class)[self.at]
        mean = mean_ms(self._base_ms, self._per_token_ms, tokens)
        ewma_ms = self._ewma_ms
        return SeatsView(
            self._slots,
            mean,
            p90_ms(mean, factors),
            mean if ewma_ms is None else np.where(ewma_ms > 0.0, ewma_ms, mean),
            self._success_lower,
        )


class Kind:
    """What one kind of request costs on each of these seats, in one round."""

    __slots__ = ("p90_ms", "seats", "work")

    def __init__(self, seats: OpenSeats, view: SeatsView, policy: Policy) -> None:
        """`view` is the seats' of that kind. Raises InvalidKeys."""
        self.seats, self.p90_ms = seats, view.p90_ms
        self.work = checked(policy.work(view), len(seats.rank), policy)


class Group:
    """The seats for the requests of one group, and the best of them for a request."""

    __slots__ = ("_buffer", "_load", "_p90_ms", "_work", "rank", "seats")

    def __init__(self, kind: Kind, suits: NDArray[np.bool_] | None) -> None:
        self.seats = kind.seats
        self.rank, self._p90_ms = kind.seats.rank, kind.p90_ms
        self._work = kind.work if suits is None else np.where(suits, kind.work, np.inf)
        self._load, self._buffer = kind.seats.load, kind.seats.buffer

    def first(self, budget_ms: int) -> int:
        """Where the best seat that is in time is among the open ones, or NOBODY."""
        keys: Floats = np.multiply(self._work, self._load, self._buffer)
        at = int(keys.argmin())
        if self._p90_ms.item(at) > budget_ms:
            keys[self._p90_ms > budget_ms] = np.inf
            at = int(keys.argmin())
        return NOBODY if keys.item(at) == np.inf else at

    def in_time(self, budget_ms: int) -> Ints:
        """The ranks of all open seats that are in time."""
        open_ = self._suitable(budget_ms, (), None) < np.inf
        ranks: Ints = self.seats.seats.rank[self.seats.at[open_]]
        return ranks

    def but(self, budget_ms: int, tried: Collection[int], barred: Barred) -> int:
        """The best seat that is in time, not among those ranks and not barred, or NOBODY."""
        keys = self._suitable(budget_ms, tried, barred)
        at = int(keys.argmin())
        return NOBODY if keys[at] == np.inf else at

    def drawn(
        self,
        budget_ms: int,
        tried: Collection[int],
        barred: Barred,
        draws: int,
        block_hash: bytes,
        key: RequestKey,
    ) -> int:
        """The best of `draws` suitable seats that the hash of block and request draws."""
        keys = self._suitable(budget_ms, tried, barred)
        suitable = np.flatnonzero(keys < np.inf)
        if len(suitable) > draws:
            name = block_hash + key.id.to_bytes(32, "big") + key.commitment
            number = int.from_bytes(blake2b(name, digest_size=32).digest())
            left = suitable.tolist()
            chosen = []
            for _ in range(draws):
                number, one = divmod(number, len(left))
                chosen.append(left[one])
                left[one] = left[-1]
                left.pop()
            suitable = np.array(sorted(chosen), np.int64)
        return int(suitable[keys[suitable].argmin()]) if len(suitable) else NOBODY

    def works(self, budget_ms: int, tried: Collection[int]) -> dict[int, float]:
        """By rank, the work on each suitable seat that is not among those ranks."""
        suitable = np.flatnonzero(self._suitable(budget_ms, tried, None) < np.inf)
        works: list[float] = self._work[suitable].tolist()
        return dict(zip((self.rank[at] for at in suitable.tolist()), works, strict=True))

    def _suitable(self, budget_ms: int, tried: Collection[int], barred: Barred) -> Floats:
        keys = np.multiply(self._work, self._load, out=self._buffer)
        keys[self._p90_ms > budget_ms] = np.inf
        if barred is not None:
            keys[barred] = np.inf
        keys[self.seats.places(tried)] = np.inf
        return keys


def checked(values: Floats, number: int, policy: Policy) -> Floats:
    """Figures above 0, so that no product with an infinite one is undefined. Raises InvalidKeys."""
    least = np.minimum.reduce(values, initial=1.0) if np.shape(values) == (number,) else -1.0
    if not (least >= 0.0 and np.maximum.reduce(values, initial=0.0) < np.inf):
        raise InvalidKeys(
            f"policy {policy.name} gave something else than {number} finite numbers of at least 0"
        )
    return values if least >= _TINY else np.maximum(values, _TINY)
