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
from inferd.settlement.terms import RELEASE_BYTES, RELEASE_GAS
from scheduler.model import GasModel

RELEASE_MODEL = GasModel(fixed_gas=26_000, per_group_gas=0, per_result_gas=RELEASE_GAS)
"""A release as a result; the node's own estimate has the last word."""
_FIXED_SHARE = 16
"""A release waits for company while what it costs beside its payments is more than one part in so
many of what it pays,"""
_GATHER_S = HOUR_S
"""and no longer than this after the first of them was due."""

_MINE = f"""
    SELECT h.*, failure.failed_intent, failure.failed_size
    FROM chain.hold h
    JOIN chain.request r ON r.id = h.request_id AND r.commitment = h.commitment
    {last_failure("f.worker IS NULL", "$3")}
    WHERE {{whose}}
      AND NOT EXISTS (SELECT FROM node.tx_item i JOIN node.tx_intent t ON t.id = i.intent_id
                      WHERE i.request_id = h.request_id AND i.commitment = h.commitment
                        AND (i.live OR (i.outcome = 'abandoned' AND t.kind = $5)))
"""  # noqa: S608 - constants
_EARNED = "(h.poster = ANY($2::bytea[]) OR h.owners && $2::bytea[])"
_EARNED_OR_STAKED = f"({_EARNED} OR h.disputer = ANY($2::bytea[]))"
_DUE = f"""
    {_MINE.format(whose=_EARNED)} AND h.state = 'held' AND h.disputable_until_s < $1
    ORDER BY h.disputable_until_s, h.request_id LIMIT $4
"""
_LAPSED = f"""
    {_MINE.format(whose=_EARNED_OR_STAKED)} AND h.state = 'disputed' AND h.ruling_until_s < $1
    ORDER BY h.ruling_until_s, h.request_id LIMIT $4
"""


@dataclass(frozen=True, slots=True)
class Due:
    """A payment that can be released, or a dispute that can be closed."""

    held: Hold
    earned_wei: int
    """What comes to this operator by it."""
    cohort: Cohort | None = None
    """Those with which it was in a transaction that failed, maybe because of it."""

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

    def cost_wei(self, gas: int, payments: int) -> int:
        """Of a transaction that releases so many payments with that gas."""
        return gas * self.price_wei + self.data.of(RELEASE_BYTES * payments, gas)


def worth_releasing(
    due: Sequence[Due], terms: ReleaseTerms, limit: int, gas: GasModel = RELEASE_MODEL
) -> list[Due]:
    """The payments that each earn what they cost, the largest first, where they are worth what they
    cost together; empty while others may still join them."""
    each_wei = terms.cost_wei(gas.per_result_gas, 1)
    chosen = sorted((one for one in due if one.earned_wei > each_wei), key=lambda d: -d.earned_wei)
    room = max((terms.max_gas - gas.fixed_gas) // gas.per_result_gas, 1)
    chosen = chosen[: min(limit, room)]
    if not chosen:
        return []
    earned_wei = sum(one.earned_wei for one in chosen)
    if earned_wei <= terms.cost_wei(gas.of(1, len(chosen)), len(chosen)):
        return []
    due_since_s = min(one.held.disputable_until_s for one in chosen)
    alone_wei = terms.cost_wei(gas.fixed_gas, 0)
    waits = len(chosen) < limit and terms.now_s < due_since_s + _GATHER_S
    return [] if waits and alone_wei * _FIXED_SHARE > earned_wei else chosen


async def load_due(pool: Pool, head: BlockRef, own: Collection[Address], limit: int) -> list[Due]:
    """Payments of these accounts that can be released at the head, longest due first."""
    return await _load(pool, _DUE, head, own, limit, "release")


async def load_lapsed(
    pool: Pool, head: BlockRef, own: Collection[Address], limit: int
) -> list[Due]:
    """Disputes on which nobody ruled in time, that hold money of these accounts."""
    return await _load(pool, _LAPSED, head, own, limit, "close")


async def _load(
    pool: Pool, query: str, head: BlockRef, own: Collection[Address], limit: int, kind: str
) -> list[Due]:
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            query, head.timestamp_s, sorted(own), list(SUSPECT), limit, kind
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
