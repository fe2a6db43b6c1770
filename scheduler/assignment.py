"""Which worker computes which request, within the free slots of one round.

Requests come in the policy's order. Each takes the seat with the least key of the policy among
those that serve its model, have its memory, a free slot, and finish in time at p90 (see
`scheduler.seats`). Load is this router's own: in flight at the start of the round plus what the
round has reserved, never a polled figure.

A worker whose lease on the request failed is passed over while another one can still do it: one
that is merely busy is waited for as long as the deadline allows, then a tried one is used again.
Those that are excluded, since they or their owner have answered, are never used.

Requests that no free seat is left for are never looked at one by one (see `scheduler.prospects`),
nor are they put in order: a round sorts the first few hundred, then more only if seats are left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler import flow
from scheduler.admission import Admission
from scheduler.cells import Cells
from scheduler.gate import Gate
from scheduler.groups import Groups
from scheduler.kinds import Floats, Ints
from scheduler.model import Block, PendingRequest
from scheduler.pending import PendingTable
from scheduler.policies.protocol import Policy
from scheduler.probation import Caps
from scheduler.prospects import Prospects
from scheduler.seats import NOBODY, Barred, Group
from scheduler.workers import WorkerTable

_FIRST = 256
"""So many requests are put in order first; each time after, some times as many."""
_GROWTH = 4
_CHUNK = 2048


@dataclass(slots=True)
class Assignments:
    """What was given out, in the order of keys; rows are positions among the admitted."""

    rows: Ints
    ranks: Ints
    """Of the workers."""
    used: Ints
    """Slots of the worker that were taken already."""
    mean_ms: Floats
    p90_ms: Floats
    waiting: dict[int, int] = field(default_factory=dict)
    """Requests kept for a busy worker that has not failed on them, and how many have."""
    exact: bool = False
    """Whether all was decided at once, by minimum-cost flow."""


NOTHING_GIVEN = Assignments(
    np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
)


class Assigner:
    """The assignments of one round."""

    def __init__(
        self,
        table: PendingTable,
        cells: Cells,
        workers: WorkerTable,
        admission: Admission,
        policies: Sequence[Policy],
        block: Block,
        *,
        arm: Ints | None = None,
        gate: Gate | None = None,
        caps: Caps | None = None,
    ) -> None:
        """`arm` is the index of each row's policy, the first without it. Without a gate nothing is
        limited, without caps nobody is on probation. Raises InvalidKeys."""
        rows = admission.admitted
        self._workers, self._block = workers, block
        self._policies, self._gate, self._caps = policies, gate, caps
        self._arm = np.zeros(len(rows), np.int64) if arm is None else arm
        most = workers.slots if caps is None else caps.most
        self._priced_out: dict[int, tuple[int, int]] = {}
        """By group, a budget and a fee for which only workers on probation are left, who may not
        have so much in hand: no smaller budget and no higher fee needs to be tried again."""
        self._slots = admission.slots[rows]
        self._requests = table.request
        self._tried = table.tried[self._slots]
        self._budget_ms = admission.budget_ms[rows]
        self._group = admission.cell[rows] * 2 + admission.owned_only[rows]
        self._prospects = Prospects(table, cells, workers, self._group, most)
        self._groups = Groups(cells, workers, policies, self._prospects, most, block)
        self._used: list[int] = workers.in_flight.tolist()
        """As in `Prospects`: this one for single looks, that one for all at once."""
        self._limits: list[int] = most.tolist()
        self._rows: list[int] = []
        """What was given out so far, as the two that follow."""
        self._ranks: list[int] = []
        self._before: list[int] = []
        self._waiting: dict[int, int] = {}

    def run(self, keys: Floats, flow_arcs: int = 0) -> Assignments:
        """Serves the requests by rising key, equal ones by row. Raises InvalidKeys.

        Exactly where nothing limits or splits the round, nothing is drawn, and a flow takes at most
        so many arcs (`scheduler.flow`).
        """
        exact = bool(flow_arcs) and self._is_plain() and self._exact(keys, flow_arcs)
        if not exact:
            left, size = self._hopeful(np.arange(len(keys))), _FIRST
            while len(left):
                first, left = _least(keys, left, size)
                self._serve_all(first)
                left, size = self._hopeful(left), size * _GROWTH
        if self._gate is not None:
            self._gate.finish()
        rows = np.array(self._rows, np.int64)
        ranks = np.array(self._ranks, np.int64)
        mean_ms, p90_ms = self._groups.times_ms(self._group[rows], ranks)
        used = np.array(self._before, np.int64)
        return Assignments(rows, ranks, used, mean_ms, p90_ms, self._waiting, exact)

    def held_by_probation(self, rows: Ints) -> tuple[Ints, Ints]:
        """Those of the rows that a worker on probation could serve if it were trusted, and how
        many such workers their model has."""
        if self._caps is None or not len(rows):
            return rows[:0], rows[:0]
        capped = np.zeros(len(self._workers), np.bool_)
        capped[self._caps.capped] = True
        least_ms, number = self._prospects.spared(
            capped & self._workers.available, self._group[rows]
        )
        held = least_ms <= self._budget_ms[rows]
        return rows[held], number[held]

    def _hopeful(self, rows: Ints) -> Ints:
        hopeful: Ints = rows[self._budget_ms[rows] > self._prospects.hopeless[self._group[rows]]]
        return hopeful

    def _serve_all(self, rows: Ints) -> None:
        for first in range(0, len(rows), _CHUNK):
            alive = self._hopeful(rows[first : first + _CHUNK])
            if self._gate is not None:
                alive = self._gate.passing(alive)
            if len(alive):
                self._serve(alive)

    def _serve(self, rows: Ints) -> None:
        gate, caps, groups = self._gate, self._caps, self._groups
        capped = frozenset() if caps is None else caps.ranks
        hopeless_ms = self._prospects.hopeless.item
        sampled = [policy.sampled for policy in self._policies]
        risky = np.zeros(len(rows), np.bool_) if gate is None else gate.risky[rows]
        for row, name, budget_ms, tried, arm, risk in zip(
            rows.tolist(),
            self._group[rows].tolist(),
            self._budget_ms[rows].tolist(),
            self._tried[rows].tolist(),
            self._arm[rows].tolist(),
            risky.tolist(),
            strict=True,
        ):
            if budget_ms <= hopeless_ms(name):
                continue
            if self._priced_out and self._is_priced_out(row, name, budget_ms):
                continue
            if risk and gate is not None and not gate.may_go(row):
                continue
            group = groups.of(name, arm)
            if tried:
                at = self._retry(row, name, group, budget_ms, sampled[arm])
            elif sampled[arm]:
                at = self._draw(row, group, budget_ms, (), sampled[arm])
            else:
                at = group.first(budget_ms)
                if at != NOBODY and capped and group.rank[at] in capped:
                    at = self._trusted(row, group, at, budget_ms)
            if at == NOBODY:
                # What those who are excluded could have done says nothing of others.
                if row not in self._waiting and not (tried and self._request(row).excluded):
                    self._give_up(name, group, budget_ms)
                continue
            rank = group.rank[at]
            self._take(rank, row)
            if risk and gate is not None:
                gate.take(row)
            if caps is not None and rank in capped:
                caps.take(rank, self._request(row).fee_wei)

    def _is_priced_out(self, row: int, name: int, budget_ms: int) -> bool:
        known = self._priced_out.get(name)
        if known is None or budget_ms > known[0]:
            return False
        return self._request(row).fee_wei >= known[1]

    def _trusted(self, row: int, group: Group, at: int, budget_ms: int) -> int:
        """That seat, or the best one whose worker may have so much in hand."""
        fee_wei = self._request(row).fee_wei
        if self._caps is None or self._caps.fits(group.rank[at], fee_wei):
            return at
        return group.but(budget_ms, (), self._barred(row, group))

    def _barred(self, row: int, group: Group) -> Barred:
        if self._caps is None:
            return None
        ranks = group.seats.seats.rank[group.seats.at]
        return self._caps.lack_room(ranks, self._request(row).fee_wei)

    def _give_up(self, name: int, group: Group, budget_ms: int) -> None:
        """Nobody was found: keeps in mind for whom it is not worth looking again."""
        if self._caps is not None:
            barred = group.in_time(budget_ms)
            if len(barred):
                self._priced_out[name] = budget_ms, self._caps.beyond_all(barred)
                return
        self._prospects.in_vain(name, budget_ms)

    def _exact(self, keys: Floats, max_arcs: int) -> bool:
        """All at once; False if that takes more arcs, or OR-tools is not there."""
        hopeful = self._hopeful(np.arange(len(keys)))
        if 2 * len(hopeful) > max_arcs or not flow.available():
            return False
        rows: list[int] = hopeful[np.argsort(keys[hopeful], kind="stable")].tolist()
        works: list[dict[int, float]] = []
        loads: dict[int, list[float]] = {}
        waiting: dict[int, int] = {}
        arcs = 2 * len(rows)
        for row in rows:
            works.append(self._works(row, waiting))
            for rank in works[-1]:
                if rank not in loads:
                    loads[rank] = self._groups.loads[0].ahead(rank, self._used[rank])
                arcs += len(loads[rank])
            if arcs > max_arcs:
                return False
        chosen = flow.assign(works, loads, max_arcs)
        if chosen is None:
            return False
        for row, given in zip(rows, chosen, strict=True):
            if given is not None:
                self._take(given, row)
        self._waiting = waiting
        return True

    def _works(self, row: int, waiting: dict[int, int]) -> dict[int, float]:
        """By rank, the work of a request where it could be served; where it was not tried yet, if
        there are such workers or one is worth waiting for."""
        name, budget_ms = int(self._group[row]), int(self._budget_ms[row])
        group = self._groups.of(name)
        if not self._tried[row]:
            return group.works(budget_ms, ())
        failed, excluded, tried = self._passed_over(row)
        untried = group.works(budget_ms, tried)
        if untried or not failed:
            return untried
        if self._groups.worth_waiting(name, budget_ms, tried):
            waiting[row] = failed
            return {}
        return group.works(budget_ms, excluded)

    def _is_plain(self) -> bool:
        return (
            self._gate is None
            and self._caps is None
            and len(self._policies) == 1
            and not self._policies[0].sampled
        )

    def _take(self, rank: int, row: int) -> None:
        used = self._used[rank]
        self._rows.append(row)
        self._ranks.append(rank)
        self._before.append(used)
        used += 1
        self._used[rank] = self._prospects.used[rank] = used
        self._groups.reserve(rank, used)
        if used >= self._limits[rank]:
            self._prospects.fill(rank)

    def _retry(self, row: int, name: int, group: Group, budget_ms: int, sampled: int) -> int:
        failed, excluded, tried = self._passed_over(row)
        at = self._draw(row, group, budget_ms, tried, sampled)
        if at != NOBODY or not failed:
            return at
        if self._groups.worth_waiting(name, budget_ms, tried):
            self._waiting[row] = failed
            return NOBODY
        return self._draw(row, group, budget_ms, excluded, sampled)

    def _passed_over(self, row: int) -> tuple[int, frozenset[int], frozenset[int]]:
        """How many failed on it; the ranks of those that are excluded, and of these and those."""
        request = self._request(row)
        excluded = self._workers.ranks(request.excluded)
        return len(request.tried), excluded, excluded | self._workers.ranks(request.tried)

    def _draw(
        self, row: int, group: Group, budget_ms: int, tried: Collection[int], draws: int
    ) -> int:
        barred = self._barred(row, group)
        if not draws:
            return group.but(budget_ms, tried, barred)
        key = self._request(row).key
        return group.drawn(budget_ms, tried, barred, draws, self._block.hash, key)

    def _request(self, row: int) -> PendingRequest:
        request: PendingRequest = self._requests[self._slots[row]]
        return request


def _least(keys: Floats, rows: Ints, number: int) -> tuple[Ints, Ints]:
    """The rows with the so many least keys and all that are equal to the last of these, by rising
    key; and the others."""
    values = keys[rows]
    others = rows[:0]
    if len(rows) > number:
        is_first = values <= np.partition(values, number - 1)[number - 1]
        rows, others, values = rows[is_first], rows[~is_first], values[is_first]
    return rows[np.argsort(values, kind="stable")], others
