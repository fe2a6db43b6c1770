"""The tables of the chain: one transaction per step, the cursor never ahead of the rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from asyncpg import Record

from indexer import sql
from indexer.batch import Batch, read_batch
from indexer.database import BLOCK_CHANNEL, Connection, Fence, Pool
from indexer.decode import Decoder
from indexer.derive import LocatedEvent, fold_request, payments, request_of, worker_of
from indexer.errors import WrongDatabase
from indexer.events import DisputeEvent, InferenceRequested, SkipEvent
from indexer.holds import terms
from indexer.refold import HOLDS, REQUESTS, WORKERS, located, refold
from indexer.reorg.window import BlockLink, Window, linked_end
from indexer.stored import load_forgotten, load_logs
from indexer.types import Address, BlockRef, Contracts, Hash32


class CursorMoved(Exception):
    """Somebody else moved the cursor: what was read is to be read again from where it is now."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far the index is."""

    cursor: BlockRef | None
    window: Window
    finalized: int
    """Never above the cursor; -1 before the first block."""


async def load_cursor(connection: Connection) -> BlockRef | None:
    """The newest block whose rows are all there; None before the first."""
    row = await connection.fetchrow(sql.SELECT_CURSOR)
    return None if row is None else _cursor(row)


class Store:
    """Writes what was read. All database errors propagate."""

    def __init__(
        self, pool: Pool, contracts: Contracts, *, window_blocks: int, fence: Fence | None = None
    ) -> None:
        self._pool = pool
        self._contracts = contracts
        self._decoder = Decoder(contracts)
        self._window_blocks = window_blocks
        self._fence = fence

    async def claim(self, genesis_hash: Hash32) -> None:
        """Marks an empty database as the index of this deployment.

        Raises WrongDatabase where it is the index of another.
        """
        contracts = self._contracts
        ours = (
            contracts.chain_id,
            genesis_hash,
            contracts.start_block,
            *contracts.addresses(),
        )
        async with self._pool.acquire() as connection, connection.transaction():
            await self._pass_fence(connection)
            await connection.execute(sql.INSERT_SOURCE, *ours)
            (row,) = await connection.fetch(sql.SELECT_SOURCE)
            await self._derive_missing(connection)
        differing = [
            name for (name, value), own in zip(row.items(), ours, strict=True) if value != own
        ]
        if differing:
            raise WrongDatabase(
                f"the database is the index of another deployment: {', '.join(differing)} differ",
                help_text="point `database_url` at another database, or `deployment_file` at the"
                " deployment this one belongs to",
            )

    async def load(self) -> Position:
        """Where the tables stand."""
        start = self._contracts.start_block
        async with (
            self._pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            row = await connection.fetchrow(sql.SELECT_CURSOR)
            if row is None:
                return Position(None, Window(start), -1)
            blocks = await connection.fetch(sql.SELECT_BLOCKS)
        links = [
            BlockLink(block["number"], block["hash"], block["parent_hash"]) for block in blocks
        ]
        return Position(_cursor(row), Window(start, linked_end(links)), row["finalized_number"])

    async def count_quarantined(self) -> int:
        count: int = await self._pool.fetchval(sql.COUNT_QUARANTINED)
        return count

    async def commit(
        self, position: Position, batch: Batch, *, finalized: int, ancestor: int | None = None
    ) -> Position:
        """Writes a batch, its derived rows and the cursor in one transaction.

        With `ancestor`, everything above that block is replaced; without, the batch is added.
        Raises CursorMoved, with nothing written, where the cursor is not where `position` says.
        """
        tip = batch.tip.ref()
        # Finality does not go back, unless the chain shows by a reorganisation that it did.
        known = finalized if ancestor is not None else max(finalized, position.finalized)
        known = min(known, tip.number)
        keep_from = known - self._window_blocks
        async with self._pool.acquire() as connection, connection.transaction():
            await self._pass_fence(connection)
            await _move_cursor(connection, position.cursor, tip, known)
            requests: set[int] = set()
            workers: set[Address] = set()
            if ancestor is not None:
                requests, workers = await _delete_above(connection, ancestor)
            await _insert(connection, batch)
            fresh = await _fresh_requests(connection, batch) if ancestor is None else {}
            for item in batch.events:
                request_id = request_of(item.event)
                if request_id is not None and not isinstance(item.event, SkipEvent):
                    requests.add(request_id)
                if (worker := worker_of(item.event)) is not None:
                    workers.add(worker)
            await _insert_requests(connection, fresh)
            await refold(connection, self._decoder, REQUESTS, requests - fresh.keys())
            await refold(connection, self._decoder, HOLDS, _held(batch.events, requests, ancestor))
            await refold(connection, self._decoder, WORKERS, workers)
            await connection.execute(sql.PRUNE_BLOCKS, keep_from)
            await connection.execute(sql.NOTIFY, BLOCK_CHANNEL, str(tip.number))
        links = [BlockLink(block.number, block.hash, block.parent_hash) for block in batch.headers]
        below = tip.number if ancestor is None else ancestor
        window = position.window.extended(below, links, keep_from=keep_from)
        return Position(tip, window, known)

    async def replace_blocks(
        self,
        hashes: Mapping[int, Hash32],
        batch: Batch,
        *,
        requests: Collection[int] = (),
        workers: Collection[Address] = (),
    ) -> None:
        """Puts a batch's logs in the place of all that is stored of these blocks, and folds anew
        what derives from either, and the named requests and workers, in one transaction. Cursor and
        headers stay.

        It locks the cursor, so it may run beside whoever indexes. What was forgotten since the
        batch was read stays so. Raises CursorMoved, with nothing written, where the index does not
        reach or does not have one of the blocks any more.
        """
        async with self._locked(hashes) as connection:
            await self._replace(connection, list(hashes), batch, requests, workers)

    async def read_again(self, number: int, block_hash: Hash32, timestamp_s: int) -> None:
        """Decodes one block's stored logs anew, as `replace_blocks` would with these logs: what
        others mend meanwhile is not lost. Raises CursorMoved."""
        async with self._locked({number: block_hash}) as connection:
            logs = (await load_logs(connection, [number]))[number]
            batch = read_batch(self._decoder, (), logs, {number: timestamp_s})
            await self._replace(connection, [number], batch)

    @asynccontextmanager
    async def _locked(self, hashes: Mapping[int, Hash32]) -> AsyncIterator[Connection]:
        """A transaction in which nobody else changes the tables, and these blocks are indexed."""
        highest = max(hashes, default=0)
        async with self._pool.acquire() as connection, connection.transaction():
            await self._pass_fence(connection)
            cursor = await connection.fetchval(sql.LOCK_CURSOR)
            remembered = await connection.fetch(sql.SELECT_HASHES, list(hashes))
            if (
                cursor is None
                or highest > cursor
                or any(hashes[row["number"]] != row["hash"] for row in remembered)
            ):
                raise CursorMoved
            yield connection
            await connection.execute(sql.NOTIFY, BLOCK_CHANNEL, str(cursor))

    async def _replace(
        self,
        connection: Connection,
        numbers: list[int],
        batch: Batch,
        requests: Collection[int] = (),
        workers: Collection[Address] = (),
    ) -> None:
        gone = await connection.fetch(sql.DELETE_LOGS_OF, numbers)
        await connection.execute(sql.DELETE_QUARANTINE_OF, numbers)
        await connection.execute(sql.DELETE_PAYMENTS_OF, numbers)
        await connection.execute(sql.DELETE_TERMS_OF, numbers)
        events = await _without_forgotten(connection, batch.events, gone)
        await _insert(connection, replace(batch, headers=(), events=events))
        ids, signers = _touched(gone)
        ids.update(requests, filter(None, (request_of(item.event) for item in events)))
        signers.update(workers, filter(None, (worker_of(item.event) for item in events)))
        await refold(connection, self._decoder, REQUESTS, ids)
        await refold(connection, self._decoder, HOLDS, ids)
        await refold(connection, self._decoder, WORKERS, signers)
        await connection.execute(sql.COUNT_ANEW)

    async def _derive_missing(self, connection: Connection) -> None:
        """Rows of logs that were stored before there were tables for what they tell."""
        rows = await connection.fetch(sql.SELECT_UNFOLDED_HOLDS)
        await refold(connection, self._decoder, HOLDS, {row["request_id"] for row in rows})
        logs = await connection.fetch(sql.SELECT_UNDERIVED_TERMS)
        found = terms(filter(None, (located(self._decoder, row) for row in logs)))
        if found:
            await _copy(connection, "terms", sql.TERMS_COLUMNS, map(sql.terms_values, found))

    async def _pass_fence(self, connection: Connection) -> None:
        if self._fence is not None:
            await self._fence(connection)


def _cursor(row: Record) -> BlockRef:
    return BlockRef(
        number=row["block_number"],
        hash=row["block_hash"],
        timestamp_s=row["timestamp_s"],
        base_fee_wei=row["base_fee_wei"],
        gas_limit=row["gas_limit"],
    )


async def _move_cursor(
    connection: Connection, before: BlockRef | None, tip: BlockRef, finalized: int
) -> None:
    """Comes first: it locks the row, so two writers cannot interleave."""
    values = (
        tip.number,
        tip.hash,
        tip.timestamp_s,
        tip.base_fee_wei,
        tip.gas_limit,
        finalized,
    )
    if before is None:
        moved = await connection.fetchval(sql.INSERT_CURSOR, *values)
    else:
        moved = await connection.fetchval(sql.UPDATE_CURSOR, *values, before.number, before.hash)
    if moved is None:
        raise CursorMoved


async def _delete_above(connection: Connection, ancestor: int) -> tuple[set[int], set[Address]]:
    """Returns the requests and workers whose logs went."""
    rows = await connection.fetch(sql.DELETE_LOGS_ABOVE, ancestor)
    await connection.execute(sql.DELETE_QUARANTINE_ABOVE, ancestor)
    await connection.execute(sql.DELETE_PAYMENTS_ABOVE, ancestor)
    await connection.execute(sql.DELETE_TERMS_ABOVE, ancestor)
    await connection.execute(sql.DELETE_BLOCKS_ABOVE, ancestor)
    return _touched(rows)


def _touched(rows: Iterable[Record]) -> tuple[set[int], set[Address]]:
    """The requests and workers that deleted logs were about."""
    requests = {row["request_id"] for row in rows if row["request_id"] is not None}
    workers = {row["worker"] for row in rows if row["worker"] is not None}
    return requests, workers


def _held(
    events: Iterable[LocatedEvent], touched: Collection[int], ancestor: int | None
) -> Collection[int]:
    """Of the touched requests, those whose payments may be held back now, or were so in blocks that
    are gone."""
    if ancestor is not None:
        return touched
    return {item.event.request_id for item in events if isinstance(item.event, DisputeEvent)}


async def _without_forgotten(
    connection: Connection, events: Sequence[LocatedEvent], stored: Iterable[Record]
) -> tuple[LocatedEvent, ...]:
    """Without what is not stored since its request was deleted after its time."""
    known = {(row["block_hash"], row["log_index"]) for row in stored}
    about = [
        None if (item.log.block_hash, item.log.log_index) in known else request_of(item.event)
        for item in events
    ]
    forgotten = await load_forgotten(connection, set(filter(None, about)))
    return tuple(
        item for item, request in zip(events, about, strict=True) if request not in forgotten
    )


async def _insert(connection: Connection, batch: Batch) -> None:
    await _copy(connection, "block", sql.BLOCK_COLUMNS, map(sql.block_values, batch.headers))
    if batch.events:
        await _copy(connection, "log", sql.LOG_COLUMNS, map(sql.log_values, batch.events))
    if batch.quarantined:
        rows = [sql.quarantine_values(item.log, item.reason) for item in batch.quarantined]
        await _copy(connection, "quarantine", sql.QUARANTINE_COLUMNS, rows)
    paid = payments(batch.events)
    if paid:
        await _copy(connection, "payment", sql.PAYMENT_COLUMNS, map(sql.payment_values, paid))
    asked = terms(batch.events)
    if asked:
        await _copy(connection, "terms", sql.TERMS_COLUMNS, map(sql.terms_values, asked))


async def _copy(
    connection: Connection, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]
) -> None:
    await connection.copy_records_to_table(
        table, schema_name="chain", columns=columns, records=rows
    )


async def _insert_requests(
    connection: Connection, fresh: Mapping[int, Iterable[LocatedEvent]]
) -> None:
    rows = [row for row in map(fold_request, fresh.values()) if row is not None]
    if rows:
        await _copy(connection, "request", sql.REQUEST_COLUMNS, map(sql.request_values, rows))


async def _fresh_requests(connection: Connection, batch: Batch) -> dict[int, list[LocatedEvent]]:
    """Requests that this batch creates: all of their logs are at hand, none need be read back."""
    fresh: dict[int, list[LocatedEvent]] = {
        item.event.request_id: []
        for item in batch.events
        if isinstance(item.event, InferenceRequested)
    }
    if not fresh:
        return fresh
    # Ids count up: but for what a reorganisation numbers anew, none is as low as one we have.
    last = await connection.fetchval(sql.SELECT_LAST_REQUEST)
    if last is not None and (doubtful := [at for at in fresh if at <= last]):
        for row in await connection.fetch(sql.SELECT_EXISTING_REQUESTS, doubtful):
            del fresh[row["id"]]
    for item in batch.events:
        request_id = request_of(item.event)
        if request_id is not None and request_id in fresh:
            fresh[request_id].append(item)
    return fresh
