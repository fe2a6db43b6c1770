"""Reads back what the tables hold of blocks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from indexer import sql
from indexer.database import Connection
from indexer.rpc.types import RawLog
from indexer.types import Hash32

_LOGS: Final = """
    SELECT block_hash, log_index, block_number, tx_hash, tx_index, address, topics, data
    FROM {table} WHERE block_number = ANY($1::bigint[]) ORDER BY block_number, log_index
"""
_SELECT_LOGS: Final = _LOGS.format(table="chain.log")
_SELECT_QUARANTINED: Final = _LOGS.format(table="chain.quarantine")
_SELECT_BLOCKS_WITH_ROWS: Final = """
    SELECT DISTINCT block_number, timestamp_s FROM chain.log WHERE block_number BETWEEN $1 AND $2
    UNION ALL SELECT block_number, NULL FROM chain.quarantine WHERE block_number BETWEEN $1 AND $2
    UNION ALL SELECT block_number, NULL FROM chain.payment WHERE block_number BETWEEN $1 AND $2
    UNION ALL SELECT block_number, NULL FROM chain.terms WHERE block_number BETWEEN $1 AND $2
"""
_SELECT_HASHES: Final = "SELECT number, hash FROM chain.block WHERE number BETWEEN $1 AND $2"
_SELECT_FORGOTTEN: Final = """
    SELECT request_id FROM chain.forgotten WHERE request_id = ANY($1::bigint[])
"""
# Forgotten requests are of final blocks.
_SELECT_NEWEST_REQUEST: Final = """
    SELECT greatest(r.id, (SELECT max(request_id) FROM chain.forgotten), 0) AS id,
           coalesce(r.created_block, 0) AS block_number
    FROM (SELECT) one LEFT JOIN LATERAL (
        SELECT id, created_block FROM chain.request WHERE created_block <= $1
        ORDER BY id DESC LIMIT 1
    ) r ON true
"""
_SELECT_REACH: Final = "SELECT block_number, finalized_number FROM chain.cursor"


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the tables go."""

    cursor: int
    finalized: int


@dataclass(frozen=True, slots=True)
class RangeOutline:
    """What the tables know of a range of blocks, without the logs themselves."""

    times_s: dict[int, set[int]]
    """Of the blocks that have rows, as stored with their logs; quarantined ones have none."""
    hashes: dict[int, Hash32]
    """Of the blocks whose headers are remembered."""


@dataclass(frozen=True, slots=True)
class NewestRequest:
    """The highest number that was given out."""

    request_id: int
    """0 before the first."""
    block_number: int
    """Not above the block it was asked in."""


async def load_newest_request(connection: Connection, up_to: int) -> NewestRequest:
    """Of those that were asked up to a block."""
    (row,) = await connection.fetch(_SELECT_NEWEST_REQUEST, up_to)
    return NewestRequest(row["id"], row["block_number"])


async def load_reach(connection: Connection) -> Reach | None:
    """None before the first indexed block."""
    row = await connection.fetchrow(_SELECT_REACH)
    return None if row is None else Reach(row["block_number"], row["finalized_number"])


async def load_outline(connection: Connection, first: int, last: int) -> RangeOutline:
    """Of blocks `first` to `last`, both included."""
    blocks = await connection.fetch(_SELECT_BLOCKS_WITH_ROWS, first, last)
    hashes = await connection.fetch(_SELECT_HASHES, first, last)
    times_s: dict[int, set[int]] = {row["block_number"]: set() for row in blocks}
    for row in blocks:
        if row["timestamp_s"] is not None:
            times_s[row["block_number"]].add(row["timestamp_s"])
    return RangeOutline(times_s, {row["number"]: row["hash"] for row in hashes})


async def load_forgotten(connection: Connection, ids: Collection[int]) -> set[int]:
    """Those of the requests whose rows were deleted after the retention time."""
    rows = await connection.fetch(_SELECT_FORGOTTEN, list(ids))
    return {row["request_id"] for row in rows}


async def load_logs(connection: Connection, numbers: Collection[int]) -> dict[int, list[RawLog]]:
    """The stored logs of each block in order, quarantined ones included."""
    found: dict[int, list[RawLog]] = {number: [] for number in numbers}
    for query in (_SELECT_LOGS, _SELECT_QUARANTINED):
        for row in await connection.fetch(query, list(numbers)):
            found[row["block_number"]].append(sql.raw_log(row))
    for logs in found.values():
        logs.sort(key=lambda log: log.log_index)
    return found
