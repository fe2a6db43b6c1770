"""Whoever answered something else than a quorum agreed on is recorded, with what proves it.

What the chain needs is the same bytes. What says the same in other bytes, by the model's
comparator, is of no use for the quorum and no wrong answer. Of a model whose honest workers may
differ nobody is accused: the record stays undecided. Whose results are never posted, as a check
found them out, has no voice against others either.

The operator's own workers are right here too: of a deterministic model what they say decides at
once, against any number of strangers, and whoever says otherwise is not posted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from indexer.database import Connection
from indexer.types import Address, Hash32
from inferd.outputs.files import OutputFiles, OutputUnreadable
from inferd.outputs.rows import output_of
from inferd.protocol.quorum import Answer, agreed
from inferd.workers.checks.comparators import Comparator
from inferd.workers.checks.evidence import Disagreement, Kind, Side
from inferd.workers.checks.inspection import Inspection
from inferd.workers.checks.suspension import accuse
from inferd.workers.endings import Ending, Written
from inferd.workers.job import Job
from inferd.workers.results import result_of

_Said = tuple[Any, bytes]
"""A row of node.result, and its output."""

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
    inspection: Inspection,
    files: OutputFiles | None,
) -> None:
    """In the transaction that wrote them: of each request of a quorum that has an answer more."""
    for ending, outcome in zip(together, written, strict=True):
        if ending.job.quorum > 1 and outcome.stored and outcome.anew:
            await _look(connection, ending.job, inspection, files)


async def _look(
    connection: Connection, job: Job, inspection: Inspection, files: OutputFiles | None
) -> None:
    rows = await connection.fetch(_ANSWERS, job.request_id, job.commitment)
    if len({row["digest"] for row in rows}) < 2:
        return
    said = []
    for row in rows:
        try:
            said.append((row, await output_of(row, files)))
        except OutputUnreadable:
            continue
    rule = inspection.rules.of(job.model_id)
    ours = [
        (row, output)
        for row, output in said
        if row["counts"] and inspection.trusts(row["worker"], row["owner"])
    ]
    if ours and rule.deterministic:
        right, reason = ours, "the operator's own worker says otherwise"
        if not await _alike(ours, rule.comparator):
            return
    else:
        found = agreed((_answer(row) for row in rows if row["counts"]), job.quorum)
        who = {one.worker for one in found}
        right = [(row, output) for row, output in said if row["worker"] in who]
        reason = f"workers of {len(found)} owners agree on another answer"
    if not right:
        return
    others = tuple(Side.of(result_of(row, output)) for row, output in right)
    for row, output in said:
        if inspection.trusts(row["worker"], row["owner"]) or await _says(
            output, right, rule.comparator
        ):
            continue
        await accuse(
            connection,
            Disagreement(
                kind=Kind.QUORUM,
                key=job.key,
                model_id=job.model_id,
                accused=Side.of(result_of(row, output)),
                others=others,
                reason=reason,
                decided=rule.deterministic,
            ),
            inspection.rules.suspension,
        )


async def _says(output: bytes, right: Sequence[_Said], comparator: Comparator) -> bool:
    """Whether it is the same as one of these."""
    for _, each in right:
        if await asyncio.to_thread(comparator.same, each, output):
            return True
    return False


async def _alike(said: Sequence[_Said], comparator: Comparator) -> bool:
    for (_, one), (_, other) in combinations(said, 2):
        if not await asyncio.to_thread(comparator.same, one, other):
            return False
    return True


def _answer(row: Any) -> Answer:
    return Answer(Address(row["worker"]), Address(row["owner"]), Hash32(row["digest"]), row["at_s"])
