"""The operator's limits in one round: before requests are served, while they are, and after."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.admission import CODES, Admission
from scheduler.allowance import UNUSED
from scheduler.assignment import Assigner, Assignments
from scheduler.cover import EDGE, Cover
from scheduler.fairness import bands, carried, fair_order
from scheduler.gate import Gate
from scheduler.kinds import Floats, Ints
from scheduler.model import Moment, PendingRequest, Reason
from scheduler.order import stable_order
from scheduler.pending import PendingTable
from scheduler.policies import OrderView


class Limited:
    """Rows are positions among the admitted requests."""

    def __init__(
        self,
        table: PendingTable,
        admission: Admission,
        cover: Cover,
        moment: Moment,
        view: OrderView,
    ) -> None:
        limits, taken = moment.rules.limits, moment.taken
        self._limits, self._taken = limits, taken
        self._admitted = admission.admitted
        self._tenant = view.tenant
        self._band: Ints | None = None
        self._deficit = self._quantum = self._cost = np.zeros(0)
        self.deficits: dict[bytes, float] = {}
        """What each tenant is owed after the round; empty unless shares are fair."""
        self.reasons: NDArray[np.uint8] = admission.reason
        """Codes of all requests of the round, in the order of keys."""
        self.used: Floats = np.full(len(self._tenant), -1.0)
        self.limit: Floats = np.full(len(self._tenant), -1.0)
        self.gate: Gate | None = None
        self.holds_all = 0 < limits.unposted <= taken.unposted
        """Whether so many results wait to be posted that nothing more is to be computed."""
        if not (limits.of_tenants or limits.fair_quantum_tokens or taken.budgets):
            return
        slots = admission.slots[self._admitted]
        first = _first_of_each(self._tenant)
        self._tenants = [table.tenants[one] for one in table.tenant[slots[first]].tolist()]
        """By the index that the view has for them."""
        cost = table.cost_tokens[slots]
        self._cost = cost.astype(np.float64)
        if limits.of_tenants or taken.budgets:

            def need_wei(row: int) -> int:
                request: PendingRequest = table.request[slots[row]]
                return cover.cost_wei(cover.delivery_gas_of(request), batchable=request.batchable)

            self.gate = Gate(
                limits,
                taken,
                tenants=self._tenants,
                tenant=view.tenant,
                cost=cost,
                need_wei=need_wei,
                most_wei=float(view.gas_cost_wei.sum()) * (1.0 + EDGE) + len(slots),
                now_s=moment.now_s,
            )

    def order(self, keys: Floats) -> Floats:
        """The policy's keys, the least of which is served first, or others by which tenants take
        turns where shares are fair."""
        quantum = self._limits.fair_quantum_tokens
        if not quantum:
            return keys
        ranked = stable_order(keys)
        quotas = [self._limits.quota_of(one) for one in self._tenants]
        uses = [self._taken.uses.get(one, UNUSED) for one in self._tenants]
        self._quantum = np.array([quota.weight * quantum for quota in quotas], np.float64)
        self._deficit = np.array([use.deficit_tokens for use in uses], np.float64)
        self._band = bands(ranked, self._tenant, self._cost, self._deficit, self._quantum)
        place = np.empty(len(ranked))
        place[fair_order(ranked, self._band)] = np.arange(len(ranked))
        return place

    def keep(self, assigner: Assigner, reasons: NDArray[np.uint8], given: Assignments) -> None:
        """Takes the reasons of the round, and puts those of the limits in."""
        self.reasons = reasons
        if self.holds_all:
            rows = np.flatnonzero(reasons[self._admitted] == CODES[Reason.NO_FREE_SLOT])
            reasons[self._admitted[rows]] = CODES[Reason.POSTING_BEHIND]
            self.used[rows], self.limit[rows] = self._taken.unposted, self._limits.unposted
            return
        if self.gate is not None:
            kept = np.flatnonzero(self.gate.reason)
            reasons[self._admitted[kept]] = self.gate.reason[kept]
            self.used, self.limit = self.gate.used, self.gate.limit
        ours = reasons[self._admitted]
        rows, workers = assigner.held_by_probation(
            np.flatnonzero(ours == CODES[Reason.NO_FREE_SLOT])
        )
        reasons[self._admitted[rows]] = CODES[Reason.PROBATION_CAP]
        self.used[rows], self.limit[rows] = workers, self._limits.probation.in_flight
        if self._band is not None:
            self._carry(given.rows)

    def _carry(self, assigned: Ints) -> None:
        if self._band is None:
            return
        waiting = self.reasons[self._admitted] == CODES[Reason.NO_FREE_SLOT]
        after = carried(
            self._band,
            self._tenant,
            self._cost,
            self._deficit,
            self._quantum,
            assigned=assigned,
            waiting=np.flatnonzero(waiting),
        )
        owed = (one for one, use in self._taken.uses.items() if use.deficit_tokens)
        self.deficits = dict.fromkeys(owed, 0.0)
        self.deficits.update(zip(self._tenants, after.tolist(), strict=True))


def _first_of_each(index: Ints) -> Ints:
    """Where each of 0, 1, 2, ... stands first, if they appear in this order."""
    first = np.zeros(int(index.max(initial=-1)) + 1, np.int64)
    first[index[::-1]] = np.arange(len(index) - 1, -1, -1)
    return first
