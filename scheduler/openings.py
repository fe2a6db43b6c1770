"""The least p90 that any of a few seats can offer, by cell: below it nobody is found among them."""

from __future__ import annotations

import numpy as np

from scheduler.cells import Cells
from scheduler.kinds import Floats, Ints, mean_ms, p90_ms, sigma_class_of, tokens_of
from scheduler.workers import WorkerTable

_PAIRS_AT_ONCE = 1 << 17


def least_p90(
    cells: Cells, asked: Ints, model: Ints, workers: WorkerTable, seats: Ints
) -> tuple[Floats, Floats]:
    """For each of the asked cells: on any of the seats, and on those of the operator's own workers.

    Infinite where none suits. `asked` are in the order of their models, `model` is by cell, and
    `seats` are among all.
    """
    found = np.full((2, len(asked)), np.inf)
    if not len(asked):
        return found[0], found[1]
    every = workers.all_seats
    kinds, models, needed_mb = cells.kind(asked), model[asked], cells.needed_mb[asked]
    tokens = tokens_of(kinds)
    classes, class_of = np.unique(sigma_class_of(kinds), return_inverse=True)
    first = np.searchsorted(models, every.model[seats])
    number = np.searchsorted(models, every.model[seats], side="right") - first
    step = max(1, _PAIRS_AT_ONCE // int(number.max(initial=1)))
    for begin in range(0, len(seats), step):
        at, times = seats[begin : begin + step], number[begin : begin + step]
        before = np.cumsum(times) - times
        # Pairs of a seat and a cell of its model: positions among these seats, and among the cells.
        seat = np.repeat(np.arange(len(at)), times)
        cell = np.arange(len(seat)) + np.repeat(first[begin : begin + step] - before, times)
        rank = every.rank[at]
        suits = workers.memory_mb[rank][seat] >= needed_mb[cell]
        if not suits.all():
            seat, cell = seat[suits], cell[suits]
        mean = mean_ms(every.base_ms[at][seat], every.per_token_ms[at][seat], tokens[cell])
        factors = np.stack([every.factors(at, int(one)) for one in classes])
        p90 = p90_ms(mean, factors[class_of[cell], seat])
        np.minimum.at(found[0], cell, p90)
        own = workers.owned[rank][seat]
        np.minimum.at(found[1], cell[own], p90[own])
    return found[0], found[1]
