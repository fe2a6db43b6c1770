"""Reads what each request earned and cost, transaction by transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

from indexer.database import Connection
from indexer.types import Address
from inferd.node.account_holds import RELEASED, load_released_by
from inferd.node.account_rows import BOND, CANONICAL, COST
from inferd.node.accounts import Line, Period, attribute, fee_shares, split
from inferd.settlement.delivery_gas import claim_gas

_AT_ONCE = 100
"""Transactions that are read together."""

Item = tuple[int, str, int | None]
"""Request, outcome, and the most that its call takes: of a delivery whose request is still here."""

_TRANSACTIONS = f"""
    SELECT tx_hash, min(at_s) AS at_s, min(block_number) AS block_number FROM (
        SELECT a.hash AS tx_hash, a.mined_at_s AS at_s, a.mined_block AS block_number
        FROM node.tx_attempt a WHERE a.mined_at_s >= $1 AND a.mined_at_s < $2 AND {CANONICAL}
        UNION ALL
        SELECT l.tx_hash, l.timestamp_s, l.block_number
        FROM chain.log l JOIN chain.payment p
          ON p.block_hash = l.block_hash AND p.log_index = l.log_index
        WHERE l.kind IN ('WorkerPaid', 'PosterPaid') AND l.timestamp_s >= $1
          AND l.timestamp_s < $2 AND p.account = ANY($3::bytea[])
        UNION ALL
        SELECT tx_hash, timestamp_s, block_number FROM ({RELEASED}) released
        WHERE timestamp_s >= $1 AND timestamp_s < $2 AND topics[3] = ANY($4::bytea[])
    ) each_one
    GROUP BY tx_hash ORDER BY at_s, block_number, tx_hash
"""  # noqa: S608 - constants
_TRANSACTIONS_OF = f"""
    SELECT tx_hash, min(at_s) AS at_s, min(block_number) AS block_number FROM (
        SELECT a.hash AS tx_hash, a.mined_at_s AS at_s, a.mined_block AS block_number
        FROM chain.request r JOIN node.tx_item i
          ON i.request_id = r.id AND i.commitment = r.commitment
        JOIN node.tx_attempt a ON a.intent_id = i.intent_id
        WHERE r.id = $1 AND a.mined_at_s IS NOT NULL AND {CANONICAL}
        UNION ALL
        SELECT r.settled_tx_hash, l.timestamp_s, l.block_number
        FROM chain.request r JOIN chain.log l
          ON l.request_id = r.id AND l.block_number = r.settled_block
        WHERE r.id = $1 AND r.settled_tx_hash IS NOT NULL
        UNION ALL
        SELECT closed_tx_hash, closed_at_s, closed_block FROM chain.hold
        WHERE request_id = $1 AND closed_tx_hash IS NOT NULL
    ) each_one
    GROUP BY tx_hash ORDER BY at_s, block_number, tx_hash
"""  # noqa: S608 - constants
_COSTS = f"""
    SELECT a.hash AS tx_hash, t.kind, {COST} AS gas_wei, {BOND} AS bond_wei, a.intent_id
    FROM node.tx_attempt a JOIN node.tx_intent t ON t.id = a.intent_id
    WHERE a.hash = ANY($1::bytea[]) AND {CANONICAL}
"""  # noqa: S608 - constants
_ITEMS = """
    SELECT intent_id, request_id, commitment, outcome FROM node.tx_item
    WHERE intent_id = ANY($1::bigint[]) ORDER BY request_id, commitment
"""
_CALLS = """
    SELECT id, commitment, callback_gas_limit, octet_length(input) AS input_bytes
    FROM chain.request WHERE id = ANY($1::bigint[])
"""
_PAID = """
    SELECT tx_hash, role, account, worker, amount_wei FROM chain.payment
    WHERE block_number = ANY($1::bigint[]) AND tx_hash = ANY($2::bytea[])
