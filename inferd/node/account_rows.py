"""Reads the operator's accounts from the tables, and keeps what is about to be forgotten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from indexer.database import Connection
from indexer.types import DAY_S, HOUR_S, Address
from inferd.node.account_holds import load_held, load_released
from inferd.node.accounts import AccountFlow, Day, Figures, Period, Report, date_of
from inferd.settlement.receipts import (
    CALLBACK_FAILED_OUTCOME,
    DELIVERED,
    LAPSED,
    OPENED,
    REFUNDED_OUTCOME,
    RELEASED,
    SETTLED,
)

DONE = (
    SETTLED,
    REFUNDED_OUTCOME,
    DELIVERED,
    CALLBACK_FAILED_OUTCOME,
    RELEASED,
    OPENED,
    LAPSED,
)
"""Outcomes of an item that the transaction was for."""

COST = "(a.gas_used * a.effective_gas_price_wei + a.data_fee_wei)"
"""What a mined row `a` of node.tx_attempt cost, in wei."""
BOND = "(CASE WHEN a.status = 1 THEN a.value_wei ELSE 0 END)"
"""What it staked: one that reverted sent nothing along."""
CANONICAL = """a.gas_used IS NOT NULL AND NOT EXISTS (
    SELECT FROM chain.block b WHERE b.number = a.mined_block AND b.hash <> a.mined_block_hash)"""
"""Whether it is mined, and in no block that a reorganisation took meanwhile."""
_MINED = f"""
    SELECT a.mined_at_s AS at_s, a.sender, t.kind, 1 AS transactions, done.items,
           {COST} AS gas_wei, (wasted)::int AS wasted_transactions,
           CASE WHEN wasted THEN {COST} ELSE 0 END AS wasted_gas_wei, {BOND} AS bonds_wei
    FROM node.tx_attempt a JOIN node.tx_intent t ON t.id = a.intent_id
    CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE i.outcome = ANY($1::text[])) AS items
                        FROM node.tx_item i WHERE i.intent_id = t.id) done
    CROSS JOIN LATERAL (SELECT t.closed_at IS NOT NULL AND done.items = 0 AS wasted) w
    WHERE {CANONICAL}
"""  # noqa: S608 - constants
_SUMS = """sum(transactions)::bigint AS transactions, sum(items)::bigint AS items,
    sum(gas_wei) AS gas_wei, sum(wasted_transactions)::bigint AS wasted_transactions,
    sum(wasted_gas_wei) AS wasted_gas_wei, sum(bonds_wei) AS bonds_wei"""
_GAS = f"""
    SELECT at_s / {DAY_S} AS day, sender, kind, {_SUMS}
    FROM ({_MINED} AND a.mined_at_s >= $2 AND a.mined_at_s < $3
          UNION ALL
          SELECT hour_s, sender, kind, transactions, items, gas_wei, wasted_transactions,
                 wasted_gas_wei, bonds_wei
          FROM node.gas_ledger WHERE hour_s >= $2 AND hour_s < $3) each_one
    GROUP BY 1, 2, 3
"""  # noqa: S608 - constants
_FOLD = f"""
    INSERT INTO node.gas_ledger AS kept
    SELECT at_s / {HOUR_S} * {HOUR_S}, sender, kind, sum(transactions), sum(items), sum(gas_wei),
           sum(wasted_transactions), sum(wasted_gas_wei), sum(bonds_wei)
    FROM ({_MINED} AND a.mined_at_s IS NOT NULL AND t.id = ANY($2::bigint[])) each_one
    GROUP BY 1, 2, 3
    ON CONFLICT (hour_s, sender, kind) DO UPDATE SET
        transactions = kept.transactions + excluded.transactions,
        items = kept.items + excluded.items, gas_wei = kept.gas_wei + excluded.gas_wei,
        wasted_transactions = kept.wasted_transactions + excluded.wasted_transactions,
        wasted_gas_wei = kept.wasted_gas_wei + excluded.wasted_gas_wei,
        bonds_wei = kept.bonds_wei + excluded.bonds_wei
"""  # noqa: S608 - constants
_PAYMENTS = f"""
    SELECT l.timestamp_s / {DAY_S} AS day, p.account, p.role, sum(p.amount_wei) AS amount_wei
    FROM chain.log l JOIN chain.payment p
      ON p.block_hash = l.block_hash AND p.log_index = l.log_index
    WHERE l.kind IN ('WorkerPaid', 'PosterPaid') AND l.timestamp_s >= $1 AND l.timestamp_s < $2
      AND p.account = ANY($3::bytea[])
    GROUP BY 1, 2, 3
"""  # noqa: S608 - constants
_OTHER_CREDITS = """
    SELECT kind, topics, data FROM chain.log
    WHERE kind IN ('Credited', 'CreditTransferred', 'Withdrawn')
      AND timestamp_s >= $1 AND timestamp_s < $2
      AND (topics[2] = ANY($3::bytea[]) OR topics[3] = ANY($3::bytea[]))
