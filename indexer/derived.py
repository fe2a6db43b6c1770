"""Compares rows that derive from logs with the logs they derive from. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from indexer.compare import Difference, Kind
from indexer.database import Connection
from indexer.decode import Decoder
from indexer.derive import (
    LocatedEvent,
    PaymentRow,
    RequestRow,
    WorkerRow,
    payments,
    request_of,
    worker_of,
)
from indexer.events import kind_of
from indexer.holds import HoldRow, TermsRow, terms
from indexer.refold import HOLDS, REQUESTS, WORKERS, folded, located
from indexer.types import Address

_SELECT_LOGS: Final = """
    SELECT block_hash, log_index, block_number, tx_hash, tx_index, address, topics, data,
           timestamp_s, kind, request_id, worker
    FROM chain.log WHERE block_number BETWEEN $1 AND $2 ORDER BY block_number, log_index
"""
_SELECT_REQUESTS_CREATED: Final = """
    SELECT id FROM chain.request WHERE created_block BETWEEN $1 AND $2
"""
_SELECT_HELD: Final = """
    SELECT request_id AS id FROM chain.hold WHERE held_block BETWEEN $1 AND $2
"""
_SELECT_WORKERS_REGISTERED: Final = """
    SELECT signer FROM chain.worker WHERE registered_block BETWEEN $1 AND $2
"""


def _select(row: type[msgspec.Struct], table: str, condition: str) -> str:
    columns = ", ".join(row.__struct_fields__)
    return f"SELECT {columns} FROM {table} WHERE {condition}"  # noqa: S608 - constants


_SELECT_REQUESTS: Final = _select(RequestRow, "chain.request", "id = ANY($1::bigint[])")
_SELECT_WORKERS: Final = _select(WorkerRow, "chain.worker", "signer = ANY($1::bytea[])")
_SELECT_HOLDS: Final = _select(HoldRow, "chain.hold", "request_id = ANY($1::bigint[])")
_SELECT_TERMS: Final = _select(TermsRow, "chain.terms", "block_number BETWEEN $1 AND $2")
_SELECT_PAYMENTS: Final = _select(PaymentRow, "chain.payment", "block_number BETWEEN $1 AND $2")


@dataclass(frozen=True, slots=True)
class DerivedCheck:
    """What was found, and whose rows have to be folded anew."""

    differences: list[Difference] = field(default_factory=list)
    requests: set[int] = field(default_factory=set)
    workers: set[Address] = field(default_factory=set)


async def check_derived(
    connection: Connection, decoder: Decoder, first: int, last: int
) -> DerivedCheck:
    """What derives from logs of blocks `first` to `last`, both included; the caller's transaction
    should be REPEATABLE READ. Of each request and worker with a log in these blocks the whole
    history is folded."""
    found = DerivedCheck()
    events = []
    for row in await connection.fetch(_SELECT_LOGS, first, last):
        item = located(decoder, row)
        if item is None or not _columns_follow(row, item):
            subject = f"log {row['log_index']} of 0x{row['tx_hash'].hex()}"
            found.differences.append(Difference(Kind.DIFFERING_LOG, row["block_number"], subject))
        if item is not None:
            events.append(item)
    await _check_requests(connection, decoder, events, first, last, found)
    await _check_workers(connection, decoder, events, first, last, found)
    expected_payments = {(row.block_hash, row.log_index): row for row in payments(events)}
    stored_payments = {
        (row["block_hash"], row["log_index"]): PaymentRow(**dict(row))
        for row in await connection.fetch(_SELECT_PAYMENTS, first, last)
    }
    for key in _differing(expected_payments, stored_payments):
        one = stored_payments.get(key) or expected_payments[key]
        subject = f"payment {one.log_index} of 0x{one.tx_hash.hex()}"
        found.differences.append(Difference(Kind.WRONG_PAYMENT, one.block_number, subject))
    expected_terms = {(row.block_hash, row.log_index): row for row in terms(events)}
    stored_terms = {
        (row["block_hash"], row["log_index"]): TermsRow(**dict(row))
        for row in await connection.fetch(_SELECT_TERMS, first, last)
    }
    for key in _differing(expected_terms, stored_terms):
        change = stored_terms.get(key) or expected_terms[key]
        subject = f"terms of model 0x{change.model_id.hex()}"
        found.differences.append(Difference(Kind.WRONG_TERMS, change.block_number, subject))
    return found


async def _check_requests(
    connection: Connection,
    decoder: Decoder,
    events: Iterable[LocatedEvent],
    first: int,
    last: int,
    found: DerivedCheck,
) -> None:
    created = await connection.fetch(_SELECT_REQUESTS_CREATED, first, last)
    held = await connection.fetch(_SELECT_HELD, first, last)
    ids = {row["id"] for row in (*created, *held)}
    ids.update(filter(None, (request_of(item.event) for item in events)))
    expected = await folded(connection, decoder, REQUESTS, ids)
    stored = {
        row["id"]: RequestRow(**dict(row))
        for row in await connection.fetch(_SELECT_REQUESTS, list(ids))
    }
    for request_id in _differing(expected, stored):
        found.requests.add(request_id)
        found.differences.append(Difference(Kind.WRONG_REQUEST, None, f"request {request_id}"))
    expected_holds = await folded(connection, decoder, HOLDS, ids)
    stored_holds = {
        row["request_id"]: HoldRow(
            **dict(row) | {"workers": tuple(row["workers"]), "owners": tuple(row["owners"])}
        )
        for row in await connection.fetch(_SELECT_HOLDS, list(ids))
    }
    for request_id in _differing(expected_holds, stored_holds):
        found.requests.add(request_id)
        found.differences.append(Difference(Kind.WRONG_HOLD, None, f"payment of {request_id}"))


async def _check_workers(
    connection: Connection,
    decoder: Decoder,
    events: Iterable[LocatedEvent],
    first: int,
    last: int,
    found: DerivedCheck,
) -> None:
    registered = await connection.fetch(_SELECT_WORKERS_REGISTERED, first, last)
    signers = {row["signer"] for row in registered}
    signers.update(filter(None, (worker_of(item.event) for item in events)))
    expected = await folded(connection, decoder, WORKERS, signers)
    stored = {
        row["signer"]: WorkerRow(**dict(row) | {"models": tuple(row["models"])})
        for row in await connection.fetch(_SELECT_WORKERS, list(signers))
    }
    for signer in _differing(expected, stored):
        found.workers.add(signer)
        found.differences.append(Difference(Kind.WRONG_WORKER, None, f"worker 0x{signer.hex()}"))


def _differing(expected: Mapping[Any, Any], stored: Mapping[Any, Any]) -> list[Any]:
    """The keys whose values are not equal; a value of None is no row."""
    keys = expected.keys() | stored.keys()
    return sorted(key for key in keys if expected.get(key) != stored.get(key))


def _columns_follow(row: Mapping[str, Any], item: LocatedEvent) -> bool:
    event = item.event
    says = (row["kind"], row["request_id"], row["worker"])
    return bool(says == (kind_of(event), request_of(event), worker_of(event)))