"""
# Who of a quorum signed beside the worker that the event names is known of the node's own posts.
_SETTLED = """
    SELECT settled_tx_hash AS tx_hash, id, worker, fee_wei, quorum,
           CASE WHEN quorum > 1 THEN (
               SELECT i.others FROM node.tx_item i
               WHERE i.request_id = r.id AND i.commitment = r.commitment AND i.worker = r.worker
                 AND i.outcome = 'settled' LIMIT 1) END AS others
    FROM chain.request r
    WHERE settled_tx_hash = ANY($1::bytea[]) AND status = 'fulfilled' ORDER BY id
"""


async def load_lines(
    connection: Connection, period: Period, accounts: Collection[Address]
) -> AsyncIterator[Line]:
    """A line for each request in each transaction of the period, oldest first. Their sums are those
    of the report, without what was forgotten."""
    own = frozenset(accounts)
    found = await connection.fetch(
        _TRANSACTIONS,
        period.begin_s,
        period.end_s,
        sorted(own),
        [bytes(12) + account for account in sorted(own)],
    )
    for start in range(0, len(found), _AT_ONCE):
        for line in await _lines(connection, found[start : start + _AT_ONCE], own):
            yield line


async def load_lines_of(
    connection: Connection, request_id: int, accounts: Collection[Address]
) -> list[Line]:
    """Those of one request; none where its row is forgotten."""
    found = await connection.fetch(_TRANSACTIONS_OF, request_id)
    lines = await _lines(connection, found, frozenset(accounts))
    return [line for line in lines if line.request_id == request_id]


async def _lines(
    connection: Connection, transactions: Sequence[Any], own: frozenset[Address]
) -> list[Line]:
    hashes = [row["tx_hash"] for row in transactions]
    blocks = sorted({row["block_number"] for row in transactions})
    costs = {row["tx_hash"]: row for row in await connection.fetch(_COSTS, hashes)}
    intents = [row["intent_id"] for row in costs.values()]
    items = _grouped(await connection.fetch(_ITEMS, intents), "intent_id")
    called = [
        item["request_id"]
        for row in costs.values()
        if row["kind"] == "deliver"
        for item in items.get(row["intent_id"], ())
    ]
    call_gas = {
        (row["id"], row["commitment"]): claim_gas(row["callback_gas_limit"], row["input_bytes"])
        for row in (await connection.fetch(_CALLS, called) if called else ())
    }
    paid = _grouped(await connection.fetch(_PAID, blocks, hashes), "tx_hash")
    settled = _grouped(await connection.fetch(_SETTLED, hashes), "tx_hash")
    released = await load_released_by(connection, blocks, hashes, own)
    lines = []
    for row in transactions:
        cost = costs.get(row["tx_hash"])
        theirs = () if cost is None else items.get(cost["intent_id"], ())
        lines += lines_of_transaction(
            row["at_s"],
            row["tx_hash"],
            cost,
            [
                (
                    i["request_id"],
                    i["outcome"] or "",
                    call_gas.get((i["request_id"], i["commitment"])),
                )
                for i in theirs
            ],
            paid.get(row["tx_hash"], ()),
            settled.get(row["tx_hash"], ()),
            own,
            released.get(row["tx_hash"], ({}, 0)),
        )
    return lines


def lines_of_transaction(
    at_s: int,
    tx_hash: bytes,
    cost: Mapping[str, Any] | None,
    items: Sequence[Item],
    paid: Sequence[Mapping[str, Any]],
    settled: Sequence[Mapping[str, Any]],
    own: frozenset[Address],
    released: tuple[Mapping[int, int], int] = ({}, 0),
) -> list[Line]:
    """The parts of a transaction that requests have, and one more of what belongs to none. Pure.

    Gas is shared evenly, save for deliveries: there each weighs what its call takes at most.
    `cost`, `paid` and `settled` are rows of the tables, `released` is what came from the contract
    that holds payments back, by request, and for none of them.
    """
    gas, spare_gas_wei = _gas_shares(cost, items)
    poster, worker, spare_poster_wei, spare_worker_wei = _fee_shares(paid, settled, own)
    outcomes = {request_id: outcome for request_id, outcome, _ in items}
    kind = cost["kind"] if cost else "foreign"
    released_wei, spare_released_wei = released
    bond_wei = int(cost["bond_wei"]) if cost else 0
    bonds = dict.fromkeys(outcomes, bond_wei) if len(outcomes) == 1 else {}
    lines = []
    for request_id in sorted({*outcomes, *poster, *worker, *released_wei}):
        part = (
            poster.get(request_id, 0),
            worker.get(request_id, 0),
            gas.get(request_id, 0),
            released_wei.get(request_id, 0),
            bonds.get(request_id, 0),
        )
        if request_id in outcomes or any(part):
            otherwise = "released" if request_id in released_wei else "settled"
            outcome = outcomes.get(request_id, otherwise)
            lines.append(Line(at_s, tx_hash, request_id, kind, outcome, *part))
    spare = (
        spare_poster_wei,
        spare_worker_wei,
        spare_gas_wei,
        spare_released_wei,
        0 if bonds else bond_wei,
    )
    if any(spare):
        lines.append(Line(at_s, tx_hash, None, kind, "", *spare))
    return lines


def _gas_shares(
    cost: Mapping[str, Any] | None, items: Sequence[Item]
) -> tuple[dict[int, int], int]:
    """By request, and what belongs to none."""
    gas_wei = int(cost["gas_wei"]) if cost is not None else 0
    if not items:
        return {}, gas_wei
    known = [call_gas for _, _, call_gas in items if call_gas is not None]
    weights = known if len(known) == len(items) else [1] * len(items)
    shares: defaultdict[int, int] = defaultdict(int)
    for (request_id, _, _), share_wei in zip(items, split(gas_wei, weights), strict=True):
        shares[request_id] += share_wei
    return shares, 0


def _fee_shares(
    paid: Sequence[Mapping[str, Any]],
    settled: Sequence[Mapping[str, Any]],
    own: frozenset[Address],
) -> tuple[dict[int, int], dict[int, int], int, int]:
    """The poster's and the workers' share that came to the operator, by request; and of both what
    belongs to none of them."""
    all_wei = sum(int(one["amount_wei"]) for one in paid)
    to_posters_wei = sum(int(one["amount_wei"]) for one in paid if one["role"] == "poster")
    due = {one["id"]: fee_shares(int(one["fee_wei"]), to_posters_wei, all_wei) for one in settled}
    own_poster_wei = sum(
        int(one["amount_wei"]) for one in paid if one["role"] == "poster" and one["account"] in own
    )
    poster: dict[int, int] = {}
    spare_poster_wei = own_poster_wei
    if own_poster_wei:
        shares, spare_poster_wei = attribute(own_poster_wei, [p for p, _ in due.values()])
        poster = dict(zip(due, shares, strict=True))
    by_worker: defaultdict[bytes, int] = defaultdict(int)
    for one in paid:
        if one["role"] == "worker" and one["account"] in own:
            by_worker[one["worker"]] += int(one["amount_wei"])
    worker: defaultdict[int, int] = defaultdict(int)
    spare_worker_wei = 0
    for address, amount_wei in by_worker.items():
        theirs = {
            one["id"]: _worker_share(due[one["id"]][1], one, address)
            for one in settled
            if address in (one["worker"], *(one["others"] or ()))
        }
        shares, rest_wei = attribute(amount_wei, list(theirs.values()))
        for request_id, share_wei in zip(theirs, shares, strict=True):
            worker[request_id] += share_wei
        spare_worker_wei += rest_wei
    return poster, worker, spare_poster_wei, spare_worker_wei


def _worker_share(fees_wei: int, settled: Mapping[str, Any], worker: bytes) -> int:
    """Of the workers' part of a fee: all of it, or of a quorum an equal share, and what does not
    divide to the worker that the event names."""
    quorum: int = settled["quorum"]
    share_wei, rest_wei = divmod(fees_wei, quorum)
    return share_wei + rest_wei if worker == settled["worker"] else share_wei


def _grouped(rows: Sequence[Any], column: str) -> dict[Any, list[Any]]:
    found: defaultdict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        found[row[column]].append(row)
    return found
