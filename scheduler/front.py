"""The seats of a model that no other one surpasses in everything: all that its best times need.

A seat is surpassed by another one that is available, has at least its memory, is owned if it is
owned, and has no larger base, time per token, spread or measured factor of its p90: whatever the
kind of request, that one's mean and p90 are not larger. So whatever is least over all seats is
least over the others. Not all surpassed seats are found, only those that one of a few of the
quickest surpasses.
"""

from __future__ import annotations

import numpy as np

from scheduler.kinds import Floats, Ints
from scheduler.workers import ModelSeats, WorkerTable

_FEW = 64
"""As many seats are not worth looking for."""
_CHAMPIONS = 24
_TOKENS = (0.0, 100.0, 1_000.0)
"""Outputs that the quickest seats are looked for at, in turn."""


def front(seats: ModelSeats, workers: WorkerTable) -> Ints:
    """Positions of the seats that are left, the largest memory first, then in order of ranks."""
    left = seats.by_memory
    if len(left) <= _FEW:
        return left
    rank = seats.rank[left]
    owned = workers.owned[rank]
    base_ms, per_token_ms = seats.base_ms[left], seats.per_token_ms[left]
    sigma, memory_mb = seats.sigma[left], seats.memory_mb[left]
    p90_factor = seats.p90_factor[left]
    late = np.where(workers.available[rank], 0.0, np.inf)
    times: list[Floats] = [
        (base_ms + per_token_ms * tokens) * np.exp(sigma) * p90_factor + late for tokens in _TOKENS
    ]
    alive = np.arange(len(left))
    for turn in range(_CHAMPIONS):
        theirs = times[turn % len(times)]
        best = int(alive[theirs[alive].argmin()])
        if theirs[best] == np.inf:
            break
        for column in times:  # once is enough
            column[best] = np.inf
        surpassed = base_ms[alive] >= base_ms[best]
        surpassed &= per_token_ms[alive] >= per_token_ms[best]
        surpassed &= sigma[alive] >= sigma[best]
        surpassed &= p90_factor[alive] >= p90_factor[best]
        surpassed &= memory_mb[alive] <= memory_mb[best]
        if not owned[best]:
            surpassed &= ~owned[alive]
        surpassed[alive == best] = False
        alive = alive[~surpassed]
    return left[alive]
