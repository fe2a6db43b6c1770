"""How checks ended, by worker, model and kind; kept for good."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.workers.checks.evidence import Kind


class Outcome(StrEnum):
    """How one check of one worker's answer ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    NOT_DONE = "not_done"
    """Nobody else was free in time, or the worker gave a canary no answer."""


@dataclass(frozen=True, slots=True)
class CheckCount:
    """Of one worker and model."""

    worker: Address
    model_id: ModelId
    kind: Kind
    passed: int
    failed: int
    undecided: int
    not_done: int


async def count(
    connection: Connection, worker: Address, model_id: ModelId, kind: Kind, outcome: Outcome
) -> None:
    """One more, in the caller's transaction."""
    await connection.execute(
        f"""
        INSERT INTO node.check_count AS c (worker, model_id, kind, {outcome})
        VALUES ($1, $2, $3, 1)
        ON CONFLICT (worker, model_id, kind) DO UPDATE SET {outcome} = c.{outcome} + 1
        """,  # noqa: S608 - a constant of the enumeration
        worker,
        model_id,
        str(kind),
    )


async def load(connection: Connection, worker: Address) -> list[CheckCount]:
    """Of one worker."""
    rows = await connection.fetch(
        "SELECT worker, model_id, kind, passed, failed, undecided, not_done"
        " FROM node.check_count WHERE worker = $1 ORDER BY model_id, kind",
        worker,
    )
    return [CheckCount(**{**row, "kind": Kind(row["kind"])}) for row in rows]
