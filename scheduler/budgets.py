"""How much gas the operator lets itself be committed to within an hour or a day.

Who takes a request on will pay for its post. What counts against a budget is what was spent within
its window and what is still to be spent: transactions under way at their dearest, and the expected
gas of every request that is leased or computed and not yet posted. So work is begun only while the
budget could also pay for its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.allowance import Budget


class BudgetGate:
    """The budgets of one round, O(1) per request."""

    __slots__ = ("_begun_wei", "_left_wei", "tightest")

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self.tightest = min(budgets, key=lambda budget: budget.left_wei, default=None)
        """The one with the least left, which decides; None without budgets."""
        self._left_wei = None if self.tightest is None else self.tightest.left_wei
        self._begun_wei = 0

    def allows(self, need_wei: int) -> bool:
        """Whether a request's expected gas can still be committed to."""
        return self._left_wei is None or self._begun_wei + need_wei <= self._left_wei

    def take(self, need_wei: int) -> None:
        """A request is taken on."""
        self._begun_wei += need_wei

    @property
    def left_wei(self) -> int | None:
        """What can still be committed to; None without budgets."""
        return None if self._left_wei is None else self._left_wei - self._begun_wei

    @property
    def committed_wei(self) -> int:
        """What counts against the tightest budget by now; 0 without budgets."""
        return 0 if self.tightest is None else self.tightest.committed_wei + self._begun_wei

    @property
    def limit_wei(self) -> int:
        """Of the tightest budget; 0 without budgets."""
        return 0 if self.tightest is None else self.tightest.limit_wei
