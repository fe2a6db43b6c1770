"""What of the operator's gas budgets is spent, or committed to, as a round begins."""

from __future__ import annotations

from collections.abc import Sequence

from indexer.database import Connection
from inferd.protocol.request import Delivery
from inferd.settlement.delivery_gas import later_bytes, later_gas
from inferd.settlement.postable import POSTABLE
from inferd.settlement.purse import spent_on_work_wei
from inferd.settlement.quorum import TALLY
from inferd.settlement.terms import held_gas, release_bytes
from scheduler.allowance import Budget
from scheduler.cover import Cover
from scheduler.model import DeliveryKind

_OUTSTANDING = f"""
    SELECT r.batchable, r.delivery, r.callback_gas_limit, length(r.input) AS input_bytes,
           r.max_tokens, r.under_terms, r.quorum, r.under_terms, count(*) AS requests
    FROM chain.request r CROSS JOIN LATERAL ({TALLY}) q
    WHERE r.status = 'pending' AND r.deadline_s > (SELECT timestamp_s FROM chain.cursor)
      AND (EXISTS (SELECT FROM node.lease l WHERE l.request_id = r.id
                   AND l.commitment = r.commitment AND l.state = 'active')
           OR EXISTS (SELECT FROM node.result n WHERE r.quorum = 1 AND n.request_id = r.id
                      AND n.commitment = r.commitment AND {POSTABLE})
           OR q.agreed)
      AND NOT EXISTS (SELECT FROM node.tx_item i JOIN node.tx_attempt a USING (intent_id)
                      WHERE i.request_id = r.id AND i.commitment = r.commitment AND i.live)
    GROUP BY 1, 2, 3, 4, 5, 6, 7
"""  # noqa: S608 - constants


async def load_budgets(
    connection: Connection, limits_wei: Sequence[tuple[int, int]], cover: Cover
) -> tuple[Budget, ...]:
    """`limits_wei` are windows in seconds and what may be spent within each."""
    if not limits_wei:
        return ()
    outstanding_wei = 0
    for row in await connection.fetch(_OUTSTANDING):
        delivery = Delivery(row["delivery"])
        size = row["input_bytes"], row["max_tokens"]
        after = later_gas(delivery, row["callback_gas_limit"], *size)
        calldata_bytes = later_bytes(delivery, *size)
        if row["under_terms"]:
            after += held_gas(row["quorum"])
            calldata_bytes += release_bytes(row["quorum"])
        gas = cover.gas.of_delivery(DeliveryKind[delivery.name])
        gas += cover.gas.of_later(after, calldata_bytes) + cover.quorum_gas(row["quorum"])
        each_wei = cover.cost_wei(gas, batchable=row["batchable"])
        outstanding_wei += row["requests"] * each_wei
    budgets = []
    for window_s, limit_wei in limits_wei:
        spent_wei = await spent_on_work_wei(connection, window_s)
        budgets.append(Budget(window_s, limit_wei, spent_wei + outstanding_wei))
    return tuple(budgets)
