"""Signed results in PostgreSQL: the workers' memory of what they have put their name to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from asyncpg import Record

from indexer.database import Connection, Pool
from indexer.types import Address, Hash32
from inferd.outputs.files import OutputFiles, OutputUnreadable
from inferd.outputs.rows import output_of
from inferd.protocol.typed_data import CompactSignature
from inferd.workers.grouping import Grouped
from inferd.workers.job import SignedResult, Spoken, WorkerFailed
from inferd.workers.leases import Lease
from scheduler.model import RequestKey

_MOST_AT_ONCE = 256


class SignatureLog(Protocol):
    """What a worker has signed. The row is committed before a signature leaves the process, so
    what is not in here was never published. Both raise what is in CONNECTION_LOST, or
    WorkerFailed where the log is not a database of CONNECTION_LOST's kind."""

    async def recorded(self, worker: Address, key: RequestKey) -> SignedResult | Spoken | None:
        """The one result this worker has for the request, or what it said of one without output.
        Raises WorkerFailed where its output is lost: to compute another one would be to say
        something else."""

    async def signatures(
        self, worker: Address, keys: Sequence[RequestKey]
    ) -> Mapping[RequestKey, tuple[Hash32, CompactSignature]]:
        """Digest and signature of each recorded result; requests without one are absent."""


class ResultLog:
    """The log over node.result. Its primary key allows each worker one digest per request."""

    def __init__(self, pool: Pool, files: OutputFiles | None = None) -> None:
        """Without `files` all outputs are in the database."""
        self._pool = pool
        self._files = files
        self._asked = Grouped(self._recorded, most=_MOST_AT_ONCE)

    async def recorded(self, worker: Address, key: RequestKey) -> SignedResult | None:
        row = await self._asked.do((worker, key))
        if row is None:
            return None
        try:
            return result_of(row, await output_of(row, self._files))
        except OutputUnreadable as error:
            raise WorkerFailed(f"its recorded output is lost: {error.reason}") from None

    async def _recorded(self, asked: Sequence[tuple[Address, RequestKey]]) -> list[Record | None]:
        async with self._pool.acquire() as connection:
            found = await _recorded(connection, asked)
        return [found.get(one) for one in asked]

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


async def _recorded(
    connection: Connection, asked: Sequence[tuple[Address, RequestKey]]
) -> dict[tuple[Address, RequestKey], Record]:
    """The rows of what workers have stored for requests, where they have."""
    rows = await connection.fetch(
        """
        SELECT request_id, commitment, worker, digest, output, file_bytes, media_type, manifest,
               signature, compute_ms
        FROM unnest($1::bytea[], $2::bigint[], $3::bytea[])
             AS asked (worker, request_id, commitment)
        JOIN node.result USING (request_id, commitment, worker)
        """,
        [worker for worker, _ in asked],
        [key.id for _, key in asked],
        [key.commitment for _, key in asked],
    )
    return {
        (Address(row["worker"]), RequestKey(row["request_id"], row["commitment"])): row
        for row in rows
    }


async def find_wrong(connection: Connection, worker: Address, key: RequestKey) -> None:
    """What that worker has stored for the request is never posted."""
    await connection.execute(
        "UPDATE node.result SET found_wrong = true"
        " WHERE request_id = $1 AND commitment = $2 AND worker = $3 AND NOT found_wrong",
        key.id,
        key.commitment,
        worker,
    )


async def of_request(
    connection: Connection, key: RequestKey, files: OutputFiles | None
) -> list[SignedResult]:
    """All results of a request whose outputs can be read here, the oldest first."""
    rows = await connection.fetch(
        """
        SELECT request_id, commitment, worker, digest, output, file_bytes, media_type, manifest,
               signature, compute_ms
        FROM node.result WHERE request_id = $1 AND commitment = $2 ORDER BY computed_at, worker
        """,
        key.id,
        key.commitment,
    )
    found = []
    for row in rows:
        with contextlib.suppress(OutputUnreadable):
            found.append(result_of(row, await output_of(row, files)))
    return found


