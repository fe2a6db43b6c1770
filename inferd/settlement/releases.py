"""Payments that were held back for a dispute and are due: which of them are this operator's, and
which are worth the gas of their release. Pure but for its SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from indexer.database import Pool
from indexer.types import HOUR_S, Address, BlockRef
from inferd.protocol.hold import Hold
from inferd.settlement.apart import SUSPECT, Cohort, cohort_of_row, last_failure
from inferd.settlement.data_fee import NO_DATA_PRICE, DataPrice
from inferd.settlement.records import Item
from inferd.settlement.terms import release_bytes, release_gas

RELEASE_FIXED_GAS = 26_000
"""Of a release beside its payments; the node's own estimate has the last word."""
_FIXED_SHARE = 16
"""A release waits for company while what it costs beside its payments is more than one part in so
many of what it pays,"""
_GATHER_S = HOUR_S
"""and no longer than this after the first of them was due."""

_EARNED = "(h.poster = ANY($2::bytea[]) OR h.owners && $2::bytea[])"
_EARNED_OR_STAKED = f"({_EARNED} OR h.disputer = ANY($2::bytea[]))"
_EARNED_WEI = """
    (CASE WHEN h.poster = ANY($2::bytea[]) THEN h.poster_wei ELSE 0 END
     + div(h.payment_wei, cardinality(h.owners))
       * (SELECT count(*) FROM unnest(h.owners) share (owner) WHERE owner = ANY($2::bytea[]))
     + CASE WHEN h.disputer = ANY($2::bytea[]) THEN h.bond_wei ELSE 0 END)
"""


def _mine(whose: str, state: str, until_s: str) -> str:
    # What is not worth its gas may pile up for ever: it comes last, and hides nothing.
    return f"""
        SELECT r.*, failure.failed_intent, failure.failed_size
        FROM (
            SELECT h.*, h.request_id AS id, {until_s} AS until_s,
                   {_EARNED_WEI} > $6::numeric + $7::numeric * (cardinality(h.owners) - 1) AS pays
            FROM chain.hold h
            JOIN chain.request q ON q.id = h.request_id AND q.commitment = h.commitment
            WHERE {whose} AND h.state = '{state}' AND {until_s} < $1
              AND NOT EXISTS (SELECT FROM node.tx_item i JOIN node.tx_intent t ON t.id = i.intent_id
                              WHERE i.request_id = h.request_id AND i.commitment = h.commitment
                                AND (i.live OR (i.outcome = 'abandoned' AND t.kind = $5)))
            ORDER BY pays DESC, until_s, h.request_id LIMIT $4
        ) r
        {last_failure("f.worker IS NULL", "$3")}
        ORDER BY pays DESC, until_s, r.id
    """  # noqa: S608 - constants


_DUE = _mine(_EARNED, "held", "h.disputable_until_s")
_LAPSED = _mine(_EARNED_OR_STAKED, "disputed", "h.ruling_until_s")


@dataclass(frozen=True, slots=True)
class Due:
    """A payment that can be released, or a dispute that can be closed."""

    held: Hold
    earned_wei: int
    """What comes to this operator by it."""
    cohort: Cohort | None = None
    """Those with which it was in a transaction that failed, maybe because of it."""

    @property
    def gas(self) -> int:
        """What its release takes in a batch."""
        return release_gas(len(self.held.owners))

    @property
    def calldata_bytes(self) -> int:
        return release_bytes(len(self.held.owners))

    def outbox_item(self) -> Item:
        return Item(self.held.request_id, self.held.commitment, None)


@dataclass(frozen=True, slots=True)
class ReleaseTerms:
    """What a release costs now."""

    price_wei: int
    """Of one gas, in the next block."""
    now_s: int
    """Of the head."""
    max_gas: int
    data: DataPrice = NO_DATA_PRICE

    def share_wei(self, workers: int) -> int:
        """What a payment that so many workers share adds to a release: it must earn that in the
        best of company."""
        gas = release_gas(workers)
        gas_wei = gas * (self.price_wei + self.data.per_gas_wei)
        return gas_wei + self.data.per_byte_wei * release_bytes(workers)

    @property
    def alone_wei(self) -> int:
        """What a transaction costs beside its payments."""
        return self.cost_wei(RELEASE_FIXED_GAS, 0)

    def cost_wei(self, gas: int, calldata_bytes: int) -> int:
        """Of a transaction with that gas whose payments have so many bytes."""
        return gas * self.price_wei + self.data.of(calldata_bytes, gas)

    def cost_of_wei(self, due: Sequence[Due], gas: int) -> int:
        """Of a transaction that releases these payments with that gas."""
        return self.cost_wei(gas, sum(one.calldata_bytes for one in due))


def worth_releasing(due: Sequence[Due], terms: ReleaseTerms, limit: int) -> list[Due]:
    """The payments that each earn what they cost, those that leave most first, where they are worth
    what they cost together; empty while others may still join them."""

    def left_wei(one: Due) -> int:
        return one.earned_wei - terms.share_wei(len(one.held.owners))

    chosen: list[Due] = []
    gas = RELEASE_FIXED_GAS
    for one in sorted((d for d in due if left_wei(d) > 0), key=lambda d: -left_wei(d)):
        if chosen and gas + one.gas > terms.max_gas:
            continue
        chosen.append(one)
        gas += one.gas
        if len(chosen) == limit:
            break
    if not chosen:
        return []
    earned_wei = sum(one.earned_wei for one in chosen)
    if earned_wei <= terms.cost_of_wei(chosen, gas):
        return []
    due_since_s = min(one.held.disputable_until_s for one in chosen)
    waits = len(chosen) < limit and terms.now_s < due_since_s + _GATHER_S
    return [] if waits and terms.alone_wei * _FIXED_SHARE > earned_wei else chosen


async def load_due(
    pool: Pool, head: BlockRef, own: Collection[Address], limit: int, terms: ReleaseTerms
) -> list[Due]:
    """Payments of these accounts that can be released at the head, longest due first; after them
    those that do not bring what they add to a release."""
    return await _load(pool, _DUE, head, own, limit, "release", terms, 0)


async def load_lapsed(
    pool: Pool, head: BlockRef, own: Collection[Address], limit: int, terms: ReleaseTerms
) -> list[Due]:
    """Disputes on which nobody ruled in time, that hold money of these accounts; in the same
    order, where each has a transaction to itself."""
    return await _load(pool, _LAPSED, head, own, limit, "close", terms, terms.alone_wei)


async def _load(
    pool: Pool,
    query: str,
    head: BlockRef,
    own: Collection[Address],
    limit: int,
    kind: str,
    terms: ReleaseTerms,
    alone_wei: int,
) -> list[Due]:
    of_one = terms.share_wei(1)
    each_wei = terms.share_wei(2) - of_one
    bounds = (alone_wei + of_one, each_wei)
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            query, head.timestamp_s, sorted(own), list(SUSPECT), limit, kind, *bounds
        )
    found = []
    for row in rows:
        held = Hold.from_row(row)
        earned_wei = int(held.due_to(own))
        if row["disputer"] in own:
            earned_wei += held.bond_wei
        cohort = cohort_of_row(row["failed_intent"], row["failed_size"])
        found.append(Due(held, earned_wei, cohort))
    return found
