"""What of the operator's gas budgets is spent, or committed to, as a round begins."""

from __future__ import annotations

from collections.abc import Sequence

from indexer.database import Connection
from inferd.protocol.request import Delivery
from inferd.settlement.delivery_gas import delivery_gas
from inferd.settlement.postable import POSTABLE
from scheduler.allowance import Budget
from scheduler.cover import Cover

HOUR_S = 3_600
DAY_S = 86_400

# By receipts what is mined, at the dearest what is under way. Refunds have a budget of their own.
_SPENT = """
    SELECT coalesce(sum(cost), 0) FROM (
        SELECT CASE WHEN a.gas_used IS NOT NULL
                    THEN a.gas_used * a.effective_gas_price_wei + a.data_fee_wei
                    WHEN i.closed_at IS NULL AND a.state IN ('signed', 'broadcast')
                    THEN a.gas_limit * a.max_fee_wei + a.data_fee_wei ELSE 0 END AS cost
        FROM node.tx_intent i JOIN node.tx_attempt a ON a.intent_id = i.id
        WHERE i.kind IN ('post', 'deliver')
          AND i.created_at >= now() - $1 * interval '1 second'
    ) each_one
"""
_OUTSTANDING = f"""
    SELECT r.batchable, r.delivery, r.callback_gas_limit, length(r.input) AS input_bytes,
           r.max_tokens, count(*) AS requests
    FROM chain.request r
    WHERE r.status = 'pending' AND r.deadline_s > (SELECT timestamp_s FROM chain.cursor)
      AND (EXISTS (SELECT FROM node.lease l WHERE l.request_id = r.id
                   AND l.commitment = r.commitment AND l.state = 'active')
           OR EXISTS (SELECT FROM node.result n WHERE n.request_id = r.id
                      AND n.commitment = r.commitment AND {POSTABLE}))
      AND NOT EXISTS (SELECT FROM node.tx_item i JOIN node.tx_attempt a USING (intent_id)
                      WHERE i.request_id = r.id AND i.commitment = r.commitment AND i.live)
    GROUP BY 1, 2, 3, 4, 5
"""  # noqa: S608 - constants


async def load_budgets(
    connection: Connection, limits_wei: Sequence[tuple[int, int]], cover: Cover
) -> tuple[Budget, ...]:
    """`limits_wei` are windows in seconds and what may be spent within each."""
    if not limits_wei:
        return ()
    outstanding_wei = 0
    for row in await connection.fetch(_OUTSTANDING):
        gas = delivery_gas(
            Delivery(row["delivery"]),
            row["callback_gas_limit"],
            row["input_bytes"],
            row["max_tokens"],
        )
        each_wei = cover.cost_wei(gas, batchable=row["batchable"])
        outstanding_wei += row["requests"] * each_wei
    budgets = []
    for window_s, limit_wei in limits_wei:
        spent_wei = int(await connection.fetchval(_SPENT, window_s))
        budgets.append(Budget(window_s, limit_wei, spent_wei + outstanding_wei))
    return tuple(budgets)
