"""Questions whose answer the operator knows. In the caller's transaction."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from indexer.database import Connection
from indexer.types import Hash32
from inferd.protocol.request import Commitment, ModelId, model_id
from inferd.protocol.result import digest_of
from inferd.workers.checks.comparators import Comparator
from inferd.workers.checks.evidence import KEPT_OUTPUT_BYTES, Side
from inferd.workers.job import Job, SignedResult

_NEWEST_IDS = 8
"""A canary takes its id from among so many."""
_USUAL_TIME_S = 300
_LEAST_TIME_S, _MOST_TIME_S = 60, 3_600

Question = tuple[ModelId, int, bytes]
"""Model, most tokens, SHA-256 of the input."""


@dataclass(frozen=True, slots=True)
class Canary:
    """One of them."""

    id: int
    model: str
    input: bytes = field(repr=False)
    max_tokens: int
    digest: Hash32 | None
    """None while one of this node's own workers is to compute the answer."""
    output: bytes | None = field(repr=False)
    """None where only the digest is known."""
    at: datetime

    @property
    def model_id(self) -> ModelId:
        return model_id(self.model)

    @property
    def question(self) -> Question:
        return question(self.model_id, self.max_tokens, self.input)

    def is_answered_by(self, output: bytes, comparator: Comparator) -> bool:
        """Where only the digest is known, by that. False of one that is not learnt yet."""
        if self.output is None:
            return digest_of(output) == self.digest
        return comparator.same(self.output, output)

    @property
    def side(self) -> Side:
        """Its answer in a disagreement. Raises ValueError where it is not learnt yet."""
        if self.digest is None:
            raise ValueError("the canary's answer is not known yet")
        known = self.output
        return Side(
            worker=None,
            digest=self.digest,
            signature=None,
            output=None if known is None else known[:KEPT_OUTPUT_BYTES],
            output_bytes=None if known is None else len(known),
        )


def question(model: ModelId, max_tokens: int, text: bytes) -> Question:
    """What tells one question from another."""
    return model, max_tokens, hashlib.sha256(text).digest()


def by_question(canaries: Iterable[Canary]) -> Mapping[Question, Canary]:
    """Those whose answer is known."""
    return {canary.question: canary for canary in canaries if canary.digest is not None}


async def load(connection: Connection) -> list[Canary]:
    """All, the oldest first."""
    rows = await connection.fetch(
        "SELECT id, model, input, max_tokens, expected_digest AS digest,"
        " expected_output AS output, at FROM node.canary ORDER BY id"
    )
    return [Canary(**row) for row in rows]


async def version(connection: Connection) -> tuple[int, ...]:
    """Changes with what `load` returns."""
    row = await connection.fetchrow(
        "SELECT count(*), coalesce(max(id), 0), count(expected_digest) FROM node.canary"
    )
    return tuple(row or ())


async def add(
    connection: Connection,
    *,
    model: str,
    text: bytes,
    max_tokens: int,
    digest: Hash32 | None,
    output: bytes | None,
) -> int | None:
    """Its id; None where there is one with the same question."""
    number: int | None = await connection.fetchval(
        """
        INSERT INTO node.canary (model, input, max_tokens, expected_digest, expected_output)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING id
        """,
        model,
        text,
        max_tokens,
        digest,
        output,
    )
    return number


async def learn(connection: Connection, canary: Canary, result: SignedResult) -> None:
    """The answer, where it is not known yet."""
    await connection.execute(
        "UPDATE node.canary SET expected_digest = $2, expected_output = $3"
        " WHERE id = $1 AND expected_digest IS NULL",
        canary.id,
        result.digest,
        result.output,
    )


async def remove(connection: Connection, number: int) -> bool:
    """Whether there was one."""
    found = await connection.fetchval(
        "DELETE FROM node.canary WHERE id = $1 RETURNING true", number
    )
    return found is not None


async def job_of(connection: Connection, canary: Canary, now_s: float) -> Job:
    """The canary as a job that looks like a request of these days: its id is one of the newest and
    its time that of another request of the model. No request has its commitment, which is drawn at
    random: whoever looks at the chain can tell.
    """
    ids: Sequence[int] = await connection.fetchval(
        "SELECT array_agg(id) FROM (SELECT id FROM chain.request ORDER BY id DESC LIMIT $1) newest",
        _NEWEST_IDS,
    ) or (1,)
    time_s: int = (
        await connection.fetchval(
            "SELECT deadline_s - created_at_s FROM chain.request WHERE model_id = $1"
            " ORDER BY id DESC LIMIT 1",
            canary.model_id,
        )
        or _USUAL_TIME_S
    )
    return Job(
        request_id=secrets.choice(ids),
        commitment=Commitment(secrets.token_bytes(20)),
        model_id=canary.model_id,
        model=canary.model,
        input=canary.input,
        max_tokens=canary.max_tokens,
        deadline_s=int(now_s) + min(_MOST_TIME_S, max(_LEAST_TIME_S, time_s)),
    )
