"""Deletes what is over: outputs after their time, and files that no row names any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import structlog

from indexer.database import Connection, Fence, Pool
from indexer.forget import done_among
from indexer.types import Hash32
from inferd.outputs.files import OutputFiles

_AT_ONCE = 200
_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_SELECT_OLD = """
    SELECT request_id, commitment, computed_at FROM node.result
    WHERE (output IS NOT NULL OR file_bytes IS NOT NULL)
      AND computed_at < now() - $1 * interval '1 day' AND (computed_at, request_id) > ($2, $3)
    ORDER BY computed_at, request_id LIMIT $4
"""
_DROP = """
    UPDATE node.result n SET output = NULL, file_bytes = NULL
    FROM unnest($1::bigint[], $2::bytea[]) AS one (id, commitment)
    WHERE n.request_id = one.id AND n.commitment = one.commitment
      AND NOT EXISTS (SELECT FROM node.tx_item i WHERE i.request_id = one.id
                      AND i.commitment = one.commitment AND i.live)
"""

log = structlog.get_logger("outputs")


async def drop_outputs(pool: Pool, fence: Fence, *, after_days: int) -> int:
    """Takes outputs out of the rows of requests that are over and that nobody waits for; digests
    and signatures stay. Gives how many requests were looked at for it; 0 days = never."""
    if not after_days:
        return 0
    dropped, place = 0, (_EVER, 0)
    while True:
        async with pool.acquire() as connection, connection.transaction():
            await fence(connection)
            rows = await connection.fetch(_SELECT_OLD, after_days, *place, _AT_ONCE)
            done = await done_among(connection, [(r["request_id"], r["commitment"]) for r in rows])
            if done:
                await connection.execute(
                    _DROP, [one for one, _ in done], [commitment for _, commitment in done]
                )
        dropped += len(done)
        if len(rows) < _AT_ONCE:
            return dropped
        place = (rows[-1]["computed_at"], rows[-1]["request_id"])


async def sweep_files(pool: Pool, files: OutputFiles) -> int:
    """Deletes old files that no row names; gives how many."""
    old = files.old()
    deleted = 0
    while part := await asyncio.to_thread(_next, old):
        async with pool.acquire() as connection:
            named = await _named(connection, part)
        unnamed = [digest for digest in part if digest not in named]
        deleted += await asyncio.to_thread(files.delete, unnamed)
    if deleted:
        log.info("outputs_deleted", files=deleted)
    return deleted


def _next(old: Iterator[Hash32]) -> list[Hash32]:
    return list(islice(old, _AT_ONCE))


async def _named(connection: Connection, digests: list[Hash32]) -> set[bytes]:
    rows = await connection.fetch(
        "SELECT digest FROM node.result WHERE file_bytes IS NOT NULL AND digest = ANY($1)", digests
    )
    return {row["digest"] for row in rows}
