"""Payments that are held back for a dispute, in the operator's accounts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from indexer.database import Connection
from indexer.types import DAY_S, Address
from inferd.node.accounts import attribute
from inferd.protocol.hold import Hold

# Layout of CreditTransferred: contracts/src/interfaces/ICredits.sol.
RELEASED = """
    SELECT l.tx_hash, l.timestamp_s, l.block_number, l.topics, l.data
    FROM chain.log l, chain.source s
    WHERE l.kind = 'CreditTransferred' AND s.disputes <> ''
      AND l.topics[2] = decode(repeat('00', 12), 'hex') || s.disputes
"""
"""SQL: logs that tell of money that came from the contract that holds payments back."""
_BY_DAY = f"""
    {RELEASED} AND l.timestamp_s >= $1 AND l.timestamp_s < $2 AND l.topics[3] = ANY($3::bytea[])
"""
_OF = f"""
    {RELEASED} AND l.block_number = ANY($1::bigint[]) AND l.tx_hash = ANY($2::bytea[])
      AND l.topics[3] = ANY($3::bytea[])
"""
_CLOSED = """
    SELECT h.*, r.requester FROM chain.hold h
    LEFT JOIN chain.request r ON r.id = h.request_id AND r.commitment = h.commitment
    WHERE h.closed_tx_hash = ANY($1::bytea[]) ORDER BY h.request_id
"""
_HELD = """
    SELECT account, sum(wei) AS wei FROM (
        SELECT poster AS account, poster_wei AS wei FROM chain.hold
        WHERE state IN ('held', 'disputed') AND poster = ANY($1::bytea[])
        UNION ALL
        SELECT share.owner, div(h.payment_wei, cardinality(h.owners))
               + CASE WHEN share.place = 1 THEN mod(h.payment_wei, cardinality(h.owners)) ELSE 0 END
        FROM chain.hold h CROSS JOIN LATERAL unnest(h.owners) WITH ORDINALITY share (owner, place)
        WHERE h.state IN ('held', 'disputed') AND h.owners && $1::bytea[]
    ) share WHERE account = ANY($1::bytea[]) GROUP BY account
"""


async def load_held(connection: Connection, accounts: Collection[Address]) -> dict[Address, int]:
    """What each of the accounts gets where the results that wait now are not found wrong, in wei;
    those that get nothing are left out."""
    rows = await connection.fetch(_HELD, sorted(accounts))
    return {Address(row["account"]): int(row["wei"]) for row in rows}


async def load_released(
    connection: Connection, begin_s: int, end_s: int, accounts: Collection[Address]
) -> list[tuple[int, Address, int]]:
    """Day, account and wei of each payment to one of the accounts."""
    rows = await connection.fetch(_BY_DAY, begin_s, end_s, _padded(accounts))
    return [(row["timestamp_s"] // DAY_S, _to(row), _amount(row)) for row in rows]


async def load_released_by(
    connection: Connection,
    blocks: Sequence[int],
    hashes: Sequence[bytes],
    accounts: Collection[Address],
) -> dict[bytes, tuple[dict[int, int], int]]:
    """By transaction: what came to the accounts for each request, and for none that is still
    known."""
    rows = await connection.fetch(_OF, blocks, hashes, _padded(accounts))
    paid_wei: dict[bytes, int] = {}
    for row in rows:
        paid_wei[row["tx_hash"]] = paid_wei.get(row["tx_hash"], 0) + _amount(row)
    if not paid_wei:
        return {}
    due: dict[bytes, dict[int, int]] = {tx_hash: {} for tx_hash in paid_wei}
    for row in await connection.fetch(_CLOSED, list(paid_wei)):
        due[row["closed_tx_hash"]][row["request_id"]] = due_wei(row, accounts)
    found = {}
    for tx_hash, amount_wei in paid_wei.items():
        theirs = due[tx_hash]
        shares, rest_wei = attribute(amount_wei, list(theirs.values()))
        found[tx_hash] = dict(zip(theirs, shares, strict=True)), rest_wei
    return found


def due_wei(row: Mapping[str, Any], accounts: Collection[Address]) -> int:
    """What the accounts got for one request when its payment was closed, by its row. Pure."""
    held, state = Hold.from_row(row), row["state"]
    bond_wei = held.bond_wei if row["disputer"] in accounts else 0
    if state == "upheld":
        whole_wei = held.payment_wei + held.poster_wei
        return bond_wei + (whole_wei if row["requester"] in accounts else 0)
    if state == "rejected":
        return held.due_to(accounts, also_wei=held.bond_wei)
    return held.due_to(accounts) + (bond_wei if state == "lapsed" else 0)


def _padded(accounts: Collection[Address]) -> list[bytes]:
    return [bytes(12) + account for account in sorted(accounts)]


def _to(row: Mapping[str, Any]) -> Address:
    return Address(row["topics"][2][12:])


def _amount(row: Mapping[str, Any]) -> int:
    return int.from_bytes(row["data"][:32], "big")
