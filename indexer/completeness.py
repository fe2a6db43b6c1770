"""What an answer with logs must satisfy before it is believed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter

from eth_utils.crypto import keccak

from indexer.rpc.types import Header, RawLog, RpcMalformed
from indexer.types import Address

_FULL_BLOOM = (1 << 2048) - 1
_place = attrgetter("block_number", "log_index")


def contradiction(what: str) -> RpcMalformed:
    """Answers that do not fit each other: the chain moved between them, or a node lies."""
    return RpcMalformed(
        f"the node contradicts itself: {what}",
        help_text="it is retried; behind a balancer, give the nodes' own addresses in `rpc_urls`",
    )


def checked_block_logs(
    header: Header, logs: Iterable[RawLog], addresses: Collection[Address]
) -> list[RawLog]:
    """One block's logs in order. Raises RpcMalformed where one is foreign or stands there twice."""
    return checked_logs(logs, {header.number: header}, addresses)


def checked_logs(
    logs: Iterable[RawLog], headers: Mapping[int, Header], addresses: Collection[Address]
) -> list[RawLog]:
    """Logs of the given blocks in chain order. Raises RpcMalformed where one is of another block
    or contract, or stands there twice."""
    ordered = sorted(logs, key=_place)
    ours = frozenset(addresses)
    header: Header | None = None
    before = -1
    for log in ordered:
        if header is None or header.number != log.block_number:
            header, before = headers.get(log.block_number), -1
        if header is None or header.hash != log.block_hash:
            raise contradiction(f"a log of block {log.block_number} belongs to another block")
        if log.address not in ours:
            raise contradiction(f"block {log.block_number} came with a log of another contract")
        if log.log_index == before:
            raise contradiction(f"block {log.block_number} has two logs {log.log_index}")
        before = log.log_index
    return ordered


def may_have_logs(header: Header, addresses: Iterable[Address]) -> bool:
    """False where the block's bloom filter rules out every one of the contracts."""
    return any(_in_bloom(header.logs_bloom, address) for address in addresses)


def bloom_of(logs: Iterable[RawLog]) -> int:
    """The bloom filter that logs make, as a number of 2048 bits."""
    bloom = 0
    for value in {part for log in logs for part in (log.address, *log.topics)}:
        bloom |= _bloom_bits(value)
    return bloom


def unexplained_bloom(header: Header, logs: Iterable[RawLog]) -> bool:
    """Whether the block's bloom filter has bits that none of `logs` sets: some log is missing.

    Not the other way round, as some chains leave the logs of their own transactions out of it. One
    with every bit set is no filter, and means nothing.
    """
    said = int.from_bytes(header.logs_bloom, "big")
    return said != _FULL_BLOOM and said & ~bloom_of(logs) != 0


def _in_bloom(bloom: bytes, address: Address) -> bool:
    bits = _bloom_bits(address)
    return int.from_bytes(bloom, "big") & bits == bits


@lru_cache(maxsize=4096)
def _bloom_bits(value: bytes) -> int:
    digest = keccak(value)
    bits = 0
    for at in (0, 2, 4):
        bits |= 1 << (int.from_bytes(digest[at : at + 2], "big") & 2047)
    return bits
