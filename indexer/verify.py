"""Compares the tables with the chain by an independent path, and mends them where asked to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import ClassVar

from indexer.compare import Difference
from indexer.database import Pool
from indexer.decode import Decoder
from indexer.derived import DerivedCheck, check_derived
from indexer.errors import OperatorError, TemporaryError
from indexer.inspect import Inspection, Inspector, by_receipts, replacement
from indexer.rpc.client import Rpc
from indexer.store import CursorMoved, Store
from indexer.stored import load_reach
from indexer.types import Contracts

_BLOCKS_AT_ONCE = 100
_TRIES = 5


class NothingIndexed(TemporaryError):
    """The tables are empty."""

    code: ClassVar[str] = "nothing_indexed"


class NotIndexed(OperatorError):
    """The range that was asked for is not in the tables."""

    code: ClassVar[str] = "not_indexed"


class IndexMoves(TemporaryError):
    """Whoever indexes takes the blocks away again and again: reorganisations, or a rebuild."""

    code: ClassVar[str] = "index_moves"


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Both ends included."""

    first: int
    last: int

    @property
    def blocks(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class RangeReport:
    """One part of the range was looked at, or looked at and mended."""

    range: BlockRange
    read_blocks: int
    """Those whose receipts were read; the bloom filter rules the others out."""
    differences: tuple[Difference, ...]
    """As they were found; none of them is left where the part was mended."""


async def choose_range(
    pool: Pool, contracts: Contracts, first: int | None, last: int | None
) -> BlockRange:
    """What can be compared: by default from the deployment's block to the newest final one.

    Raises NothingIndexed, NotIndexed.
    """
    async with pool.acquire() as connection:
        reach = await load_reach(connection)
    if reach is None:
        raise NothingIndexed("no block is indexed yet", help_text="start `inferd node` first")
    start = contracts.start_block
    chosen = BlockRange(
        start if first is None else first,
        max(reach.finalized, start) if last is None else last,
    )
    if not start <= chosen.first <= chosen.last <= reach.cursor:
        raise NotIndexed(
            f"blocks {chosen.first} to {chosen.last} are not all indexed",
            help_text=f"name blocks from {start} to {reach.cursor}",
        )
    return chosen


class Verifier:
    """Works beside whoever indexes: it reads in snapshots, and each part is mended in one
    transaction that locks the cursor. Interrupted anywhere it leaves whole parts behind."""

    def __init__(
        self, rpc: Rpc, pool: Pool, contracts: Contracts, *, every_block: bool = False
    ) -> None:
        self._pool = pool
        self._decoder = Decoder(contracts)
        self._store = Store(pool, contracts, window_blocks=0)
        self._inspector = Inspector(
            rpc, pool, contracts, by_receipts(rpc, contracts), every_block=every_block
        )

    async def verify(self, whole: BlockRange) -> AsyncIterator[RangeReport]:
        """Part by part, in order. Raises RpcUnreachable, RpcError."""
        for part in _parts(whole):
            inspection, derived = await self._look(part)
            yield _report(part, inspection, derived)

    async def repair(self, whole: BlockRange) -> AsyncIterator[RangeReport]:
        """The same; what differs is mended before it is told of. Raises RpcUnreachable, RpcError,
        IndexMoves."""
        for part in _parts(whole):
            for left in reversed(range(_TRIES)):
                inspection, derived = await self._look(part)
                try:
                    await self._mend(inspection, derived)
                except CursorMoved:
                    if not left:
                        raise IndexMoves(
                            f"blocks {part.first} to {part.last} change while they are mended",
                            help_text="wait until the index has caught up, and repair again",
                        ) from None
                else:
                    break
            yield _report(part, inspection, derived)

    async def _look(self, part: BlockRange) -> tuple[Inspection, DerivedCheck]:
        inspection = await self._inspector.inspect(part.first, part.last)
        async with (
            self._pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            derived = await check_derived(connection, self._decoder, part.first, part.last)
        return inspection, derived

    async def _mend(self, inspection: Inspection, derived: DerivedCheck) -> None:
        # A wrong column or payment says nothing of which log is to blame: all are written anew.
        blocks = inspection.read if derived.differences else inspection.differing
        if not blocks and not derived.differences:
            return
        wanted = replacement(self._decoder, blocks)
        await self._store.replace_blocks(
            wanted.hashes, wanted.batch, requests=derived.requests, workers=derived.workers
        )


def _parts(whole: BlockRange) -> list[BlockRange]:
    return [
        BlockRange(first, min(whole.last, first + _BLOCKS_AT_ONCE - 1))
        for first in range(whole.first, whole.last + 1, _BLOCKS_AT_ONCE)
    ]


def _report(part: BlockRange, inspection: Inspection, derived: DerivedCheck) -> RangeReport:
    differences = (*inspection.differences, *derived.differences)
    return RangeReport(part, len(inspection.read), differences)
