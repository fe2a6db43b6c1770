"""Fulfilled requests whose consumer contract has not been called yet, and which are called next.

What is owed is read from the chain's tables, so a reorganisation that takes a delivery away, or the
settlement before it, needs nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from indexer.database import Pool
from indexer.types import Address
from inferd.protocol import calls
from inferd.protocol.request import Commitment, Delivery, RequestParams
from inferd.protocol.result import digest_of
from inferd.settlement.delivery_gas import (
    DELIVER_GAS,
    MAX_DELIVER_BYTES,
    claim_bytes,
    claim_gas,
)
from inferd.settlement.params import params_of
from inferd.settlement.receipts import FAULTS
from inferd.settlement.records import Item
from inferd.settlement.settings import SettlementSettings

_BPS = 10_000


@dataclass(frozen=True, slots=True)
class Owed:
    """One callback, without its bytes."""

    request_id: int
    commitment: Commitment
    callback_gas_limit: int
    content_bytes: int
    """Of input and output."""
    earned_wei: int
    """By this operator, of the request's fee."""
    suspect: bool
    """It was in a transaction that failed, maybe because of it."""

    @property
    def gas(self) -> int:
        """What its delivery takes at most, beside the transaction's own."""
        return claim_gas(self.callback_gas_limit, self.content_bytes)

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


@dataclass(frozen=True, slots=True)
class Choice:
    """What is called next, and how many are not, for which reason."""

    batch: tuple[Owed, ...] = ()
    too_large: int = 0
    """No transaction holds them."""
    too_dear: int = 0
    """Their gas costs more than they earned."""
    unfunded: int = 0
    """The balance does not pay for them."""


def choose(owed: Sequence[Owed], limits: Limits) -> Choice:
    """The oldest that are worth their gas, as many as one transaction holds. Pure.

    The gas limit of a delivery is a bound and no estimate, since a consumer can tell an estimate
    from a transaction. One that may have spoilt a transaction travels alone, after the others.
    """
    fitting, too_large, too_dear = [], 0, 0
    for one in owed:
        gas = DELIVER_GAS + one.gas
        if gas > limits.max_gas or claim_bytes(one.content_bytes) > MAX_DELIVER_BYTES:
            too_large += 1
        elif gas * limits.price_wei > one.earned_wei:
            too_dear += 1
        else:
            fitting.append(one)
    trusted = [one for one in fitting if not one.suspect]
    batch = _packed(trusted or fitting[:1], limits)
    return Choice(batch, too_large, too_dear, 0 if batch else len(fitting))


def _packed(owed: Sequence[Owed], limits: Limits) -> tuple[Owed, ...]:
    """One that does not fit beside the others is passed over: it is the first of the next."""
    batch: list[Owed] = []
    gas_left = min(limits.max_gas, limits.free_gas) - DELIVER_GAS
    bytes_left = MAX_DELIVER_BYTES
    for one in owed:
        if len(batch) == limits.max_callbacks:
            break
        size = claim_bytes(one.content_bytes)
        if one.gas <= gas_left and size <= bytes_left:
            batch.append(one)
            gas_left -= one.gas
            bytes_left -= size
    return tuple(batch)


async def load_owed(pool: Pool, limit: int, settings: SettlementSettings) -> list[Owed]:
    """Those whose output is here and that nobody has tried yet; oldest first.

    One that failed is left to whoever wants it called again: its gas was paid for once.
    """
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT r.id, r.commitment, r.callback_gas_limit, r.fee_wei, w.owner,"  # noqa: S608 - constants
            " octet_length(r.input) + o.bytes AS content_bytes,"
            " EXISTS (SELECT 1 FROM node.tx_attempt WHERE hash = r.settled_tx_hash) AS posted,"
            " EXISTS (SELECT 1 FROM node.tx_item WHERE request_id = r.id"
            "     AND commitment = r.commitment AND worker IS NULL"
            "     AND outcome = ANY($2::text[])) AS suspect"
            " FROM chain.request r CROSS JOIN LATERAL"
            "     (SELECT octet_length(output) AS bytes FROM node.result n"
            "      WHERE n.request_id = r.id AND n.commitment = r.commitment"
            "      AND n.digest = r.digest LIMIT 1) o"
            " LEFT JOIN chain.worker w ON w.signer = r.worker"
            f" WHERE r.status = 'fulfilled' AND r.delivery = {Delivery.CALLBACK:d}"
            " AND r.callback_delivered_block IS NULL AND r.callback_failures = 0"
            " AND NOT EXISTS (SELECT 1 FROM node.tx_item i WHERE i.request_id = r.id"
            "     AND i.commitment = r.commitment"
            "     AND (i.live OR (i.outcome = 'abandoned' AND i.worker IS NULL)))"
            " ORDER BY r.settled_block, r.id LIMIT $1",
            limit,
            list(FAULTS),
        )
    return [
        Owed(
            request_id=row["id"],
            commitment=row["commitment"],
            callback_gas_limit=row["callback_gas_limit"],
            content_bytes=row["content_bytes"],
            earned_wei=_earned_wei(row["fee_wei"], row["owner"], row["posted"], settings),
            suspect=row["suspect"],
        )
        for row in rows
    ]


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


def _earned_wei(fee_wei: int, owner: Any, posted: bool, settings: SettlementSettings) -> int:
    """Both shares of the fee, each where it came to this operator."""
    poster_wei = fee_wei * settings.poster_bps // _BPS
    owner_wei = fee_wei - poster_wei if owner in settings.own_accounts else 0
    return owner_wei + (poster_wei if posted else 0)
