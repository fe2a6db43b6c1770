"""Fulfilled requests whose consumer contract has not been called yet, and which are called next.

What is owed is read from the chain's tables, so a reorganisation that takes a delivery away, or the
settlement before it, needs nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asyncpg import Record

from indexer.database import Pool
from indexer.types import Address
from inferd.protocol import calls
from inferd.protocol.request import Commitment, Delivery, RequestParams
from inferd.protocol.result import digest_of
from inferd.settlement.apart import SUSPECT, Cohort, cohort_of_row, last_failure
from inferd.settlement.data_fee import NO_DATA_PRICE, DataPrice
from inferd.settlement.delivery_gas import (
    CLAIM_BYTES_SQL,
    CLAIM_GAS_SQL,
    DELIVER_GAS,
    MAX_DELIVER_BYTES,
)
from inferd.settlement.params import params_of
from inferd.settlement.receipts import CALLBACK_FAILED_OUTCOME, SETTLED
from inferd.settlement.records import Item
from inferd.settlement.settings import SettlementSettings

_BPS = 10_000
_PART_ROWS = 10_000

# Not: what is under way, what was given up, and what was tried here and failed, which is left to
# whoever wants it called again. That somebody else's try failed says nothing: it may have been
# made to. Both shares of a fee are earned where they came to this operator. Of a quorum's workers
# the event names one, and our own posts all. What a dispute has shown to be a lie earned nothing,
# and no consumer is told it here.
_OWED = f"""
    FROM (
        SELECT *, {CLAIM_BYTES_SQL} AS claim_bytes, {CLAIM_GAS_SQL} AS gas,
               CASE WHEN posted THEN poster_wei ELSE 0 END
               + div(fee_wei - poster_wei, quorum) * owned AS earned_wei
        FROM (
            SELECT r.id, r.commitment, r.settled_block, r.callback_gas_limit, r.fee_wei, r.quorum,
                   octet_length(r.input) + o.bytes AS content_bytes,
                   div(r.fee_wei * $1, {_BPS}) AS poster_wei,
                   paid.owned,
                   EXISTS (SELECT FROM node.tx_attempt WHERE hash = r.settled_tx_hash) AS posted,
                   failure.failed_intent, failure.failed_size
            FROM chain.request r
            CROSS JOIN LATERAL (
                SELECT coalesce(octet_length(output), file_bytes) AS bytes
                FROM node.result n
                WHERE n.request_id = r.id AND n.commitment = r.commitment AND n.digest = r.digest
                LIMIT 1
            ) o
            CROSS JOIN LATERAL (
                SELECT count(*) AS owned
                FROM (SELECT r.worker AS signer UNION
                      SELECT unnest(i.others) FROM node.tx_item i
                      WHERE r.quorum > 1 AND i.request_id = r.id AND i.commitment = r.commitment
                        AND i.worker = r.worker AND i.outcome = '{SETTLED}') signed
                JOIN chain.worker w USING (signer) WHERE w.owner = ANY($2::bytea[])
            ) paid
            {last_failure("f.worker IS NULL", "$3")}
            WHERE r.status = 'fulfilled' AND r.delivery = {Delivery.CALLBACK:d}
              AND r.callback_delivered_block IS NULL
              AND NOT EXISTS (SELECT FROM chain.hold h
                              WHERE h.request_id = r.id AND h.commitment = r.commitment
                                AND h.state = 'upheld')
              AND NOT EXISTS (SELECT FROM node.tx_item i
                              WHERE i.request_id = r.id AND i.commitment = r.commitment
                                AND (i.live OR (i.worker IS NULL AND i.outcome
                                     IN ('abandoned', '{CALLBACK_FAILED_OUTCOME}')
                                     AND EXISTS (SELECT FROM node.tx_intent t
                                                 WHERE t.id = i.intent_id
                                                   AND t.kind = 'deliver'))))
        ) asked
    ) owed
"""  # noqa: S608 - constants
# One part of what is owed, oldest first: how many there are of each kind, and those that are to be
# called. The row of numbers is there also where none is.
_PART = f"""
    WITH part AS MATERIALIZED (
        SELECT *, {DELIVER_GAS} + gas <= $4 AND claim_bytes <= {MAX_DELIVER_BYTES} AS fits,
               ({DELIVER_GAS} + gas) * $5::numeric + $10::numeric + claim_bytes * $11::numeric
               <= earned_wei AS pays
        {_OWED}
        WHERE (settled_block, id) > ($6, $7) ORDER BY settled_block, id LIMIT $8
    ), counted AS (
        SELECT count(*) AS owed, count(*) FILTER (WHERE NOT fits) AS too_large,
               count(*) FILTER (WHERE fits AND NOT pays) AS too_dear,
               max(ARRAY[settled_block, id]) AS last
        FROM part
    )
    SELECT * FROM counted LEFT JOIN LATERAL (
        SELECT * FROM part WHERE fits AND pays ORDER BY settled_block, id LIMIT $9
    ) found ON true ORDER BY settled_block, id
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class Owed:
    """One callback, without its bytes."""

    request_id: int
    commitment: Commitment
    claim_bytes: int
    gas: int
    """What its delivery takes at most, beside the transaction's own."""
    earned_wei: int
    """By this operator, of the request's fee."""
    cohort: Cohort | None = None
    """Those with which it was in a transaction that failed, maybe because of it."""

    def outbox_item(self) -> Item:
        return Item(self.request_id, self.commitment, None)


