"""The statements of the store, and values in the order of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from indexer.derive import (
    LocatedEvent,
    PaymentRow,
    RequestRow,
    WorkerRow,
    request_of,
    worker_of,
)
from indexer.events import kind_of
from indexer.holds import HoldRow, TermsRow
from indexer.rpc.types import RawLog


def _columns(row: type[msgspec.Struct]) -> tuple[str, ...]:
    return row.__struct_fields__


def _insert(table: str, columns: Sequence[str]) -> str:
    places = ", ".join(f"${place}" for place in range(1, len(columns) + 1))
    # Only names that stand in this package are put in.
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608


def _upsert(table: str, columns: Sequence[str]) -> str:
    """The first column is the key."""
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns[1:])
    return f"{_insert(table, columns)} ON CONFLICT ({columns[0]}) DO UPDATE SET {changes}"


BLOCK_COLUMNS: Final = (
    "number",
    "hash",
    "parent_hash",
    "timestamp_s",
    "base_fee_wei",
    "gas_used",
    "gas_limit",
)
_RAW_COLUMNS: Final = _columns(RawLog)
LOG_COLUMNS: Final = (*_RAW_COLUMNS, "timestamp_s", "kind", "request_id", "worker")
QUARANTINE_COLUMNS: Final = (*_RAW_COLUMNS, "reason")
REQUEST_COLUMNS: Final = _columns(RequestRow)
PAYMENT_COLUMNS: Final = _columns(PaymentRow)
TERMS_COLUMNS: Final = _columns(TermsRow)

block_values = attrgetter(*BLOCK_COLUMNS)
request_values = payment_values = terms_values = astuple
"""The fields of these rows are the columns."""


def log_values(item: LocatedEvent) -> tuple[Any, ...]:
    event = item.event
    return (
        *astuple(item.log),
        item.timestamp_s,
        kind_of(event),
        request_of(event),
        worker_of(event),
    )


def raw_log(row: Mapping[str, Any]) -> RawLog:
    """The log of a row of chain.log or chain.quarantine."""
    return RawLog(
        address=row["address"],
        topics=tuple(row["topics"]),
        data=row["data"],
        block_number=row["block_number"],
        block_hash=row["block_hash"],
        tx_hash=row["tx_hash"],
        tx_index=row["tx_index"],
        log_index=row["log_index"],
    )


def quarantine_values(log: RawLog, reason: str) -> tuple[Any, ...]:
    return (*astuple(log), reason)


UPSERT_REQUEST: Final = _upsert("chain.request", REQUEST_COLUMNS)
UPSERT_WORKER: Final = _upsert("chain.worker", _columns(WorkerRow))
UPSERT_HOLD: Final = _upsert("chain.hold", _columns(HoldRow))

INSERT_SOURCE: Final = """
    INSERT INTO chain.source
        (chain_id, genesis_hash, start_block, requests, results, registry, stakes, disputes)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (singleton) DO NOTHING
"""
SELECT_SOURCE: Final = """
    SELECT chain_id, genesis_hash, start_block, requests, results, registry, stakes, disputes
    FROM chain.source
"""

SELECT_CURSOR: Final = """
    SELECT block_number, block_hash, timestamp_s, base_fee_wei, gas_limit, finalized_number
    FROM chain.cursor
"""
INSERT_CURSOR: Final = """
    INSERT INTO chain.cursor
        (block_number, block_hash, timestamp_s, base_fee_wei, gas_limit, finalized_number)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (singleton) DO NOTHING
    RETURNING block_number
"""
UPDATE_CURSOR: Final = """
    UPDATE chain.cursor
    SET block_number = $1, block_hash = $2, timestamp_s = $3, base_fee_wei = $4, gas_limit = $5,
        finalized_number = $6, updated_at = now()
    WHERE block_number = $7 AND block_hash = $8
    RETURNING block_number
"""

SELECT_BLOCKS: Final = "SELECT number, hash, parent_hash FROM chain.block ORDER BY number"
PRUNE_BLOCKS: Final = "DELETE FROM chain.block WHERE number < $1"
DELETE_TERMS_ABOVE: Final = "DELETE FROM chain.terms WHERE block_number > $1"
DELETE_BLOCKS_ABOVE: Final = "DELETE FROM chain.block WHERE number > $1"
DELETE_LOGS_ABOVE: Final = """
    DELETE FROM chain.log WHERE block_number > $1 RETURNING request_id, worker
"""
DELETE_QUARANTINE_ABOVE: Final = "DELETE FROM chain.quarantine WHERE block_number > $1"
DELETE_PAYMENTS_ABOVE: Final = "DELETE FROM chain.payment WHERE block_number > $1"
DELETE_LOGS_OF: Final = """
    DELETE FROM chain.log WHERE block_number = ANY($1::bigint[])
    RETURNING block_hash, log_index, request_id, worker
"""
DELETE_QUARANTINE_OF: Final = """
    DELETE FROM chain.quarantine WHERE block_number = ANY($1::bigint[])
"""
DELETE_PAYMENTS_OF: Final = "DELETE FROM chain.payment WHERE block_number = ANY($1::bigint[])"
DELETE_TERMS_OF: Final = "DELETE FROM chain.terms WHERE block_number = ANY($1::bigint[])"
LOCK_CURSOR: Final = "SELECT block_number FROM chain.cursor FOR UPDATE"
SELECT_HASHES: Final = "SELECT number, hash FROM chain.block WHERE number = ANY($1::bigint[])"
COUNT_ANEW: Final = "UPDATE chain.tally SET to_block = -1, fulfilled = 0, refunded = 0"
COUNT_QUARANTINED: Final = "SELECT count(*) FROM chain.quarantine"

SELECT_LAST_REQUEST: Final = "SELECT max(id) FROM chain.request"
SELECT_EXISTING_REQUESTS: Final = "SELECT id FROM chain.request WHERE id = ANY($1::bigint[])"
DELETE_REQUESTS: Final = "DELETE FROM chain.request WHERE id = ANY($1::bigint[])"
DELETE_HOLDS: Final = "DELETE FROM chain.hold WHERE request_id = ANY($1::bigint[])"
DELETE_WORKERS: Final = "DELETE FROM chain.worker WHERE signer = ANY($1::bytea[])"
SELECT_REQUEST_LOGS: Final = """
    SELECT block_hash, log_index, block_number, tx_hash, tx_index, address, topics, data,
           timestamp_s
    FROM chain.log
    WHERE request_id = ANY($1::bigint[]) AND kind = ANY($2::text[])
    ORDER BY block_number, log_index
"""
SELECT_WORKER_LOGS: Final = """
    SELECT block_hash, log_index, block_number, tx_hash, tx_index, address, topics, data,
           timestamp_s
    FROM chain.log
    WHERE worker = ANY($1::bytea[]) AND kind = ANY($2::text[])
    ORDER BY block_number, log_index
"""
SELECT_UNFOLDED_HOLDS: Final = """
    SELECT DISTINCT request_id FROM chain.log l
    WHERE kind = 'PaymentHeld' AND request_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM chain.hold h WHERE h.request_id = l.request_id)
"""
SELECT_UNDERIVED_TERMS: Final = """
    SELECT block_hash, log_index, block_number, tx_hash, tx_index, address, topics, data,
           timestamp_s
    FROM chain.log l
    WHERE kind = 'ModelTermsSet'
      AND NOT EXISTS (SELECT FROM chain.terms t
                      WHERE t.block_hash = l.block_hash AND t.log_index = l.log_index)
    ORDER BY block_number, log_index
"""

NOTIFY: Final = "SELECT pg_notify($1, $2)"
