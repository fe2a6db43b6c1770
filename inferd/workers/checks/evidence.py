"""Disagreements: answers of workers that contradict others, with what proves it to anybody.

A side's digest and signature are those of a group of one item (request id, commitment, digest), so
who has the record can verify them without this node. All functions run in the caller's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from indexer.database import Connection, plain_text
from indexer.types import Address, Hash32
from inferd.protocol.request import Commitment, ModelId
from inferd.protocol.result import ResultItem
from inferd.protocol.typed_data import CompactSignature
from inferd.workers.job import SignedResult
from scheduler.model import RequestKey

KEPT_OUTPUT_BYTES = 64_000
"""Of each output; the digest proves the rest."""
_MAX_REASON_CHARACTERS = 300


class Kind(StrEnum):
    """How it was found."""

    SPOT = "spot"
    """Another worker computed the request once more."""
    CANARY = "canary"
    """The operator knows the answer."""
    QUORUM = "quorum"
    """Most workers of a quorum said something else."""
    LIE = "lie"
    """The answer is not what it says it is, and yet signed."""
    MANIFEST = "manifest"
    """What it tells of the computation is impossible."""
    EQUIVOCATION = "equivocation"
    """The same worker signed another digest for the same request: it loses its stake for it."""


class Dispute(StrEnum):
    """What has become of it on chain."""

    NONE = "none"
    WANTED = "wanted"
    """Decided, and about a request: to be disputed, should the result be under a window."""
    OPENED = "opened"
    UPHELD = "upheld"
    REJECTED = "rejected"
    LAPSED = "lapsed"
    UNNEEDED = "unneeded"
    """There is nothing to dispute: it is not settled under a window, or that is over."""


_DISPUTED_KINDS = frozenset({Kind.SPOT, Kind.CANARY, Kind.QUORUM, Kind.EQUIVOCATION})


@dataclass(frozen=True, slots=True)
class Side:
    """What one worker said, or what a canary's answer is."""

    worker: Address | None
    """None where it is the operator's own knowledge."""
    digest: Hash32
    signature: CompactSignature | None
    output: bytes | None = field(repr=False)
    """At most KEPT_OUTPUT_BYTES of it; None where it is not known."""
    output_bytes: int | None
    media_type: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, result: SignedResult) -> Side:
        """Of a worker's answer."""
        return cls(
            worker=result.worker,
            digest=result.digest,
            signature=result.signature,
            output=result.output[:KEPT_OUTPUT_BYTES],
            output_bytes=len(result.output),
            media_type=result.media_type,
            manifest=result.manifest,
        )


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One worker's answer against those of others."""

    kind: Kind
    key: RequestKey
    model_id: ModelId
    accused: Side
    """With a worker and its signature."""
    others: tuple[Side, ...]
    reason: str
    """In words; holds nothing of input or outputs."""
    decided: bool = True
    """False while it is not known who of them is wrong: then each of them has such a record."""
    on_chain: bool = True
    """False of a canary that is no request."""

    @property
    def dispute(self) -> Dispute:
        """What it begins with."""
        wanted = self.decided and self.on_chain and self.kind in _DISPUTED_KINDS
        return Dispute.WANTED if wanted else Dispute.NONE

    @property
    def item(self) -> ResultItem:
        """What the accused signed."""
        return ResultItem(self.key.id, Commitment(self.key.commitment), self.accused.digest)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A disagreement as it is stored."""

    id: int
    at: datetime
    dispute: Dispute
    dispute_tx: Hash32 | None
    disagreement: Disagreement


async def record(connection: Connection, found: Disagreement) -> int | None:
    """Its id; None where it was recorded before, which changes nothing: a transaction may be
    repeated. One that was undecided and is decided now counts as new.

    Raises ValueError where nobody is accused, or nothing of the accused is signed.
    """
    accused = found.accused
    if accused.worker is None or accused.signature is None:
        raise ValueError("a disagreement is about something that a worker signed")
    number: int | None = await connection.fetchval(
        """
        INSERT INTO node.disagreement AS d
            (kind, request_id, commitment, model_id, accused, digest, signature, output,
             output_bytes, media_type, manifest, decided, reason, dispute, on_chain)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::jsonb, $12, $13, $14, $15)
        ON CONFLICT (request_id, commitment, accused, kind, digest) DO UPDATE
            SET decided = true, reason = excluded.reason, dispute = excluded.dispute,
                at = clock_timestamp()
            WHERE excluded.decided AND NOT d.decided
        RETURNING id
        """,
        str(found.kind),
        found.key.id,
        found.key.commitment,
        found.model_id,
        accused.worker,
        accused.digest,
        accused.signature,
        (accused.output or b"")[:KEPT_OUTPUT_BYTES],
        accused.output_bytes or 0,
        accused.media_type,
        json.dumps(dict(accused.manifest)),
        found.decided,
        plain_text(found.reason)[:_MAX_REASON_CHARACTERS],
        str(found.dispute),
        found.on_chain,
    )
    if number is None:
        return None
    await connection.execute(
        "DELETE FROM node.disagreement_side WHERE disagreement_id = $1", number
    )
    await connection.executemany(
        "INSERT INTO node.disagreement_side (disagreement_id, place, worker, digest, signature,"
        " output, output_bytes, media_type, manifest)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb)",
        [
            (
                number,
                place,
                side.worker,
                side.digest,
                side.signature,
                None if side.output is None else side.output[:KEPT_OUTPUT_BYTES],
                side.output_bytes,
                side.media_type,
                json.dumps(dict(side.manifest)),
            )
            for place, side in enumerate(found.others)
        ],
    )
    return number


async def acquit(
    connection: Connection, kind: Kind, key: RequestKey, workers: Collection[Address]
) -> None:
    """Deletes the undecided records against these: it is known now that they were right."""
    await connection.execute(
        "DELETE FROM node.disagreement WHERE kind = $1 AND request_id = $2 AND commitment = $3"
        " AND accused = ANY($4::bytea[]) AND NOT decided",
        str(kind),
        key.id,
        key.commitment,
        list(workers),
    )


async def load(connection: Connection, number: int) -> Recorded | None:
    """The one with this id."""
    rows = await connection.fetch("SELECT * FROM node.disagreement WHERE id = $1", number)
    found = await _with_sides(connection, rows)
    return found[0] if found else None


async def of_worker(
    connection: Connection, worker: Address | None = None, *, limit: int = 100
) -> list[Recorded]:
    """The newest first, of one worker or of all."""
    rows = await connection.fetch(
        "SELECT * FROM node.disagreement WHERE $1::bytea IS NULL OR accused = $1"
        " ORDER BY id DESC LIMIT $2",
        worker,
        limit,
    )
    return await _with_sides(connection, rows)


async def _with_sides(connection: Connection, rows: Sequence[Any]) -> list[Recorded]:
    sides: dict[int, list[Side]] = {}
    for row in await connection.fetch(
        "SELECT * FROM node.disagreement_side WHERE disagreement_id = ANY($1::bigint[])"
        " ORDER BY disagreement_id, place",
        [row["id"] for row in rows],
    ):
        sides.setdefault(row["disagreement_id"], []).append(_side(row, row["worker"]))
    return [
        Recorded(
            id=row["id"],
            at=row["at"],
            dispute=Dispute(row["dispute"]),
            dispute_tx=row["dispute_tx"],
            disagreement=Disagreement(
                kind=Kind(row["kind"]),
                key=RequestKey(row["request_id"], row["commitment"]),
                model_id=ModelId(row["model_id"]),
                accused=_side(row, row["accused"]),
                others=tuple(sides.get(row["id"], ())),
                reason=row["reason"],
                decided=row["decided"],
                on_chain=row["on_chain"],
            ),
        )
        for row in rows
    ]


def _side(row: Any, worker: bytes | None) -> Side:
    return Side(
        worker=None if worker is None else Address(worker),
        digest=row["digest"],
        signature=row["signature"],
        output=row["output"],
        output_bytes=row["output_bytes"],
        media_type=row["media_type"],
        manifest=json.loads(row["manifest"]),
    )
