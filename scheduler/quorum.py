"""Which owners could answer a request that wants the same answer from several of them.

The workers of one owner count once: he would agree with himself. So of each owner that has not
answered yet the fastest worker counts, and the request is in time when as many owners as it still
lacks are, at p90.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from scheduler.cells import Cells
from scheduler.kinds import Ints, mean_ms, p90_ms, sigma_class_of, tokens_of
from scheduler.model import PendingRequest
from scheduler.workers import WorkerTable


@dataclass(frozen=True, slots=True)
class Answering:
    """What the registered workers could do for one request."""

    is_short: bool
    """Whether fewer owners are left than it lacks."""
    p90_ms: float
    """Of the slowest owner whom it cannot do without; infinite where it is short."""
    own_signers: int
    """How many of its workers are the operator's own, whichever of all agree."""


class Owners:
    """Of one round."""

    def __init__(self, cells: Cells, workers: WorkerTable) -> None:
        self._cells, self._workers = cells, workers
        views = workers.views()
        codes: dict[bytes, int] = {}
        self._owner: Ints = np.array(
            [codes.setdefault(view.owner, len(codes)) if view.owner else -1 for view in views],
            np.int64,
        )
        """By rank; -1 where nobody is paid for it."""
        self._found: dict[tuple[int, int, int, frozenset[bytes]], Answering] = {}

    def of(self, request: PendingRequest, cell: int) -> Answering:
        """`cell` is the request's, which some worker serves."""
        lacking = max(request.quorum - request.agreeing, 1)
        asked = (cell, request.quorum, lacking, frozenset[bytes](request.excluded))
        found = self._found.get(asked)
        if found is None:
            found = self._found[asked] = self._look(request, cell, lacking)
        return found

    def _look(self, request: PendingRequest, cell: int, lacking: int) -> Answering:
        seats = self._workers.seats[request.model]
        kind = self._cells.kind(np.array([cell]))
        mean = mean_ms(seats.base_ms, seats.per_token_ms, float(tokens_of(kind)[0]))
        times_ms = p90_ms(mean, seats.factors(int(sigma_class_of(kind)[0])))
        serve = (seats.memory_mb >= self._cells.needed_mb[cell]) & (self._owner[seats.rank] >= 0)
        ranks, times_ms = seats.rank[serve], times_ms[serve]
        foreign = len(set(self._owner[ranks[~self._workers.owned[ranks]]].tolist()))
        own_signers = max(0, request.quorum - foreign)
        excluded = np.array(sorted(self._workers.ranks(request.excluded)), np.int64)
        left = ~np.isin(ranks, excluded)
        order = np.argsort(times_ms[left], kind="stable")
        _, first = np.unique(self._owner[ranks[left]][order], return_index=True)
        if len(first) < lacking:
            return Answering(True, inf, own_signers)
        best_ms = np.sort(times_ms[left][order][first])
        return Answering(False, float(best_ms[lacking - 1]), own_signers)
