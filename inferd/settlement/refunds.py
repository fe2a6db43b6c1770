"""Expired requests whose fee nobody has given back yet, and which of them are worth a refund.

A refund is a service at the operator's cost. It is bounded twice: no batch costs more gas than a
ratio of each fee in it allows, and all of a day's together cost no more than a budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from indexer.database import Pool
from indexer.types import Address, BlockRef, Hash32
from inferd.protocol import calls
from inferd.protocol.request import Commitment, params_hash
from inferd.settlement.apart import SUSPECT, Cohort, cohort_of_row, last_failure
from inferd.settlement.data_fee import NO_DATA_PRICE, DataPrice
from inferd.settlement.params import params_of
from inferd.settlement.records import Item
from scheduler.model import GasModel

REFUND_GAS = GasModel(fixed_gas=30_000, per_group_gas=0, per_result_gas=7_000)
"""The least a refund takes, a claim being a result; the node's own estimate has the last word."""
_CLAIM_BYTES = 96
_BESIDE_CLAIMS_BYTES = 68
"""Of the calldata of `refund`."""
_PPM = 1_000_000
_MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Claim:
    """What opens one request's commitment for its refund."""

    request_id: int
    commitment: Commitment
    requester: Address
    params_hash: Hash32
    fee_wei: int
    cohort: Cohort | None = None
    """Those with which it was in a transaction that failed, maybe because of it."""

    def outbox_item(self) -> Item:
        return Item(self.request_id, self.commitment, None)


@dataclass(frozen=True, slots=True)
class RefundTerms:
    """What a refund costs now, and what it may."""

    price_wei: int
    """Of one gas, in the next block."""
    max_fee_wei: int
    """Of one gas, at most, as the transaction will offer."""
    min_fee_ppm: int
    """How much of its share of the gas a fee must be, in millionths."""
    budget_left_wei: int
    data: DataPrice = NO_DATA_PRICE

    @property
    def least_fee_wei(self) -> int:
        """What a fee must be in the best of company."""
        gas = REFUND_GAS.per_result_gas
        data_wei = self.data.per_byte_wei * _CLAIM_BYTES + self.data.per_gas_wei * gas
        return -(-(gas * self.price_wei + data_wei) * self.min_fee_ppm // _PPM)

    def unbounded(self) -> RefundTerms:
        """The same without a budget."""
        return replace(self, budget_left_wei=2**256)

    def share_wei(self, gas: int, claims: int) -> int:
        """What each fee must be where so many claims share a transaction with that gas."""
        cost_wei = self.cost_wei(gas, claims)
        return -(-cost_wei * self.min_fee_ppm // (claims * _PPM))

    def cost_wei(self, gas: int, claims: int) -> int:
        """Of a transaction with so many claims that takes that gas."""
        return gas * self.price_wei + self.data.of(_bytes_of(claims), gas)

    def most_wei(self, gas: int, claims: int) -> int:
        """What it can cost before it is replaced."""
        return gas * self.max_fee_wei + self.data.reserve(_bytes_of(claims), gas)


def worth_refunding(
    claims: Sequence[Claim], terms: RefundTerms, limit: int, gas: GasModel = REFUND_GAS
) -> list[Claim]:
    """The largest batch that the budget pays and each fee of which is worth its share of the gas.

    Pure. Of equal fees those that come first are taken.
    """
    richest = sorted(claims, key=lambda claim: -claim.fee_wei)[:limit]
    for size in range(len(richest), 0, -1):
        needed = gas.of(1, size)
        worth = richest[size - 1].fee_wei >= terms.share_wei(needed, size)
        if worth and terms.most_wei(needed, size) <= terms.budget_left_wei:
            return richest[:size]
    return []


_EXPIRED = f"""
    SELECT r.*, failure.failed_intent, failure.failed_size
    FROM (
        SELECT r.* FROM chain.request r
        WHERE r.status = 'pending' AND r.deadline_s < $1 AND r.fee_wei >= $4
          AND NOT EXISTS (SELECT FROM node.tx_item i
                          WHERE i.request_id = r.id AND i.commitment = r.commitment
                            AND (i.live OR (i.outcome = 'abandoned' AND i.worker IS NULL)))
        ORDER BY r.fee_wei DESC, r.deadline_s, r.id LIMIT $2
    ) r
    {last_failure("f.worker IS NULL", "$3")}
    ORDER BY r.fee_wei DESC, r.deadline_s, r.id
"""  # noqa: S608 - constants


async def load_claims(
    pool: Pool, head: BlockRef, limit: int, least_fee_wei: int = 0
) -> list[Claim]:
    """The largest fees first, as what is not worth its gas may pile up and must hide nothing; of
    equal ones the longest expired. They stay expired, as the time of blocks does not go back."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            _EXPIRED, head.timestamp_s, limit, list(SUSPECT), least_fee_wei
        )
    return [
        Claim(
            row["id"],
            row["commitment"],
            row["requester"],
            params_hash(params_of(row)),
            row["fee_wei"],
            cohort_of_row(row["failed_intent"], row["failed_size"]),
        )
        for row in rows
    ]


async def count_dust(pool: Pool, head: BlockRef, least_fee_wei: int) -> int:
    """Expired requests with smaller fees; no more than ten thousand are counted."""
    async with pool.acquire() as connection:
        number: int = await connection.fetchval(
            "SELECT count(*) FROM (SELECT 1 FROM chain.request"
            " WHERE status = 'pending' AND deadline_s < $1 AND fee_wei < $2 LIMIT $3) AS dust",
            head.timestamp_s,
            least_fee_wei,
            _MOST_COUNTED,
        )
    return number


def refund_calldata(claims: Sequence[Claim]) -> bytes:
    """Calldata of `refund`."""
    return calls.refund([(c.request_id, c.requester, c.params_hash) for c in claims])


def _bytes_of(claims: int) -> int:
    return _BESIDE_CLAIMS_BYTES + _CLAIM_BYTES * claims
