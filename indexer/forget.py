"""Settled requests that nobody needs any more: which they are, and how they go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from indexer import sql
from indexer.database import Connection

_HORIZON: Final = """
    SELECT least((SELECT min(number) - 1 FROM chain.block),
                 coalesce((SELECT block_number FROM chain.recheck), -1)) AS block_number
"""
"""No block up to it can be reorganised away, and each was compared with the chain once more."""

_CALLBACK: Final = 2
_DONE: Final = f"""
           NOT (r.status = 'fulfilled' AND r.delivery = {_CALLBACK}
                AND r.callback_delivered_block IS NULL)
           AND NOT EXISTS (SELECT FROM chain.log
                           WHERE request_id = r.id AND block_number > horizon.block_number)
           AND (NOT EXISTS (SELECT FROM chain.log
                            WHERE request_id = r.id AND kind = 'PaymentHeld')
                OR EXISTS (SELECT FROM chain.log WHERE request_id = r.id
                           AND kind IN ('PaymentReleased', 'DisputeRuled', 'DisputeLapsed')))
"""  # noqa: S608 - a constant
_SELECT_SETTLED: Final = f"""
    SELECT r.id, r.commitment, r.settled_block, r.status::text AS status,
           settling.timestamp_s < $1 AS old, {_DONE} AS done
    FROM ({_HORIZON}) horizon
    CROSS JOIN LATERAL (SELECT * FROM chain.request
                        WHERE settled_block <= horizon.block_number
                          AND (settled_block, id) > ($2, $3)
                        ORDER BY settled_block, id LIMIT $4) r
    CROSS JOIN LATERAL (SELECT max(timestamp_s) AS timestamp_s FROM chain.log
                        WHERE request_id = r.id AND block_number = r.settled_block) settling
    ORDER BY r.settled_block, r.id
"""  # noqa: S608 - constants
_SELECT_DONE: Final = f"""
    SELECT r.id, r.commitment FROM ({_HORIZON}) horizon
    CROSS JOIN unnest($1::bigint[], $2::bytea[]) AS one (id, commitment)
    JOIN chain.request r ON r.id = one.id AND r.commitment = one.commitment
    WHERE r.settled_block <= horizon.block_number AND {_DONE}
"""  # noqa: S608 - constants
_DELETE_LOGS: Final = "DELETE FROM chain.log WHERE request_id = ANY($1::bigint[])"
_INSERT_FORGOTTEN: Final = (
    "INSERT INTO chain.forgotten SELECT * FROM unnest($1::bigint[], $2::bigint[])"
)
_SELECT_FORGOTTEN: Final = "SELECT settled_block FROM chain.forgotten WHERE request_id = $1"
_COUNT_ON: Final = f"""
    UPDATE chain.tally t
    SET to_block = greatest(t.to_block, horizon.block_number),
        fulfilled = t.fulfilled + fresh.fulfilled, refunded = t.refunded + fresh.refunded
    FROM ({_HORIZON}) horizon CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE status = 'fulfilled') AS fulfilled,
               count(*) FILTER (WHERE status = 'refunded') AS refunded
        FROM chain.request
        WHERE settled_block > (SELECT to_block FROM chain.tally)
          AND settled_block <= horizon.block_number
    ) fresh
    WHERE horizon.block_number IS NOT NULL
"""  # noqa: S608 - constants
_MOVE_COUNTS: Final = """
    UPDATE chain.tally SET fulfilled = fulfilled - $1, refunded = refunded - $2,
        forgotten_fulfilled = forgotten_fulfilled + $1, forgotten_refunded = forgotten_refunded + $2
"""
_SELECT_COUNTS: Final = """
    SELECT t.fulfilled + t.forgotten_fulfilled + fresh.fulfilled AS fulfilled,
           (SELECT count(*) FROM chain.request WHERE status = 'pending') AS pending,
           t.refunded + t.forgotten_refunded + fresh.refunded AS refunded
    FROM chain.tally t CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE status = 'fulfilled') AS fulfilled,
               count(*) FILTER (WHERE status = 'refunded') AS refunded
        FROM chain.request WHERE settled_block > t.to_block
    ) fresh
"""


@dataclass(frozen=True, slots=True)
class SettledRequest:
    """One that was settled so long ago that no reorganisation can change it."""

    id: int
    commitment: bytes
    settled_block: int
    status: str
    """'fulfilled' or 'refunded'"""
    old: bool
    """Settled before the time that was asked for."""
    done: bool
    """Its consumer was called, its payment is not held back, and nothing came of late."""


async def load_settled(
    connection: Connection,
    *,
    settled_before_s: int,
    after: SettledRequest | None,
    limit: int,
) -> list[SettledRequest]:
    """Longest settled first, those after `after`; `settled_before_s` is a time of the chain."""
    place = (-1, -1) if after is None else (after.settled_block, after.id)
    rows = await connection.fetch(_SELECT_SETTLED, settled_before_s, *place, limit)
    return [SettledRequest(**dict(row)) for row in rows]


async def done_among(
    connection: Connection, requests: Sequence[tuple[int, bytes]]
) -> list[tuple[int, bytes]]:
    """Those of the requests, by id and commitment, that are settled for good and that nobody waits
    for."""
    rows = await connection.fetch(
        _SELECT_DONE, [one for one, _ in requests], [commitment for _, commitment in requests]
    )
    return [(row["id"], row["commitment"]) for row in rows]


async def lock_chain(connection: Connection) -> None:
    """Holds off whoever changes the chain's tables until the caller's transaction ends."""
    await connection.fetchval(sql.LOCK_CURSOR)


async def forget(connection: Connection, requests: Sequence[SettledRequest]) -> None:
    """Deletes their rows and logs, in a transaction that has called `lock_chain` and `count_on`."""
    ids = [one.id for one in requests]
    await connection.execute(_DELETE_LOGS, ids)
    await connection.execute(sql.DELETE_REQUESTS, ids)
    await connection.execute(sql.DELETE_HOLDS, ids)
    await connection.execute(_INSERT_FORGOTTEN, ids, [one.settled_block for one in requests])
    statuses = Counter(one.status for one in requests)
    await connection.execute(_MOVE_COUNTS, statuses["fulfilled"], statuses["refunded"])


async def settled_block_of_forgotten(connection: Connection, request_id: int) -> int | None:
    """When a request was settled whose rows are deleted; None for any other."""
    block: int | None = await connection.fetchval(_SELECT_FORGOTTEN, request_id)
    return block


async def count_on(connection: Connection) -> None:
    """Brings the tally up to the newest block that no reorganisation can take."""
    await connection.execute(_COUNT_ON)


async def count_requests(connection: Connection) -> dict[str, int]:
    """All requests there ever were, by status."""
    row = await connection.fetchrow(_SELECT_COUNTS)
    return {} if row is None else {name: count for name, count in row.items() if count}
