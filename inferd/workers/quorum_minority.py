"""Whoever answered something else than a quorum agreed on is recorded, with what proves it.

What the chain needs is the same bytes. What says the same in other bytes, by the model's
comparator, is of no use for the quorum and no wrong answer. Of a model whose honest workers may
differ nobody is accused: the record stays undecided. Whose results are never posted, as a check
found them out, has no voice against others either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from indexer.database import Connection
from indexer.types import Address, Hash32
from inferd.outputs.files import OutputFiles, OutputUnreadable
from inferd.outputs.rows import output_of
from inferd.protocol.quorum import Answer, agreed
from inferd.workers.checks.evidence import Disagreement, Kind, Side
from inferd.workers.checks.rules import CheckRules
from inferd.workers.checks.suspension import accuse
from inferd.workers.endings import Ending, Written
from inferd.workers.job import Job
from inferd.workers.results import result_of

_ANSWERS = """
    SELECT n.*, extract(epoch FROM n.computed_at)::float8 AS at_s, o.owner,
           coalesce(o.enabled AND o.staked, false) AND NOT n.found_wrong
           AND NOT EXISTS (SELECT FROM node.worker_suspension s
                           WHERE s.worker = n.worker AND s.distrusted) AS counts
    FROM node.result n LEFT JOIN chain.worker o ON o.signer = n.worker
    WHERE n.request_id = $1 AND n.commitment = $2
    ORDER BY n.worker
"""


async def look(
    connection: Connection,
    together: Sequence[Ending],
    written: Sequence[Written],
    rules: CheckRules,
    files: OutputFiles | None,
) -> None:
    """In the transaction that wrote them: of each request of a quorum that has an answer more."""
    for ending, outcome in zip(together, written, strict=True):
        if ending.job.quorum > 1 and outcome.stored and outcome.anew:
            await _look(connection, ending.job, rules, files)


async def _look(
    connection: Connection, job: Job, rules: CheckRules, files: OutputFiles | None
) -> None:
    rows = await connection.fetch(_ANSWERS, job.request_id, job.commitment)
    digests = {row["digest"] for row in rows}
    if len(digests) < 2:
        return
    found = agreed((_answer(row) for row in rows if row["counts"]), job.quorum)
    if not found:
        return
    said, who = found[0].digest, {one.worker for one in found}
    rule = rules.of(job.model_id)
    try:
        right = await output_of(next(row for row in rows if row["digest"] == said), files)
    except OutputUnreadable:
        return
    others = tuple(Side.of(result_of(row, right)) for row in rows if row["worker"] in who)
    for row in rows:
        if row["digest"] == said:
            continue
        try:
            output = await output_of(row, files)
        except OutputUnreadable:
            continue
        if await asyncio.to_thread(rule.comparator.same, right, output):
            continue
        await accuse(
            connection,
            Disagreement(
                kind=Kind.QUORUM,
                key=job.key,
                model_id=job.model_id,
                accused=Side.of(result_of(row, output)),
                others=others,
                reason=f"workers of {len(found)} owners agree on another answer",
                decided=rule.deterministic,
            ),
            rules.suspension,
        )


def _answer(row: Any) -> Answer:
    return Answer(Address(row["worker"]), Address(row["owner"]), Hash32(row["digest"]), row["at_s"])