def result_of(row: Record, output: bytes) -> SignedResult:
    """Of a row of node.result."""
    return SignedResult(
        key=RequestKey(row["request_id"], row["commitment"]),
        worker=Address(row["worker"]),
        digest=Hash32(row["digest"]),
        output=output,
        media_type=row["media_type"],
        manifest=row["manifest"],
        signature=CompactSignature(row["signature"]),
        compute_ms=row["compute_ms"],
    )


async def store(
    connection: Connection,
    given: Sequence[tuple[SignedResult, int, bool]],
    files: OutputFiles | None = None,
) -> set[RequestKey]:
    """Writes results, each with the id of its lease and whether that is active, in the caller's
    transaction. Returns whose were written; the others are not wanted any more.

    The first digest of a worker for a request stays, whatever comes later. A result that comes
    after its lease has ended is written only where the request has none yet. No two may be of one
    request. Outputs that `files` takes are on the disk before their rows are written; without it
    all are in the rows. Raises OutputUnwritable where the disk does not take one.
    """
    if not given:
        return set()
    filed = [files is not None and files.takes(result.output) for result, _, _ in given]
    for (result, _, _), in_file in zip(given, filed, strict=True):
        if files is not None and in_file:
            await asyncio.to_thread(files.put, result.digest, result.output)
    rows = await connection.fetch(
        """
        INSERT INTO node.result (request_id, commitment, worker, lease_id, digest, output,
                                 file_bytes, media_type, manifest, signature, compute_ms)
        SELECT request_id, commitment, worker, lease_id, digest, output, file_bytes, media_type,
               manifest::jsonb, signature, compute_ms
        FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[],
                    $7::text[], $8::text[], $9::bytea[], $10::bigint[], $11::boolean[],
                    $12::bigint[])
             AS given (request_id, commitment, worker, lease_id, digest, output, media_type,
                       manifest, signature, compute_ms, in_time, file_bytes)
        WHERE in_time OR NOT EXISTS (
            SELECT FROM node.result n
            WHERE n.request_id = given.request_id AND n.commitment = given.commitment)
        ON CONFLICT (request_id, commitment, worker) DO NOTHING
        RETURNING request_id, commitment
        """,
        [result.key.id for result, _, _ in given],
        [result.key.commitment for result, _, _ in given],
        [result.worker for result, _, _ in given],
        [lease_id for _, lease_id, _ in given],
        [result.digest for result, _, _ in given],
        [
            None if in_file else result.output
            for (result, _, _), in_file in zip(given, filed, strict=True)
        ],
        [result.media_type for result, _, _ in given],
        [json.dumps(dict(result.manifest)) for result, _, _ in given],
        [result.signature for result, _, _ in given],
        [result.compute_ms for result, _, _ in given],
        [in_time for _, _, in_time in given],
        [
            len(result.output) if in_file else None
            for (result, _, _), in_file in zip(given, filed, strict=True)
        ],
    )
    return {RequestKey(row["request_id"], row["commitment"]) for row in rows}


async def stored_by(connection: Connection, of: Sequence[tuple[Lease, Address]]) -> set[RequestKey]:
    """The requests of those of these leases whose result by that worker is stored: a hedged
    request's may be of another worker than the lease's."""
    rows = await connection.fetch(
        """
        SELECT request_id, commitment
        FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[])
             AS asked (request_id, commitment, worker, lease_id)
        JOIN node.result USING (request_id, commitment, worker, lease_id)
        """,
        [lease.key.id for lease, _ in of],
        [lease.key.commitment for lease, _ in of],
        [worker for _, worker in of],
        [lease.id for lease, _ in of],
    )
    return {RequestKey(row["request_id"], row["commitment"]) for row in rows}
