"""Logs of ours that could not be read: what they are, and another try after an upgrade."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from indexer import sql
from indexer.abi import UndecodableLog
from indexer.batch import QuarantinedLog
from indexer.completeness import contradiction
from indexer.database import Pool
from indexer.decode import Decoder
from indexer.rpc.client import Rpc
from indexer.rpc.types import RawLog
from indexer.store import CursorMoved, Store
from indexer.types import Contracts

_SELECT: Final = """
    SELECT block_hash, log_index, block_number, tx_hash, tx_index, address, topics, data, reason
    FROM chain.quarantine ORDER BY block_number, log_index
"""


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of the quarantined logs."""

    replayed: int
    """Those that can be read now, and are where they belong."""
    left: tuple[QuarantinedLog, ...]


async def load_quarantined(pool: Pool) -> tuple[QuarantinedLog, ...]:
    """All of them in chain order, with why they could not be read."""
    rows = await pool.fetch(_SELECT)
    return tuple(QuarantinedLog(sql.raw_log(row), row["reason"]) for row in rows)


async def replay_quarantined(rpc: Rpc, pool: Pool, contracts: Contracts) -> Replay:
    """Reads them again with the decoders of this release, a block in one transaction each.

    It may run beside whoever indexes. Raises RpcUnreachable, RpcError.
    """
    decoder = Decoder(contracts)
    store = Store(pool, contracts, window_blocks=0)
    before = await load_quarantined(pool)
    blocks = {
        item.log.block_number: item.log.block_hash
        for item in before
        if _readable(decoder, item.log)
    }
    for number, block_hash in blocks.items():
        header = await rpc.header(block_hash)
        if header is None:
            raise contradiction(f"it lacks the indexed block {number}")
        try:
            await store.read_again(number, block_hash, header.timestamp_s)
        except CursorMoved:
            continue  # A reorganisation took the block, and the log with it.
    left = await load_quarantined(pool)
    return Replay(len(before) - len(left), left)


def _readable(decoder: Decoder, log: RawLog) -> bool:
    try:
        decoder.decode(log)
    except UndecodableLog:
        return False
    return True
