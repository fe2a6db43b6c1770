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
"""Loads that are computed ahead for all seats of a model at once."""
_TINY = 1e-300

NOBODY = -1

Barred = NDArray[np.bool_] | None
"""Which seats a request may not have; None = it may have all."""


class InvalidKeys(ValueError):
    """A policy returned something else than one finite number, at least 0, a worker."""


class Loads:
    """The seats of a model that are open when one of them is first looked for in a round, in the
    order of ranks, and how loaded each is."""

    __slots__ = (
        "_ahead",
        "_factors",
        "_local",
        "_policy",
        "_start",
        "_view",
        "at",
        "base_ms",
        "buffer",
        "ewma_ms",
        "load",
        "per_token_ms",
        "rank",
        "seats",
        "slots",
        "success_lower",
    )

    def __init__(
        self,
        seats: ModelSeats,
        workers: WorkerTable,
        most: Ints,
        used: Ints,
        policy: Policy,
        turn_from: int,
        least_mb: int,
    ) -> None:
        """`used` slots of each worker are taken and `most` may be, by rank; no request asks for
        less memory than `least_mb`."""
        rank = seats.rank
        is_open = workers.available[rank] & (used[rank] < most[rank])
        at = np.flatnonzero(is_open & (seats.memory_mb >= least_mb))
        rank = rank[at]
        self.seats, self.at, self._policy = seats, at, policy
        """`at`: their positions among all seats of the model."""
        self.rank: list[int] = rank.tolist()
        self._local = {one: local for local, one in enumerate(self.rank)}
        self.slots, usable = workers.slots[rank], most[rank]
        self.base_ms, self.per_token_ms = seats.base_ms[at], seats.per_token_ms[at]
        self.success_lower = seats.success_lower[at]
        self.ewma_ms = seats.ewma_ms[at] if seats.measured else None
        start = used[rank]
        self._start: list[int] = start.tolist()
        self._view = LoadsView(
            self.slots,
            workers.in_flight[rank],
            (rank - turn_from) % max(1, len(workers)),
            len(workers),
        )
        self._ahead: list[list[float]] = []
        """By slots reserved since, then by seat."""
        self.load: Floats = np.empty(0)
        for level in range(min(_LEVELS, int(np.max(usable - start, initial=0)))):
            loads = _checked(policy.load(self._view, start + level), len(rank), policy)
            loads = np.where(start + level < usable, loads, np.inf)
            self._ahead.append(loads.tolist())
            if not level:
                self.load = loads
        self.buffer: Floats = np.empty(len(rank))
        self._factors: dict[int, Floats] = {}

    def factors(self, sigma_class: int) -> Floats:
        """p90 / mean of each seat, for a class of the tokens' spread."""
        factors = self._factors.get(sigma_class)
        if factors is None:
            factors = self._factors[sigma_class] = self.seats.factors(sigma_class)[self.at]
        return factors

    def reserve(self, rank: int, used: int, *, full: bool) -> None:
        """`used` slots of that worker are taken now."""
        local = self._local.get(rank)
        if local is not None:
            self.load[local] = np.inf if full else self._load_of(local, used)

    def ahead(self, rank: int, used: int) -> list[float]:
        """The worker's loads for each of its free slots in turn, `used` being taken now."""
        local = self._local[rank]
        return [self._load_of(local, level) for level in range(used, int(self.slots[local]))]

    def _load_of(self, local: int, used: int) -> float:
        level = used - self._start[local]
        if level < len(self._ahead):
            return self._ahead[level][local]
        view, one = self._view, slice(local, local + 1)
        alone = LoadsView(view.slots[one], view.in_flight[one], view.turn[one], view.workers)
        load = self._policy.load(alone, np.array([used], np.int64))
        return float(_checked(load, 1, self._policy)[0])

    def local(self, ranks: Collection[int]) -> list[int]:
        """Where those of the workers are that are among the seats."""
        return [self._local[rank] for rank in ranks if rank in self._local]


class Kind:
    """What one kind of request costs on each of these seats, in one round."""

    __slots__ = ("loads", "mean_ms", "p90_ms", "work")

    def __init__(self, loads: Loads, tokens: float, sigma_class: int, policy: Policy) -> None:
        self.loads = loads
        self.mean_ms = mean_ms(loads.base_ms, loads.per_token_ms, tokens)
        self.p90_ms = p90_ms(self.mean_ms, loads.factors(sigma_class))
        ewma_ms = loads.ewma_ms
        view = SeatsView(
            loads.slots,
            self.mean_ms,
            self.p90_ms,
            self.mean_ms if ewma_ms is None else np.where(ewma_ms > 0.0, ewma_ms, self.mean_ms),
            loads.success_lower,
        )
        self.work = _checked(policy.work(view), len(loads.slots), policy)


class Group:
    """The seats for the requests of one cell, and the best of them for a request."""

    __slots__ = ("_buffer", "_load", "_work", "kind", "mean_ms", "p90_ms", "rank")

    def __init__(self, kind: Kind, suits: NDArray[np.bool_] | None) -> None:
        self.kind = kind
        self.rank, self.mean_ms, self.p90_ms = kind.loads.rank, kind.mean_ms, kind.p90_ms
        self._work = kind.work if suits is None else np.where(suits, kind.work, np.inf)
        self._load, self._buffer = kind.loads.load, kind.loads.buffer

    def first(self, budget_ms: int) -> int:
        """Where the best seat that is in time is among `Loads`, or NOBODY."""
        keys: Floats = np.multiply(self._work, self._load, self._buffer)
        at = int(keys.argmin())
        if self.p90_ms[at] > budget_ms:
            keys[self.p90_ms > budget_ms] = np.inf
            at = int(keys.argmin())
        return NOBODY if keys[at] == np.inf else at

    def in_time(self, budget_ms: int) -> Ints:
        """The ranks of all open seats that are in time."""
        open_ = self._suitable(budget_ms, (), None) < np.inf
        ranks: Ints = self.kind.loads.seats.rank[self.kind.loads.at[open_]]
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
        keys[self.p90_ms > budget_ms] = np.inf
        if barred is not None:
            keys[barred] = np.inf
        keys[self.kind.loads.local(tried)] = np.inf
        return keys


def _checked(values: Floats, number: int, policy: Policy) -> Floats:
    """Figures above 0, so that no product with an infinite one is undefined."""
    least = values.min() if np.shape(values) == (number,) else -1.0
    if not (least >= 0.0 and values.max() < np.inf):
        raise InvalidKeys(
            f"policy {policy.name} gave something else than {number} finite numbers of at least 0"
        )
    return values if least >= _TINY else np.maximum(values, _TINY)
