"""The least p90 on a seat that is open when a round begins, by cell: below it nobody is found.

Near saturation hardly any seat is open, and those that are may suit hardly any request. So groups
of requests that none of them suits are left out before any of their requests is looked at.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.cells import Cells
from scheduler.kinds import Floats, Ints, mean_ms, p90_ms, sigma_class_of, tokens_of
from scheduler.workers import ModelSeats, WorkerTable


def least_open_p90(
    cells: Cells,
    asked: Ints,
    seats: ModelSeats,
    workers: WorkerTable,
    open_: NDArray[np.bool_],
) -> tuple[Floats, Floats]:
    """For each of the asked cells of one model: on any open seat, and on the operator's own.

    Infinite where none suits. A lower bound, if most of the seats that have the memory are open.
    `open_` is by rank.
    """
    needed_mb = cells.memory_mb(asked, seats)
    of_use = seats.by_memory[seats.memory_mb[seats.by_memory] >= needed_mb.min()]
    order = of_use[open_[seats.rank[of_use]]]
    if 2 * len(order) >= len(of_use):
        return cells.available_p90_ms[asked], cells.available_owned_p90_ms[asked]
    if not len(order):
        nobody = np.full(len(asked), np.inf)
        return nobody, nobody
    kinds, column = np.unique(cells.kind(asked), return_inverse=True)
    mean = mean_ms(
        seats.base_ms[order][:, None], seats.per_token_ms[order][:, None], tokens_of(kinds)
    )
    classes, of_kind = np.unique(sigma_class_of(kinds), return_inverse=True)
    factors = np.stack([seats.factors(int(one))[order] for one in classes], axis=1)
    p90 = p90_ms(mean, factors[:, of_kind])
    least = np.minimum.accumulate(p90, axis=0)
    owned = workers.owned[seats.rank[order]]
    least_owned = np.minimum.accumulate(np.where(owned[:, None], p90, np.inf), axis=0)
    falling_mb = seats.memory_mb[order]
    fitting = np.searchsorted(-falling_mb, -needed_mb, side="right")
    last = np.maximum(fitting - 1, 0)
    nobody_fits = fitting == 0
    return (
        np.where(nobody_fits, np.inf, least[last, column]),
        np.where(nobody_fits, np.inf, least_owned[last, column]),
    )
