"""Signed results in PostgreSQL: the workers' memory of what they have put their name to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from indexer.database import Connection, Pool
from indexer.types import Address, Hash32
from inferd.protocol.typed_data import CompactSignature
from inferd.workers.job import SignedResult
from inferd.workers.leases import Lease
from scheduler.model import RequestKey


class SignatureLog(Protocol):
    """What a worker has signed. The row is committed before a signature leaves the process, so
    what is not in here was never published. Both raise what is in CONNECTION_LOST."""

    async def recorded(self, worker: Address, key: RequestKey) -> SignedResult | None:
        """The one result this worker has for the request."""

    async def signatures(
        self, worker: Address, keys: Sequence[RequestKey]
    ) -> Mapping[RequestKey, tuple[Hash32, CompactSignature]]:
        """Digest and signature of each recorded result; requests without one are absent."""


class ResultLog:
    """The log over node.result. Its primary key allows each worker one digest per request."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def recorded(self, worker: Address, key: RequestKey) -> SignedResult | None:
        async with self._pool.acquire() as connection:
            return await recorded(connection, worker, key)

    async def signatures(
        self, worker: Address, keys: Sequence[RequestKey]
    ) -> Mapping[RequestKey, tuple[Hash32, CompactSignature]]:
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                """
                SELECT request_id, commitment, digest, signature
                FROM unnest($2::bigint[], $3::bytea[]) AS asked (request_id, commitment)
                JOIN node.result USING (request_id, commitment)
                WHERE worker = $1
                """,
                worker,
                [key.id for key in keys],
                [key.commitment for key in keys],
            )
        return {
            RequestKey(row["request_id"], row["commitment"]): (
                Hash32(row["digest"]),
                CompactSignature(row["signature"]),
            )
            for row in rows
        }


async def recorded(connection: Connection, worker: Address, key: RequestKey) -> SignedResult | None:
    """One worker's stored result for a request."""
    row = await connection.fetchrow(
        """
        SELECT digest, output, media_type, manifest, signature, compute_ms FROM node.result
        WHERE request_id = $1 AND commitment = $2 AND worker = $3
        """,
        key.id,
        key.commitment,
        worker,
    )
    if row is None:
        return None
    return SignedResult(
        key=key,
        worker=worker,
        digest=Hash32(row["digest"]),
        output=row["output"],
        media_type=row["media_type"],
        manifest=row["manifest"],
        signature=CompactSignature(row["signature"]),
        compute_ms=row["compute_ms"],
    )


async def store(connection: Connection, result: SignedResult, lease: Lease) -> bool:
    """Writes a result, in the caller's transaction. False where it is not wanted any more.

    The first digest of a worker for a request stays, whatever comes later. A result that comes
    after its lease has ended is written only where the request has none yet.
    """
    state = await connection.fetchval(
        "SELECT state FROM node.lease WHERE id = $1 FOR UPDATE", lease.id
    )
    written = await connection.fetchval(
        """
        INSERT INTO node.result (request_id, commitment, worker, lease_id, digest, output,
                                 media_type, manifest, signature, compute_ms)
        SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10
        WHERE $11 OR NOT EXISTS (
            SELECT FROM node.result WHERE request_id = $1 AND commitment = $2)
        ON CONFLICT (request_id, commitment, worker) DO NOTHING
        RETURNING true
        """,
        result.key.id,
        result.key.commitment,
        result.worker,
        lease.id,
        result.digest,
        result.output,
        result.media_type,
        dict(result.manifest),
        result.signature,
        result.compute_ms,
        state == "active",
    )
    return written is not None
