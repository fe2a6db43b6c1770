"""Compares what is stored of some blocks with an independent reading of them. Writes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import structlog

from indexer.abi import UndecodableLog
from indexer.batch import Batch, read_batch
from indexer.compare import Difference, compare_logs, wrong_time
from indexer.completeness import contradiction, may_have_logs
from indexer.database import Pool
from indexer.decode import Decoder
from indexer.derive import request_of
from indexer.errors import RpcUnreachable, WrongChain
from indexer.rpc.client import Rpc
from indexer.rpc.types import Header, RawLog, RpcError, RpcMalformed
from indexer.second_opinion import logs_by_receipts, second_opinion
from indexer.stored import load_forgotten, load_logs, load_outline
from indexer.together import together
from indexer.types import Contracts, Hash32

_CONCURRENT_BLOCKS = 8

log = structlog.get_logger("indexer")

Reader: TypeAlias = Callable[[Header, Sequence[RawLog]], Awaitable[tuple[RawLog, ...]]]
"""Reads one block's logs; the second argument is what is stored of it."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found in some blocks."""

    last_hash: Hash32
    """Of the last of them, on the chain."""
    read: tuple[BlockReading, ...]
    """The blocks whose logs were read; the bloom filter rules the others out."""

    @property
    def differing(self) -> tuple[BlockReading, ...]:
        return tuple(block for block in self.read if block.differences)

    @property
    def differences(self) -> tuple[Difference, ...]:
        return tuple(one for block in self.read for one in block.differences)


