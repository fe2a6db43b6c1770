"""Keeps the tables equal to the chain, for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import structlog

from indexer.backfill import RangeReader
from indexer.backoff import Backoff
from indexer.batch import Batch, read_batch
from indexer.completeness import contradiction
from indexer.database import Fence, Pool
from indexer.decode import Decoder
from indexer.errors import NoContractCode, NodeBehind, RpcUnreachable
from indexer.events import InferenceRequested
from indexer.numbering import Numbering
from indexer.pace import Pace
from indexer.read_ahead import ReadAhead
from indexer.reorg.coordinator import MAX_BRANCH_BLOCKS, Branch, find_branch
from indexer.reorg.window import Known, reconcile
from indexer.rpc.client import Rpc
from indexer.rpc.heads import HeadsStatus, HeadTrigger
from indexer.rpc.member import ChainIdentity
from indexer.rpc.status import EndpointStatus
from indexer.rpc.types import Header, RpcError
from indexer.status import IndexerStatus
from indexer.store import CursorMoved, Position, Store
from indexer.types import Contracts, Hash32

_FIRST_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 2.0
_COMMIT_TOGETHER_BLOCKS = 8
"""Further behind than this, blocks share a transaction; at the head each has its own."""

log = structlog.get_logger("indexer")


class Indexer:
    """Copies one deployment's logs and what they add up to into PostgreSQL.

    Trouble with the node is retried inside and shown in `status`; errors of the database, a wrong
    chain and a reorganisation deeper than the window propagate out of `run`.
    """

    def __init__(
        self,
        rpc: Rpc,
        pool: Pool,
        contracts: Contracts,
        *,
        genesis_hash: Hash32,
        window_blocks: int = 256,
        poll_interval_s: float = 0.25,
        fence: Fence | None = None,
        heads: HeadTrigger | None = None,
    ) -> None:
        """`heads` says when to look at the head; without it, only `poll_interval_s` does."""
        self._rpc = rpc
        self._heads = heads
        self._contracts = contracts
        self._genesis_hash = genesis_hash
        self._window_blocks = window_blocks
        self._poll_interval_s = poll_interval_s
        self._decoder = Decoder(contracts)
        self._store = Store(pool, contracts, window_blocks=window_blocks, fence=fence)
        self._numbering = Numbering(rpc, pool, contracts, self._store)
        self._reader = RangeReader(rpc, contracts.addresses())
        self._ranges = ReadAhead(self._reader)
        self._position: Position | None = None
        self._head: Header | None = None
        self._status = IndexerStatus()
        self._pace = Pace()
        self._has_finality_tag = False

    @property
    def status(self) -> IndexerStatus:
        return self._status

    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """The endpoints it reads from, in the order they were given."""
        return self._rpc.endpoints()

    @property
    def heads_status(self) -> HeadsStatus | None:
        """None where it only polls."""
        return self._heads.status if self._heads else None

    async def prepare(self) -> None:
        """Checks that chain, contracts and database belong together, and claims the database.

        Raises WrongChain, NodeBehind, NoContractCode, WrongDatabase, RpcUnreachable, RpcError.
        """
        self._rpc.expect(ChainIdentity(self._contracts.chain_id, self._genesis_hash))
        head = await self._latest()
        if head.number < self._contracts.start_block:
            raise NodeBehind(
                f"the node is at block {head.number}, the deployment is in block"
                f" {self._contracts.start_block}",
                help_text="wait until the node has synced",
            )
        for address in self._contracts.addresses():
            if not await self._rpc.code(address):
                raise NoContractCode(
                    f"there is no contract at 0x{address.hex()}",
                    help_text="the deployment file is of another chain, or the chain was started"
                    " anew: deploy again with `inferd deploy`, or correct `deployment_file`",
                )
        await self._store.claim(self._genesis_hash)
        await self._load()

    async def run(self) -> None:
        """Indexes until it is cancelled.

        Raises WrongChain, RangeRefused, ReorgTooDeep, what `prepare` raises, what the fence
        raises, and the errors of the database.
        """
        if self._position is None:
            await self.prepare()
        try:
            if self._heads is None:
                await self._follow(asyncio.sleep)
            else:
                async with self._heads.listening() as head_or_timeout:
                    await self._follow(head_or_timeout)
        finally:
            await self._ranges.close()

    async def _follow(self, pause: Callable[[float], Awaitable[None]]) -> None:
        backoff = Backoff(_FIRST_BACKOFF_S, _MAX_BACKOFF_S)
        while True:
            try:
                moved = await self._step()
            except (RpcUnreachable, RpcError) as error:
                self._failed(error)
                await asyncio.sleep(backoff.next_s())
                continue
            except CursorMoved:
                log.warning("cursor_moved_by_another")
                await self._load()
                continue
            self._succeeded()
            backoff.reset()
            if not moved:
                await pause(self._poll_interval_s)

    async def _step(self) -> bool:
        """One look at the chain and at most one range or branch; whether anything was written."""
        position = self._position or await self._load()
        head = await self._latest()
        if position.cursor is not None and head.hash == position.cursor.hash:
            return False
        finalized = await self._finalized(head, position.finalized)
        behind = head.number - position.window.next_number
        if behind > MAX_BRANCH_BLOCKS and finalized >= position.window.next_number:
            ours = await self._own_tip_now(position)
            if ours is None:
                await self._backfill(position, finalized)
                return True
            head = ours
        await self._ranges.close()
        if self._status.left_s is not None:
            self._pace = Pace()
            self._show(left_s=None)
        branch = await find_branch(self._rpc, position.window, head, self._contracts.addresses())
        if branch is None:
            return False
        branch = await self._numbering.completed(branch)
        await self._take(position, branch, finalized)
        return True

    async def _own_tip_now(self, position: Position) -> Header | None:
        """The block that stands where our tip is, where it is another; None where all is well.

        Backfill goes on from the tip, so a reorganisation that came while we were away has to be
        found first.
        """
        if position.cursor is None:
            return None
        header = await self._rpc.header(position.cursor.number)
        if header is None:
            raise contradiction(f"it lacks block {position.cursor.number} below its head")
        known = isinstance(reconcile(position.window, header), Known)
        return None if known else header

    async def _backfill(self, position: Position, finalized: int) -> None:
        keep_from = finalized - self._window_blocks
        read = await self._ranges.read(
            position.window.next_number, finalized, cursor=position.cursor, keep_from=keep_from
        )
        batch = read_batch(self._decoder, read.headers, read.logs, read.timestamps_s)
        await self._commit(position, batch, finalized)
        self._pace.reached(batch.tip.number, time.monotonic())
        left_s = self._pace.left_s(finalized)
        self._show(left_s=left_s)
        log.info(
            "range_indexed",
            block_number=batch.tip.number,
            finalized=finalized,
            events=len(batch.events),
            left_s=None if left_s is None else round(left_s, 1),
        )

    async def _take(self, position: Position, branch: Branch, finalized: int) -> None:
        orphaned = position.window.next_number - 1 - branch.ancestor
        if orphaned:
            batch = self._batch(branch, 0, None)
            await self._commit(position, batch, finalized, branch.ancestor)
            _log_requests(batch)
            self._show(
                reorgs=self._status.reorgs + 1,
                deepest_reorg=max(self._status.deepest_reorg, orphaned),
            )
            log.warning(
                "reorg",
                ancestor=branch.ancestor,
                orphaned_blocks=orphaned,
                block_number=branch.headers[-1].number,
                block_hash="0x" + branch.headers[-1].hash.hex(),
            )
        else:
            blocks = len(branch.headers)
            together = blocks if blocks > _COMMIT_TOGETHER_BLOCKS else 1
            for first in range(0, blocks, together):
                batch = self._batch(branch, first, first + together)
                position = await self._commit(position, batch, finalized)
                _log_requests(batch)

    def _batch(self, branch: Branch, first: int, end: int | None) -> Batch:
        headers = branch.headers[first:end]
        logs = [entry for block in branch.logs[first:end] for entry in block]
        times = {header.number: header.timestamp_s for header in headers}
        return read_batch(self._decoder, headers, logs, times)

    async def _commit(
        self, position: Position, batch: Batch, finalized: int, ancestor: int | None = None
    ) -> Position:
        after = await self._store.commit(position, batch, finalized=finalized, ancestor=ancestor)
        self._position = after
        # Others may have read some of them again meanwhile.
        if batch.quarantined or self._status.quarantined or ancestor is not None:
            self._show(quarantined=await self._store.count_quarantined())
        for item in batch.quarantined:
            log.warning(
                "log_quarantined",
                reason=item.reason,
                block_number=item.log.block_number,
                log_index=item.log.log_index,
                tx_hash="0x" + item.log.tx_hash.hex(),
            )
        self._show()
        return after

    async def _load(self) -> Position:
        position = await self._store.load()
        quarantined = await self._store.count_quarantined()
        self._position = position
        self._show(quarantined=quarantined)
        return position

    async def _latest(self) -> Header:
        head = await self._rpc.header("latest")
        if head is None:
            raise contradiction("it has no latest block")
        self._head = head
        self._show()
        return head

    async def _finalized(self, head: Header, before: int) -> int:
        """The newest final block. Where none was ever named, a quarter of the window deep; where it
        is not named any more, what it was."""
        try:
            header = await self._rpc.header("finalized")
        except RpcError:
            header = None
        if header is not None:
            self._has_finality_tag = True
            return min(header.number, head.number)
        if self._has_finality_tag:
            return before
        return max(-1, head.number - self._window_blocks // 4)

    def _failed(self, error: RpcUnreachable | RpcError) -> None:
        if self._status.last_error is None:
            log.warning("rpc_trouble", error=str(error))
        self._rpc.doubt()
        self._show(rpc_ok=False, last_error=str(error))

    def _succeeded(self) -> None:
        if self._status.last_error is not None:
            log.info("rpc_back", endpoint=self._rpc.endpoint)
        self._show(rpc_ok=True, last_error=None, last_progress_monotonic=time.monotonic())

    def _show(self, **changes: Any) -> None:
        """Puts changes, and where head and cursor now are, into `status`."""
        head, position = self._head, self._position
        cursor = position.cursor if position else None
        lag_blocks = lag_s = 0
        if head is not None and position is not None:
            lag_blocks = max(0, head.number + 1 - position.window.next_number)
        if head is not None and cursor is not None:
            lag_s = max(0, head.timestamp_s - cursor.timestamp_s)
        self._status = replace(
            self._status,
            head=head.number if head else None,
            indexed=cursor.number if cursor else None,
            finalized=position.finalized if position and cursor else None,
            lag_blocks=lag_blocks,
            lag_s=lag_s,
            range_blocks=self._reader.blocks,
            completed_blocks=self._numbering.completed_blocks,
            **changes,
        )


def _log_requests(batch: Batch) -> None:
    """The first line of each request's trace; a backfill's are too many to be told one by one."""
    for item in batch.events:
        if isinstance(item.event, InferenceRequested):
            log.info(
                "request_indexed",
                trace_id=item.event.commitment.hex()[:16],
                request_id=item.event.request_id,
                block_number=item.log.block_number,
                tx_hash="0x" + item.log.tx_hash.hex(),
            )