@dataclass(frozen=True, slots=True)
class Callback:
    """One output for the contract that asked for it."""

    owed: Owed
    requester: Address
    params: RequestParams
    output: bytes

    def owes_arguments(self) -> tuple[object, ...]:
        """As the request contract's `owesCallback` takes them."""
        return self.owed.request_id, self.owed.commitment, digest_of(self.output)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the next transaction."""

    max_gas: int
    """By the operator, the protocol and the block."""
    free_gas: int
    """What the balance pays for at the price that is offered."""
    price_wei: int
    """Of one gas, in the next block."""
    max_callbacks: int
    data: DataPrice = NO_DATA_PRICE


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many are owed, of those that were looked at, and how many of them are not called now."""

    owed: int = 0
    too_large: int = 0
    """No transaction holds them."""
    too_dear: int = 0
    """Their gas costs more than they earned."""


def choose(owed: Sequence[Owed], limits: Limits) -> tuple[Owed, ...]:
    """The oldest that the balance pays for, as many as one transaction holds. Pure.

    The gas limit of a delivery is a bound and no estimate, since a consumer can tell an estimate
    from a transaction. Those that may have spoilt a transaction keep to themselves (`apart`). One
    that does not fit beside the others is passed over: it is the first of the next.
    """
    batch: list[Owed] = []
    gas_left = min(limits.max_gas, limits.free_gas) - DELIVER_GAS
    bytes_left = MAX_DELIVER_BYTES
    for one in owed:
        cohort = batch[0].cohort if batch else one.cohort
        most = limits.max_callbacks if cohort is None else cohort.most_together
        if len(batch) == min(limits.max_callbacks, most):
            break
        if one.gas > gas_left or one.claim_bytes > bytes_left or one.cohort != cohort:
            continue
        batch.append(one)
        gas_left -= one.gas
        bytes_left -= one.claim_bytes
    return tuple(batch)


async def load_owed(
    pool: Pool,
    limits: Limits,
    settings: SettlementSettings,
    limit: int,
    *,
    part: int = _PART_ROWS,
) -> tuple[list[Owed], Waiting]:
    """Those that fit in a transaction and earned their gas, and whose output is here; oldest first,
    `limit` at most. And how many are owed.

    Each is looked at once: the `part` oldest, and as many more while less than `limit` are found,
    so that what cannot be called hides nothing that can.
    """
    own = list(settings.own_accounts)
    data = limits.data
    price_wei = limits.price_wei + data.per_gas_wei
    terms = (settings.poster_bps, own, list(SUSPECT), limits.max_gas, price_wei)
    found: list[Owed] = []
    waiting, after, seen = Waiting(), (-1, -1), part
    async with pool.acquire() as connection:
        while seen == part and len(found) < limit:
            rows = await connection.fetch(
                _PART, *terms, *after, part, limit - len(found), data.fixed_wei, data.per_byte_wei
            )
            numbers = rows[0]
            seen = numbers["owed"]
            waiting = Waiting(
                waiting.owed + seen,
                waiting.too_large + numbers["too_large"],
                waiting.too_dear + numbers["too_dear"],
            )
            after = numbers["last"] or after
            found += [_owed(row) for row in rows if row["id"] is not None]
    return found, waiting


def _owed(row: Record) -> Owed:
    return Owed(
        request_id=row["id"],
        commitment=row["commitment"],
        claim_bytes=row["claim_bytes"],
        gas=row["gas"],
        earned_wei=int(row["earned_wei"]),
        cohort=cohort_of_row(row["failed_intent"], row["failed_size"]),
    )


async def load_callbacks(pool: Pool, owed: Sequence[Owed]) -> list[Callback]:
    """The same with their bytes, in the same order, without those that are gone meanwhile."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT r.*, (SELECT output FROM node.result n WHERE n.request_id = r.id"
            "     AND n.commitment = r.commitment AND n.digest = r.digest LIMIT 1) AS output"
            " FROM chain.request r WHERE r.id = ANY($1::bigint[]) AND r.status = 'fulfilled'",
            [one.request_id for one in owed],
        )
    found = {(row["id"], row["commitment"]): row for row in rows if row["output"] is not None}
    return [
        Callback(one, row["requester"], params_of(row), row["output"])
        for one in owed
        if (row := found.get((one.request_id, one.commitment))) is not None
    ]


def deliver_calldata(callbacks: Sequence[Callback]) -> bytes:
    """Calldata of `deliver`."""
    return calls.deliver([(c.owed.request_id, c.requester, c.params, c.output) for c in callbacks])
