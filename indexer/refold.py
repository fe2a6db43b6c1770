"""Rows of requests and workers, written anew from all of their stored logs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from msgspec.structs import astuple

from indexer import sql
from indexer.abi import UndecodableLog
from indexer.database import Connection
from indexer.decode import Decoder
from indexer.derive import (
    REQUEST_KINDS,
    WORKER_KINDS,
    LocatedEvent,
    fold_request,
    fold_worker,
    request_of,
    worker_of,
)
from indexer.events import Event
from indexer.holds import HOLD_KINDS, fold_hold
from indexer.types import Address

S = TypeVar("S")

log = structlog.get_logger("indexer")


@dataclass(frozen=True, slots=True)
class Derived(Generic[S]):
    """One kind of rows that derive from logs; `S` is what tells them apart."""

    select_logs: str
    """In chain order, of the subjects $1 and the kinds $2."""
    kinds: tuple[str, ...]
    subject_of: Callable[[Event], S | None]
    fold: Callable[[Iterable[LocatedEvent]], msgspec.Struct | None]
    delete: str
    upsert: str


REQUESTS: Final[Derived[int]] = Derived(
    sql.SELECT_REQUEST_LOGS,
    REQUEST_KINDS,
    request_of,
    fold_request,
    sql.DELETE_REQUESTS,
    sql.UPSERT_REQUEST,
)
HOLDS: Final[Derived[int]] = Derived(
    sql.SELECT_REQUEST_LOGS, HOLD_KINDS, request_of, fold_hold, sql.DELETE_HOLDS, sql.UPSERT_HOLD
)
WORKERS: Final[Derived[Address]] = Derived(
    sql.SELECT_WORKER_LOGS,
    WORKER_KINDS,
    worker_of,
    fold_worker,
    sql.DELETE_WORKERS,
    sql.UPSERT_WORKER,
)


def located(decoder: Decoder, row: Mapping[str, Any]) -> LocatedEvent | None:
    """A row of chain.log; None where it cannot be read. Only damage puts one there, which `verify`
    finds: it is in nobody's way."""
    entry = sql.raw_log(row)
    try:
        return LocatedEvent(entry, decoder.decode(entry), row["timestamp_s"])
    except UndecodableLog as error:
        log.error(
            "stored_log_unreadable",
            reason=str(error),
            block_number=entry.block_number,
            log_index=entry.log_index,
        )
        return None


async def folded(
    connection: Connection, decoder: Decoder, derived: Derived[S], subjects: Collection[S]
) -> dict[S, msgspec.Struct | None]:
    """What the stored logs of each subject add up to; None where that is no row."""
    events: dict[S, list[LocatedEvent]] = {subject: [] for subject in subjects}
    rows = await connection.fetch(derived.select_logs, list(subjects), list(derived.kinds))
    for item in filter(None, (located(decoder, row) for row in rows)):
        subject = derived.subject_of(item.event)
        if subject is not None and subject in events:
            events[subject].append(item)
    return {subject: derived.fold(items) for subject, items in events.items()}


async def refold(
    connection: Connection, decoder: Decoder, derived: Derived[S], touched: Collection[S]
) -> None:
    """Writes anew what was there before, or may have been."""
    if not touched:
        return
    rows = await folded(connection, decoder, derived, touched)
    gone = [subject for subject, row in rows.items() if row is None]
    if gone:
        await connection.execute(derived.delete, gone)
    values = [astuple(row) for row in rows.values() if row is not None]
    if values:
        await connection.executemany(derived.upsert, values)