"""
_SENDERS = "SELECT address FROM node.sender"
_SPENT = f"""
    SELECT coalesce(sum({COST}), 0) AS gas_wei, min(a.mined_at_s) AS first_s
    FROM node.tx_attempt a WHERE a.mined_at_s >= $1 AND a.sender = $2 AND {CANONICAL}
"""  # noqa: S608 - constants


async def load_now_s(connection: Connection) -> int | None:
    """The time of the newest indexed block; None before the first."""
    now_s: int | None = await connection.fetchval("SELECT timestamp_s FROM chain.cursor")
    return now_s


async def load_senders(connection: Connection) -> frozenset[Address]:
    """Whose transactions this node ever sent."""
    return frozenset(Address(row["address"]) for row in await connection.fetch(_SENDERS))


async def load_report(
    connection: Connection, period: Period, accounts: Collection[Address]
) -> Report:
    """What these accounts earned and this node's transactions cost within the period."""
    args = period.begin_s, period.end_s
    own = sorted(accounts)
    # One statement sees one state of the tables; several see several, unless told otherwise.
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        gas = await connection.fetch(_GAS, list(DONE), *args)
        paid = await connection.fetch(_PAYMENTS, *args, own)
        padded = [bytes(12) + account for account in own]
        other = await connection.fetch(_OTHER_CREDITS, *args, padded)
        released = await load_released(connection, *args, own)
        held_wei = await load_held(connection, own)
    days: defaultdict[int, Figures] = defaultdict(Figures)
    for row in gas:
        days[row["day"]] += _figures_of_gas(row)
    for row in paid:
        days[row["day"]] += _figures_of_payment(row)
    for day, _, amount_wei in released:
        days[day] += Figures(released_wei=amount_wei)
    return Report(
        period,
        tuple(Day(date_of(day * DAY_S), days[day]) for day in sorted(days)),
        tuple(_flows(own, gas, paid, other, released)),
        held_wei,
    )


async def load_spent(
    connection: Connection, since_s: int, sender: Address
) -> tuple[int, int | None]:
    """Gas paid by a key since a time of the chain, in wei, and when the first of it was."""
    row = await connection.fetchrow(_SPENT, since_s, sender)
    return (0, None) if row is None else (int(row["gas_wei"]), row["first_s"])


async def fold(connection: Connection, intent_ids: Sequence[int]) -> None:
    """Adds what closed transactions cost to the ledger, in the transaction that deletes them."""
    await connection.execute(_FOLD, list(DONE), list(intent_ids))


def _figures_of_gas(row: Any) -> Figures:
    items, gas_wei = row["items"], int(row["gas_wei"])
    common = {
        "transactions": row["transactions"],
        "wasted_transactions": row["wasted_transactions"],
        "wasted_gas_wei": int(row["wasted_gas_wei"]),
        "bonds_wei": int(row["bonds_wei"]),
    }
    match row["kind"]:
        case "refund":
            return Figures(refunds=items, refund_gas_wei=gas_wei, **common)
        case "deliver":
            return Figures(callbacks=items, delivery_gas_wei=gas_wei, **common)
        case "release" | "close":
            return Figures(releases=items, dispute_gas_wei=gas_wei, **common)
        case "dispute":
            return Figures(disputes=items, dispute_gas_wei=gas_wei, **common)
        case _:
            return Figures(results=items, post_gas_wei=gas_wei, **common)


def _figures_of_payment(row: Any) -> Figures:
    amount_wei = int(row["amount_wei"])
    if row["role"] == "poster":
        return Figures(poster_fees_wei=amount_wei)
    return Figures(worker_fees_wei=amount_wei)


def _flows(
    own: Sequence[Address],
    gas: Iterable[Any],
    paid: Iterable[Any],
    other: Iterable[Any],
    released: Iterable[tuple[int, Address, int]],
) -> list[AccountFlow]:
    flows = {account: AccountFlow(account) for account in own}

    def add(account: Address, **amounts_wei: int) -> None:
        if account in flows:
            flows[account] += AccountFlow(account, **amounts_wei)

    for row in gas:
        flows.setdefault(row["sender"], AccountFlow(row["sender"]))
        add(row["sender"], gas_wei=int(row["gas_wei"]), bonds_wei=int(row["bonds_wei"]))
    for row in paid:
        add(row["account"], **{f"{row['role']}_fees_wei": int(row["amount_wei"])})
    for row in other:
        # Layouts: contracts/src/interfaces/ICredits.sol.
        first, second = (Address(topic[12:]) for topic in row["topics"][1:3])
        amount_wei = int.from_bytes(row["data"][:32], "big")
        match row["kind"]:
            case "Withdrawn":
                add(first, withdrawn_wei=amount_wei)
            case "Credited":
                add(first, other_credits_wei=amount_wei)
            case _:
                add(first, other_credits_wei=-amount_wei)
                add(second, other_credits_wei=amount_wei)
    for _, account, amount_wei in released:
        add(account, released_wei=amount_wei, other_credits_wei=-amount_wei)
    return list(flows.values())
