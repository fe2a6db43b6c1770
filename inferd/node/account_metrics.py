"""The accounts of the last 24 hours as gauges."""

from __future__ import annotations

from collections.abc import Collection

from indexer.database import Connection
from indexer.types import DAY_S, Address
from inferd.node import metrics
from inferd.node.account_rows import load_now_s, load_report, load_senders
from inferd.node.accounts import Period


async def measure(connection: Connection, own_accounts: Collection[Address]) -> None:
    """Of the hours that the last day of the chain's time is in; nothing before the first block."""
    now_s = await load_now_s(connection)
    if now_s is None:
        return
    accounts = frozenset(own_accounts) | await load_senders(connection)
    period = Period.around(now_s + 1 - DAY_S, now_s + 1)
    report = await load_report(connection, period, accounts)
    total = report.total
    metrics.DAY_FEES.labels("poster").set(total.poster_fees_wei)
    metrics.DAY_FEES.labels("worker").set(total.worker_fees_wei)
    metrics.DAY_GAS.labels("post").set(total.post_gas_wei)
    metrics.DAY_GAS.labels("deliver").set(total.delivery_gas_wei)
    metrics.DAY_GAS.labels("refund").set(total.refund_gas_wei)
    metrics.DAY_GAS.labels("dispute").set(total.dispute_gas_wei)
    metrics.DAY_RELEASED.set(total.released_wei)
    metrics.DAY_BONDS.set(total.bonds_wei)
    metrics.HELD.set(sum(report.held_wei.values()))
    metrics.DAY_WASTED_GAS.set(total.wasted_gas_wei)
    metrics.DAY_PROFIT.set(total.profit_wei)
