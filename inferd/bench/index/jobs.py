"""What one run of a benchmark is to do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import Any, TypeAlias

import asyncpg
import msgspec

from indexer.types import Contracts, Hash32
from inferd.bench.index.way import Way

Range: TypeAlias = tuple[int, int]
"""First and last block, both included."""

TIMEOUT_S = 120.0
"""Of a call, for all but inferd's own."""
POLL_INTERVAL_S = 0.25
"""As the daemon has it unless its settings say otherwise."""
RAW_TABLES = """
    CREATE TABLE public.raw_log (
        block_hash bytea NOT NULL, log_index integer NOT NULL, block_number bigint NOT NULL,
        tx_hash bytea NOT NULL, tx_index integer NOT NULL, address bytea NOT NULL,
        topics bytea[] NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (block_hash, log_index)
    );
    CREATE TABLE public.requested (
        block_hash bytea NOT NULL, log_index integer NOT NULL, block_number bigint NOT NULL,
        tx_hash bytea NOT NULL, tx_index integer NOT NULL, address bytea NOT NULL,
        id bigint NOT NULL, requester bytea NOT NULL, model_id bytea NOT NULL,
        record numeric(78, 0) NOT NULL, limits numeric(78, 0) NOT NULL, input bytea NOT NULL,
        PRIMARY KEY (block_hash, log_index)
    );
"""
"""Where the ways that are not inferd's write."""


class Job(msgspec.Struct, frozen=True):
    """What one run of one way is to do."""

    way: Way
    rpc_url: str
    database_url: str
    contracts: Contracts
    genesis_hash: Hash32
    last: int
    """The newest block with an event."""
    ranges: tuple[Range, ...]
    """What to fetch; `inferd` chooses by itself."""
    poll_interval_s: float = POLL_INTERVAL_S
    """Of `inferd`, at the head of the chain."""
    listens: bool = False
    """Whether `inferd` hears of heads by websocket, and polls behind that."""


Copy: TypeAlias = Callable[[Job], Awaitable[list[Range]]]
"""Does a job; gives the ranges that were fetched."""

_MODULES = {
    Way.INFERD: "ours",
    Way.RAW: "by_hand",
    Way.RAW_COPY: "by_hand",
    Way.WEB3: "with_web3",
    Way.WEB3_RAW: "with_web3",
}


def copy_of(way: Way) -> Copy:
    """Loads no more modules than the way needs: their memory is counted."""
    module = import_module(f"inferd.bench.index.{_MODULES[way]}")
    copy: Copy = getattr(module, way.value)
    return copy


@contextlib.asynccontextmanager
async def connection_of(job: Job) -> AsyncIterator[asyncpg.Connection[Any]]:
    # Without our codecs: this is for the others.
    connection = await asyncpg.connect(job.database_url)
    try:
        yield connection
    finally:
        await connection.close()
