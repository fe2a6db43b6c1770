"""The limits of one round on requests: quotas of tenants and spending budgets.

Each request is looked at in the order in which it is served, since what a limit still allows
changes as the round assigns. Rows are positions among the admitted requests. Tenants that are
closed are sorted out by whole chunks, so a long queue behind a limit costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.admission import CODES
from scheduler.allowance import UNUSED, Limits, Taken
from scheduler.budgets import BudgetGate
from scheduler.kinds import Floats, Ints
from scheduler.model import Reason
from scheduler.quota import IN_FLIGHT, OPEN, RATE, TenantGate

_CODES: NDArray[np.uint8] = np.zeros(3, np.uint8)
_CODES[[IN_FLIGHT, RATE]] = CODES[Reason.TENANT_IN_FLIGHT], CODES[Reason.TENANT_RATE]


class Gate:
    """What of the limits is left, and what was kept because of them."""

    def __init__(
        self,
        limits: Limits,
        taken: Taken,
        *,
        tenants: Sequence[bytes],
        tenant: Ints,
        cost: Ints,
        need_wei: Callable[[int], int],
        most_wei: float,
        now_s: float,
    ) -> None:
        """`tenants` are addresses by the index that is in `tenant`; `cost` is in tokens, 0 for
        what was charged before; `need_wei` gives the expected gas of a row, and `most_wei` is no
        less than that of all rows together."""
        self._tenants = TenantGate(
            [limits.quota_of(one) for one in tenants],
            [taken.uses.get(one, UNUSED) for one in tenants],
            now_s,
        )
        self._closed = np.frombuffer(self._tenants.closed, np.uint8)
        self._budget = BudgetGate(taken.budgets)
        self._tenant, self._tenant_list = tenant, tenant.tolist()
        self._cost, self._cost_list = cost, cost.tolist()
        self._need_wei, self._needed_wei = need_wei, 0
        left_wei = self._budget.left_wei
        self._is_spending = left_wei is not None and most_wei >= left_wei
        self.risky: NDArray[np.bool_] = (
            np.ones(len(tenant), np.bool_) if self._is_spending else self._at_risk()[tenant]
        )
        """Rows that a limit could keep. The others need not be asked about."""
        self.reason = np.zeros(len(tenant), np.uint8)
        """The code of the reason that keeps a row; 0 where none of these limits does."""
        self.used: Floats = np.full(len(tenant), -1.0)
        self.limit: Floats = np.full(len(tenant), -1.0)

    def passing(self, rows: Ints) -> Ints:
        """Those of the rows whose tenants are not closed; the others are kept."""
        closed = self._closed[self._tenant[rows]]
        if not closed.any():
            return rows
        kept = closed != OPEN
        self.reason[rows[kept]] = _CODES[closed[kept]]
        passing: Ints = rows[~kept]
        return passing

    def may_go(self, row: int) -> bool:
        """Whether a worker may be looked for; if not, the row is kept."""
        tenant = self._tenant_list[row]
        if not self._tenants.may_go(tenant, self._cost_list[row]):
            self.reason[row] = _CODES[self._tenants.closed[tenant]]
            return False
        if not self._is_spending:
            return True
        self._needed_wei = self._need_wei(row)
        if not self._budget.allows(self._needed_wei):
            self.reason[row] = CODES[Reason.BUDGET_SPENT]
            self.used[row] = float(self._budget.committed_wei)
            self.limit[row] = float(self._budget.limit_wei)
            return False
        return True

    def take(self, row: int) -> None:
        """The request that was asked about last goes to a worker."""
        self._tenants.take(self._tenant_list[row], self._cost_list[row])
        if self._is_spending:
            self._budget.take(self._needed_wei)

    def _at_risk(self) -> NDArray[np.bool_]:
        """Of each tenant, whether its requests together are more than it may have."""
        tenants = self._tenants
        number = len(tenants.levels)
        most = np.array(tenants.most_in_flight, np.int64)
        rows = np.bincount(self._tenant, minlength=number)
        over: NDArray[np.bool_] = (most > 0) & (np.array(tenants.in_flight) + rows > most)
        costs = np.bincount(self._tenant, weights=self._cost, minlength=number)
        return over | (np.array(tenants.is_rated, np.bool_) & (np.array(tenants.levels) < costs))

    def finish(self) -> None:
        """Fills in the numbers of what is kept for its tenant, once all rows are through.

        A closed tenant takes nothing more, so its numbers are still those that closed it.
        """
        tenants = self._tenants
        for code, used, limit in (
            (CODES[Reason.TENANT_IN_FLIGHT], tenants.in_flight, tenants.most_in_flight),
            (CODES[Reason.TENANT_RATE], None, tenants.levels),
        ):
            rows = np.flatnonzero(self.reason == code)
            if len(rows):
                tenant = self._tenant[rows]
                self.limit[rows] = np.maximum(np.array(limit, np.float64)[tenant], 0.0)
                self.used[rows] = (
                    self._cost[rows] if used is None else np.array(used, np.float64)[tenant]
                )
