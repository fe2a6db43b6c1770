"""Requests are numbered without a gap: a number that is passed over proves that a log was left out,
also where the answer was not empty and the bloom filter cannot tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

import structlog

from indexer.database import Pool
from indexer.decode import Decoder, topic_of
from indexer.inspect import Inspector, replacement
from indexer.reorg.coordinator import Branch
from indexer.rpc.client import Rpc
from indexer.rpc.types import Header, RawLog
from indexer.second_opinion import logs_by_any_receipts
from indexer.store import Store
from indexer.stored import load_newest_request
from indexer.together import together
from indexer.types import Address, Contracts

_REQUESTED = topic_of("InferenceRequested(uint256,address,bytes32,uint256,uint256,bytes)")
_CONCURRENT_BLOCKS = 8
_MENDED_BLOCKS = 256
"""So far down it is looked for at once, before the branch is written."""

log = structlog.get_logger("indexer")


def requested_ids(logs: Iterable[RawLog], requests: Address) -> list[int]:
    """The numbers that the contract `requests` gave out, also where a log cannot be read. Pure."""
    return [
        int.from_bytes(entry.topics[1], "big")
        for entry in logs
        if entry.address == requests and entry.topics[:1] == (_REQUESTED,) and entry.topics[1:]
    ]


def passed_over(last: int, ids: Iterable[int]) -> int | None:
    """The lowest number after `last` that must have been given out and is not among `ids`. Pure."""
    above = sorted({number for number in ids if number > last})
    return next((due for due, number in enumerate(above, last + 1) if number != due), None)


class Numbering:
    """Completes what was read at the head."""

    def __init__(self, rpc: Rpc, pool: Pool, contracts: Contracts, store: Store) -> None:
        self._rpc = rpc
        self._pool = pool
        self._start = contracts.start_block
        self._requests = contracts.requests
        self._addresses = contracts.addresses()
        self._decoder = Decoder(contracts)
        self._store = store
        self._inspector = Inspector(rpc, pool, contracts, self._reread)
        self.completed_blocks = 0
        """Of which logs had been left out, since the start."""

    async def completed(self, branch: Branch) -> Branch:
        """The branch with the logs that it lacks; those that the blocks before it lack, back to the
        newest request, are put into the tables. What is further down, or not even in receipts, is
        left to indexer.recheck.

        Raises RpcUnreachable, RpcError, CursorMoved.
        """
        ids = self._ids(branch)
        if not ids:
            return branch
        async with self._pool.acquire() as connection:
            newest = await load_newest_request(connection, branch.ancestor)
        missing = passed_over(newest.request_id, ids)
        if missing is None:
            return branch
        log.warning(
            "request_number_missing",
            request_id=missing,
            endpoint=self._rpc.endpoint,
            block_number=branch.headers[-1].number,
        )

        async def reread(header: Header) -> tuple[RawLog, ...]:
            return await self._reread(header)

        # Who left out one log is believed about no block of them.
        logs = await together(reread, branch.headers, at_once=_CONCURRENT_BLOCKS)
        self.completed_blocks += sum(a != b for a, b in zip(branch.logs, logs, strict=True))
        branch = replace(branch, logs=tuple(logs))
        if passed_over(newest.request_id, self._ids(branch)) is not None:
            oldest = max(self._start, branch.ancestor + 1 - _MENDED_BLOCKS)
            await self._mend(max(newest.block_number, oldest), branch.ancestor)
        return branch

    def _ids(self, branch: Branch) -> list[int]:
        return requested_ids(chain.from_iterable(branch.logs), self._requests)

    async def _reread(self, header: Header, _: Sequence[RawLog] = ()) -> tuple[RawLog, ...]:
        """From receipts: an index of logs, anybody's, is what was proved wrong."""
        return await logs_by_any_receipts(self._rpc, header, self._addresses)

    async def _mend(self, first: int, last: int) -> None:
        if first > last:
            return
        found = await self._inspector.inspect(first, last)
        if not found.differing:
            return
        wanted = replacement(self._decoder, found.differing)
        await self._store.replace_blocks(wanted.hashes, wanted.batch)
        self.completed_blocks += len(wanted.hashes)
        log.error("blocks_repaired", block_numbers=sorted(wanted.hashes))