@dataclass(frozen=True, slots=True)
class BlockReading:
    """One block as the chain has it."""

    header: Header
    logs: tuple[RawLog, ...]
    differences: tuple[Difference, ...]
    """Of what is stored."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """What has to stand in the place of what is stored of some blocks."""

    hashes: dict[int, Hash32]
    batch: Batch


def replacement(decoder: Decoder, blocks: Iterable[BlockReading]) -> Replacement:
    """Pure."""
    chosen = sorted(blocks, key=lambda block: block.header.number)
    times = {block.header.number: block.header.timestamp_s for block in chosen}
    logs = [entry for block in chosen for entry in block.logs]
    hashes = {block.header.number: block.header.hash for block in chosen}
    return Replacement(hashes, read_batch(decoder, (), logs, times))


class Inspector:
    """Reads consecutive blocks anew. `every_block` reads also those that the bloom filter rules
    out, for chains whose filters are empty; from the first block on that shows that they are, it
    does so by itself."""

    def __init__(
        self,
        rpc: Rpc,
        pool: Pool,
        contracts: Contracts,
        reader: Reader,
        *,
        every_block: bool = False,
    ) -> None:
        self._rpc = rpc
        self._pool = pool
        self._addresses = contracts.addresses()
        self._decoder = Decoder(contracts)
        self._reader = reader
        self._every_block = every_block
        self._strayed: set[str] = set()

    async def inspect(self, first: int, last: int) -> Inspection:
        """Blocks `first` to `last`, both included. What differs was looked at twice, as the tables
        may have changed between two reads.

        Raises RpcUnreachable (its kind RpcMalformed where the chain has another block than the one
        that is remembered), RpcError.
        """
        whole = await self._inspect(first, last)
        if not self._every_block and any(map(self._is_denied, whole.read)):
            log.warning("bloom_filters_are_empty", block_number=first)
            self._every_block = True
            whole = await self._inspect(first, last)
        again: dict[int, BlockReading] = {}
        for block in whole.differing:
            number = block.header.number
            (again[number],) = (await self._inspect(number, number)).read or (block,)
        return replace(
            whole, read=tuple(again.get(block.header.number, block) for block in whole.read)
        )

    def _is_denied(self, block: BlockReading) -> bool:
        """Whether its bloom filter rules out logs that it has: this chain has no real filters."""
        return bool(block.logs) and not may_have_logs(block.header, self._addresses)

    async def _inspect(self, first: int, last: int) -> Inspection:
        headers = await self._headers(first, last)
        async with self._pool.acquire() as connection:
            outline = await load_outline(connection, first, last)
            for header in headers:
                if outline.hashes.get(header.number, header.hash) != header.hash:
                    raise _another_branch(header.number)
            doubtful = [
                header
                for header in headers
                if self._every_block
                or header.number in outline.times_s
                or may_have_logs(header, self._addresses)
            ]
            stored = await load_logs(connection, [header.number for header in doubtful])
        read = await self._without_forgotten(stored, await self._read(doubtful, stored))
        blocks = []
        for header, logs in zip(doubtful, read, strict=True):
            differences = compare_logs(stored[header.number], logs)
            if outline.times_s.get(header.number, set()) - {header.timestamp_s}:
                differences.append(wrong_time(header.number))
            blocks.append(BlockReading(header, logs, tuple(differences)))
        return Inspection(headers[-1].hash, tuple(blocks))

    async def _without_forgotten(
        self, stored: Mapping[int, Sequence[RawLog]], read: Sequence[tuple[RawLog, ...]]
    ) -> list[tuple[RawLog, ...]]:
        """Without the logs that are not stored since their request was deleted after its time."""
        known = {(log.block_hash, log.log_index) for logs in stored.values() for log in logs}
        about = {
            log: request_id
            for logs in read
            for log in logs
            if (log.block_hash, log.log_index) not in known
            and (request_id := self._request_of(log)) is not None
        }
        if not about:
            return list(read)
        async with self._pool.acquire() as connection:
            forgotten = await load_forgotten(connection, set(about.values()))
        return [tuple(log for log in logs if about.get(log) not in forgotten) for logs in read]

    def _request_of(self, log: RawLog) -> int | None:
        try:
            return request_of(self._decoder.decode(log))
        except UndecodableLog:
            return None

    async def _headers(self, first: int, last: int) -> list[Header]:
        """From another endpoint than the one that is followed, where one is on the same branch."""
        numbers = range(first, last + 1)
        other = self._rpc.elsewhere()
        if other is not None:
            try:
                headers = _linked(numbers, await other.headers(numbers))
            except (RpcUnreachable, RpcError, WrongChain):
                pass
            else:
                # They are linked: those who agree on the last agree on all.
                own = await self._rpc.header(last)
                if own is not None and own.hash == headers[-1].hash:
                    return headers
                self._warn(other.endpoint, last)
        return _linked(numbers, await self._rpc.headers(numbers))

    def _warn(self, endpoint: str, number: int) -> None:
        """It must not undo what the one that is followed has said; nor can it hold that up."""
        if endpoint not in self._strayed:
            self._strayed.add(endpoint)
            log.warning("endpoint_on_another_branch", endpoint=endpoint, block_number=number)

    async def _read(
        self, headers: Sequence[Header], stored: dict[int, list[RawLog]]
    ) -> list[tuple[RawLog, ...]]:
        async def of(header: Header) -> tuple[RawLog, ...]:
            return await self._reader(header, stored[header.number])

        return await together(of, headers, at_once=_CONCURRENT_BLOCKS)


def _linked(numbers: Sequence[int], found: Sequence[Header | None]) -> list[Header]:
    """Raises RpcMalformed where one lacks, or does not follow the one before."""
    headers = [header for header in found if header is not None]
    if len(headers) != len(numbers):
        raise contradiction(f"it lacks blocks between {numbers[0]} and {numbers[-1]}")
    for below, above in pairwise(headers):
        if above.parent_hash != below.hash:
            raise contradiction(f"block {above.number} does not follow block {below.number}")
    return headers


def _another_branch(number: int) -> RpcMalformed:
    return RpcMalformed(
        f"the node has another block {number} than the one that is indexed",
        help_text="a running `inferd node` follows the chain by itself: try again when it has;"
        " if the index is on a dead branch for good, `inferd index rebuild` begins it anew",
    )


def by_second_opinion(rpc: Rpc, contracts: Contracts) -> Reader:
    """Cheap: another endpoint that agrees with what is stored is enough."""
    addresses = contracts.addresses()

    async def read(header: Header, stored: Sequence[RawLog]) -> tuple[RawLog, ...]:
        return await second_opinion(rpc, header, addresses, stored)

    return read


def by_receipts(rpc: Rpc, contracts: Contracts) -> Reader:
    """Thorough: the receipts of every block that may have logs of ours."""
    addresses = contracts.addresses()

    async def read(header: Header, stored: Sequence[RawLog]) -> tuple[RawLog, ...]:
        return await logs_by_receipts(rpc, header, addresses)

    return read
