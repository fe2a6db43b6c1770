"""Which worker computes which request, within the free slots of one round.

Requests come in the policy's order. Each takes the seat with the least key of the policy among
those that serve its model, have its memory, a free slot, and finish in time at p90 (see
`scheduler.seats`). Load is this router's own: in flight at the start of the round plus what the
round has reserved, never a polled figure.

A worker whose lease on the request failed is passed over while another one can still do it: one
that is merely busy is waited for as long as the deadline allows, then a tried one is used again.

Requests that no free seat is left for are never looked at one by one: seats fill up but never free
up within a round, so once a group of requests (cell, own workers only) has found nobody for a
budget, no smaller budget needs to be tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler import flow
from scheduler.admission import Admission
from scheduler.cells import Cells
from scheduler.gate import Gate
from scheduler.kinds import Floats, Ints, mean_ms, model_of, p90_ms, sigma_class_of, tokens_of
from scheduler.model import Block, PendingRequest
from scheduler.openings import least_open_p90
from scheduler.pending import PendingTable
from scheduler.policies.protocol import Policy
from scheduler.probation import Caps
from scheduler.seats import NOBODY, Barred, Group, Kind, Loads
from scheduler.workers import ModelSeats, WorkerTable

_CHUNK = 2048
_NOT_YET = -1.0
_FEW = 64
"""As many open seats of a model are gone through again after each search in vain."""


@dataclass(slots=True)
class Assignments:
    """What was given out, in the order of scores; rows are positions among the admitted."""

    taken: list[tuple[int, int, int, float, float]] = field(default_factory=list)
    """Row, rank of the worker, its slots that were taken already, mean and p90 in ms."""
    exact: bool = False
    """Whether all was decided at once, by minimum-cost flow."""
    waiting: dict[int, int] = field(default_factory=dict)
    """Requests kept for a busy worker that has not failed on them, and how many have."""


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
        limited, without caps nobody is on probation."""
        rows = admission.admitted
        self._cells, self._workers, self._block = cells, workers, block
        self._policies, self._gate, self._caps = policies, gate, caps
        self._arm = np.zeros(len(rows), np.int64) if arm is None else arm
        self._most = workers.slots if caps is None else caps.most
        self._priced_out: dict[int, tuple[int, int]] = {}
        """By group, a budget and a fee for which only workers on probation are left, who may not
        have so much in hand: no smaller budget and no higher fee needs to be tried again."""
        self._slots = admission.slots[rows]
        self._requests = table.request
        self._tried = table.tried[self._slots]
        self._budget_ms = admission.budget_ms[rows]
        self._group = admission.cell[rows] * 2 + admission.owned_only[rows]
        self._used: list[int] = workers.in_flight.tolist()
        self._used_column: Ints = workers.in_flight.copy()
        """The same twice: one for single looks, one for all at once."""
        self._limits: list[int] = self._most.tolist()
        self._memory_mb: list[int] = workers.memory_mb.tolist()
        self._hopeless = np.full(2 * len(cells), _NOT_YET)
        """By group, the largest budget that found nobody."""
        kinds = cells.kind(np.arange(len(cells)))
        self._cell_kind: list[int] = kinds.tolist()
        self._cell_model = model_of(kinds)
        self._cell_tokens: Floats = tokens_of(kinds)
        self._cell_sigma = sigma_class_of(kinds)
        self._index = {model: at for at, model in enumerate(table.models)}
        self._seats: list[ModelSeats | None] = [workers.seats.get(m) for m in table.models]
        self._asked: dict[int, Ints] = {}
        """By model, the cells that requests are in."""
        self._least_mb: dict[int, int] = {}
        """By model, the least memory that any request asks for; seats with less are of no use."""
        self._free: dict[int, int] = {}
        """By model, open seats of use that are left."""
        self._loads: list[list[Loads]] = [[] for _ in self._seats]
        """By model, one a policy, once one of its seats is looked for."""
        self._models: dict[int, list[int]] = {}
        """By rank, the models that are asked for and that it serves."""
        self._filled: set[int] = set()
        """Models of which a seat has filled up since their groups were last gone through."""
        self._kinds: dict[tuple[int, int], Kind] = {}
        self._groups: list[dict[int, Group]] = [{} for _ in policies]
        self._suiting: dict[tuple[int, int, int], NDArray[np.bool_]] = {}
        """By model, memory and whether only own workers will do: which open seats suit."""

    def run(self, ranking: Ints, flow_arcs: int = 0) -> Assignments:
        """Serves the requests in that order. Raises InvalidKeys.

        Exactly where nothing limits or splits the round, nothing is drawn, and a flow takes at most
        so many arcs (`scheduler.flow`).
        """
        self._count_open_seats()
        if flow_arcs and self._is_plain():
            exact = self._exact(ranking, flow_arcs)
            if exact is not None:
                return exact
        result = Assignments()
        ranking = ranking[self._budget_ms[ranking] > self._hopeless[self._group[ranking]]]
        for first in range(0, len(ranking), _CHUNK):
            chunk = ranking[first : first + _CHUNK]
            alive = chunk[self._budget_ms[chunk] > self._hopeless[self._group[chunk]]]
            if self._gate is not None:
                alive = self._gate.passing(alive)
            if len(alive):
                self._serve(alive, result)
        if self._gate is not None:
            self._gate.finish()
        return result

    def _serve(self, rows: Ints, result: Assignments) -> None:
        hopeless, gate = self._hopeless, self._gate
        capped = frozenset() if self._caps is None else self._caps.ranks
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
            if budget_ms <= hopeless[name] or self._is_priced_out(row, name, budget_ms):
                continue
            if risk and gate is not None and not gate.may_go(row):
                continue
            group = self._group_of(name, arm)
            if tried:
                at = self._retry(row, name, group, budget_ms, sampled[arm], result)
            elif sampled[arm]:
                at = self._draw(row, group, budget_ms, (), sampled[arm])
            else:
                at = group.first(budget_ms)
                if at != NOBODY and group.rank[at] in capped:
                    at = self._trusted(row, group, at, budget_ms)
            if at == NOBODY:
                if row not in result.waiting:
                    self._give_up(name, group, budget_ms)
                continue
            self._take(group, at, row, result)
            if risk and gate is not None:
                gate.take(row)
            if self._caps is not None and group.rank[at] in capped:
                self._caps.take(group.rank[at], self._request(row).fee_wei)

    def _is_priced_out(self, row: int, name: int, budget_ms: int) -> bool:
        known = self._priced_out.get(name) if self._priced_out else None
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
        loads = group.kind.loads
        return self._caps.lack_room(loads.seats.rank[loads.at], self._request(row).fee_wei)

    def _give_up(self, name: int, group: Group, budget_ms: int) -> None:
        """Nobody was found: keeps in mind for whom it is not worth looking again."""
        if self._caps is not None:
            barred = group.in_time(budget_ms)
            if len(barred):
                self._priced_out[name] = budget_ms, self._caps.beyond_all(barred)
                return
        self._hopeless[name] = budget_ms
        self._look_again(int(self._cell_model[name // 2]))

    def held_by_probation(self, rows: Ints) -> tuple[Ints, Ints]:
        """Those of the rows that a worker on probation could serve if it were trusted, and how
        many such workers their model has."""
        if self._caps is None or not len(rows):
            return rows[:0], rows[:0]
        spare = np.zeros(len(self._most), np.bool_)
        spare[self._caps.capped] = True
        spare &= self._workers.available & (self._used_column < self._workers.slots)
        least_ms = np.full(2 * len(self._cells), np.inf)
        count = np.zeros(2 * len(self._cells), np.int64)
        for model, asked in self._asked.items():
            seats = self._model_seats(model)
            number = int(np.count_nonzero(spare[seats.rank]))
            if number:  # none of them is the operator's own
                bound, _ = least_open_p90(self._cells, asked, seats, self._workers, spare)
                least_ms[2 * asked], count[2 * asked] = bound, number
        group = self._group[rows]
        held = least_ms[group] <= self._budget_ms[rows]
        return rows[held], count[group[held]]

    def _exact(self, ranking: Ints, max_arcs: int) -> Assignments | None:
        """All at once; None if that takes more arcs, or OR-tools is not there."""
        rows: list[int] = ranking[
            self._budget_ms[ranking] > self._hopeless[self._group[ranking]]
        ].tolist()
        if 2 * len(rows) > max_arcs or not flow.available():
            return None
        result = Assignments(exact=True)
        works: list[dict[int, float]] = []
        loads: dict[int, list[float]] = {}
        arcs = 2 * len(rows)
        for row in rows:
            name, budget_ms = int(self._group[row]), int(self._budget_ms[row])
            group = self._group_of(name)
            works.append(self._works(row, name, group, budget_ms, result))
            for rank in works[-1]:
                if rank not in loads:
                    loads[rank] = group.kind.loads.ahead(rank, self._used[rank])
                arcs += len(loads[rank])
            if arcs > max_arcs:
                return None
        chosen = flow.assign(works, loads, max_arcs)
        if chosen is None:
            return None
        for row, given in zip(rows, chosen, strict=True):
            if given is not None:
                group = self._group_of(int(self._group[row]))
                self._take(group, group.kind.loads.local((given,))[0], row, result)
        return result

    def _works(
        self, row: int, name: int, group: Group, budget_ms: int, result: Assignments
    ) -> dict[int, float]:
        """By rank, the work of a request where it could be served; where it was not tried yet, if
        there are such workers or one is worth waiting for."""
        if not self._tried[row]:
            return group.works(budget_ms, ())
        failed = self._request(row).tried
        tried = self._workers.ranks(failed)
        untried = group.works(budget_ms, tried)
        if untried:
            return untried
        if self._worth_waiting(name, group.kind, budget_ms, tried):
            result.waiting[row] = len(failed)
            return {}
        return group.works(budget_ms, ())

    def _is_plain(self) -> bool:
        return (
            self._gate is None
            and self._caps is None
            and len(self._policies) == 1
            and not self._policies[0].sampled
        )

    def _group_of(self, name: int, arm: int = 0) -> Group:
        group = self._groups[arm].get(name)
        if group is None:
            group = self._groups[arm][name] = self._open(name, arm)
        return group

    def _take(self, group: Group, at: int, row: int, result: Assignments) -> None:
        rank = group.rank[at]
        used = self._used[rank]
        result.taken.append((row, rank, used, group.mean_ms[at], group.p90_ms[at]))
        used += 1
        self._used[rank] = self._used_column[rank] = used
        full = used >= self._limits[rank]
        models = self._models.get(rank)
        if models is None:
            models = self._models[rank] = [
                model  # that requests ask for
                for name in self._workers.models_of(rank)
                if (model := self._index.get(name, -1)) in self._asked
            ]
        for model in models:
            for loads in self._loads[model]:
                loads.reserve(rank, used, full=full)
            if full and self._memory_mb[rank] >= self._least_mb[model]:
                self._free[model] -= 1
                self._filled.add(model)
                if not self._free[model]:
                    self._hopeless[self._groups_of(model)] = np.inf

    def _retry(
        self,
        row: int,
        name: int,
        group: Group,
        budget_ms: int,
        sampled: int,
        result: Assignments,
    ) -> int:
        failed = self._request(row).tried
        tried = self._workers.ranks(failed)
        at = self._draw(row, group, budget_ms, tried, sampled)
        if at != NOBODY:
            return at
        if self._worth_waiting(name, group.kind, budget_ms, tried):
            result.waiting[row] = len(failed)
            return NOBODY
        return self._draw(row, group, budget_ms, (), sampled)

    def _draw(
        self, row: int, group: Group, budget_ms: int, tried: Collection[int], draws: int
    ) -> int:
        barred = self._barred(row, group)
        if not draws:
            return group.but(budget_ms, tried, barred)
        key = self._request(row).key
        return group.drawn(budget_ms, tried, barred, draws, self._block.hash, key)

    def _open(self, name: int, arm: int) -> Group:
        cell, owned_only = divmod(name, 2)
        model = int(self._cell_model[cell])
        seats = self._model_seats(model)
        kind = self._kinds.get((self._cell_kind[cell], arm))
        if kind is None:
            if not self._loads[model]:
                turn_from, least_mb = self._block.number, self._least_mb[model]
                self._loads[model] = [
                    Loads(
                        seats,
                        self._workers,
                        self._most,
                        self._used_column,
                        policy,
                        turn_from,
                        least_mb,
                    )
                    for policy in self._policies
                ]
            kind = self._kinds[self._cell_kind[cell], arm] = Kind(
                self._loads[model][arm],
                float(self._cell_tokens[cell]),
                int(self._cell_sigma[cell]),
                self._policies[arm],
            )
        least_mb = self._cells.least_memory_mb(cell, seats)
        if not owned_only and least_mb <= self._least_mb[model]:
            return Group(kind, None)
        question = (model, least_mb, owned_only)
        suits = self._suiting.get(question)
        if suits is None:
            suits = self._suiting[question] = self._suits(
                seats, least_mb, owned_only=bool(owned_only)
            )[kind.loads.at]
        return Group(kind, suits)

    def _suits(self, seats: ModelSeats, least_mb: int, *, owned_only: bool) -> NDArray[np.bool_]:
        suits = seats.memory_mb >= least_mb
        if owned_only:
            suits &= self._workers.owned[seats.rank]
        return suits

    def _worth_waiting(self, name: int, kind: Kind, budget_ms: int, tried: Collection[int]) -> bool:
        """Whether an untried worker that is busy now could still finish before the deadline.

        A slot of a busy worker comes free after mean / slots on average.
        """
        cell, owned_only = divmod(name, 2)
        seats, workers = kind.loads.seats, self._workers
        rank = seats.rank
        least_mb = self._cells.least_memory_mb(cell, seats)
        suits = self._suits(seats, least_mb, owned_only=bool(owned_only))
        suits &= workers.available[rank] & (workers.slots[rank] > 0)
        suits &= ~np.isin(rank, np.array(list(tried), np.int64))
        mean = mean_ms(seats.base_ms, seats.per_token_ms, float(self._cell_tokens[cell]))
        p90 = p90_ms(mean, seats.factors(int(self._cell_sigma[cell])))
        waited = p90[suits] + mean[suits] / workers.slots[rank[suits]]
        return bool((waited <= budget_ms).any())

    def _count_open_seats(self) -> None:
        """Opens the groups of requests that an open seat suits, and no others."""
        workers = self._workers
        open_ = workers.available & (workers.in_flight < self._most)
        asked = np.flatnonzero(np.bincount(self._group // 2, minlength=len(self._cell_model)))
        asked = asked[np.argsort(self._cell_model[asked], kind="stable")]
        for part in np.split(asked, np.flatnonzero(np.diff(self._cell_model[asked])) + 1):
            if not len(part):
                continue
            model = int(self._cell_model[part[0]])
            seats = self._model_seats(model)
            self._asked[model] = part
            self._least_mb[model] = least_mb = int(self._cells.memory_mb(part, seats).min())
            useful = open_[seats.rank] & (seats.memory_mb >= least_mb)
            self._free[model] = free = int(np.count_nonzero(useful))
            if free:
                self._bound(model, part, open_)
            else:
                self._hopeless[self._groups_of(model)] = np.inf

    def _look_again(self, model: int) -> None:
        """After a search in vain: what has filled up since may leave others without hope too."""
        if model in self._filled and self._free[model] <= _FEW:
            self._filled.remove(model)
            workers = self._workers
            open_ = workers.available & (self._used_column < self._most)
            self._bound(model, self._asked[model], open_)

    def _bound(self, model: int, asked: Ints, open_: NDArray[np.bool_]) -> None:
        """Raises the bounds of a model's groups to what its open seats can do."""
        seats = self._model_seats(model)
        bounds = least_open_p90(self._cells, asked, seats, self._workers, open_)
        for own, p90_ms_ in enumerate(bounds):
            # A budget as long as the p90 is enough; the number before infinity is as good as it.
            bound = np.where(np.isinf(p90_ms_), np.inf, np.nextafter(p90_ms_, -np.inf))
            self._hopeless[2 * asked + own] = np.maximum(self._hopeless[2 * asked + own], bound)

    def _groups_of(self, model: int) -> Ints:
        asked = self._asked[model]
        return np.concatenate((2 * asked, 2 * asked + 1))

    def _request(self, row: int) -> PendingRequest:
        request: PendingRequest = self._requests[self._slots[row]]
        return request

    def _model_seats(self, model: int) -> ModelSeats:
        seats = self._seats[model]
        if seats is None:
            raise AssertionError("a request of a model without workers was admitted")
        return seats
