"""What the operator's budgets leave for transactions: per transaction, per hour, per day.

They hold for replacements, too: what a transaction under way can cost at most is committed, and its
successor of the same nonce takes its place in the sum. What is mined counts by its receipt.
"""

from __future__ import annotations

from dataclasses import dataclass

from indexer.database import Connection, Pool
from indexer.types import DAY_S, HOUR_S
from inferd.settlement.records import Intent
from inferd.settlement.settings import SettlementSettings
from inferd.settlement.state import LIVE_SQL

_REFUND = "refund"


def _spent(of_kind: str) -> str:
    """By receipts what is mined, at the dearest of its nonce what is under way, however old."""
    return f"""
        SELECT coalesce(sum(cost), 0) FROM (
            SELECT CASE WHEN bool_or(a.gas_used IS NOT NULL)
                        THEN sum(a.gas_used * a.effective_gas_price_wei + a.data_fee_wei)
                             FILTER (WHERE a.gas_used IS NOT NULL)
                        WHEN bool_or(i.live)
                        THEN max(a.gas_limit * a.max_fee_wei + a.data_fee_wei)
                        ELSE 0 END AS cost
            FROM (
                SELECT id, true AS live FROM node.tx_intent WHERE {of_kind} AND {LIVE_SQL}
                UNION ALL
                SELECT id, false FROM node.tx_intent
                WHERE {of_kind} AND closed_at >= now() - $1 * interval '1 second'
            ) i JOIN node.tx_attempt a ON a.intent_id = i.id
            GROUP BY i.id
        ) each_one
    """  # noqa: S608 - constants


_SPENT_ON_WORK, _SPENT_ON_REFUNDS = _spent("kind <> 'refund'"), _spent("kind = 'refund'")


async def spent_on_work_wei(connection: Connection, window_s: int) -> int:
    """Gas of all but refunds, within the last `window_s` seconds, and what is under way. A bond is
    no gas: it comes back, and has caps of its own."""
    return int(await connection.fetchval(_SPENT_ON_WORK, window_s))


async def spent_on_refunds_wei(connection: Connection, window_s: int) -> int:
    """The same of refunds, which have a budget of their own."""
    return int(await connection.fetchval(_SPENT_ON_REFUNDS, window_s))


@dataclass(slots=True)
class Purse:
    """As of the last `refresh`, less what was taken since. None = no limit."""

    settings: SettlementSettings
    work_left_wei: int | None = None
    refunds_left_wei: int | None = None

    async def refresh(self, pool: Pool) -> None:
        """Database errors propagate."""
        settings = self.settings
        budgets = [
            (window_s, budget_wei)
            for window_s, budget_wei in (
                (HOUR_S, settings.cap_wei_per_hour),
                (DAY_S, settings.cap_wei_per_day),
            )
            if budget_wei
        ]
        async with pool.acquire() as connection:
            left = [wei - await spent_on_work_wei(connection, s) for s, wei in budgets]
            spent_on_refunds = await spent_on_refunds_wei(connection, DAY_S)
        self.work_left_wei = min(left, default=None)
        self.refunds_left_wei = settings.refund_budget_wei_per_day - spent_on_refunds

    def most_wei(self, kind: str, replaced: Intent | None = None) -> int | None:
        """The most a new transaction of that kind may cost, or one that replaces what is committed
        for `replaced`; None = any."""
        left = self.refunds_left_wei if kind == _REFUND else self.work_left_wei
        bounds = [self.settings.max_transaction_wei] if self.settings.max_transaction_wei else []
        if left is not None:
            bounds.append(left + (replaced.reserved_gas_wei if replaced is not None else 0))
        return max(min(bounds), 0) if bounds else None

    def take(self, kind: str, wei: int) -> None:
        """A transaction was signed that can cost so much more than what was committed."""
        if kind == _REFUND:
            if self.refunds_left_wei is not None:
                self.refunds_left_wei -= wei
        elif self.work_left_wei is not None:
            self.work_left_wei -= wei
