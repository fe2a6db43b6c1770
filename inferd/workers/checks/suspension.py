"""What follows for a worker from what was found against it. In the caller's transaction."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from indexer.database import Connection
from indexer.types import Address
from inferd.workers import reputation, results
from inferd.workers.checks import evidence
from inferd.workers.checks.evidence import Disagreement, Kind

SUSPENDED_BY = "inferd"
LIES_WITHIN_S = 86_400.0
"""Lies that are older do not count towards a suspension."""
_FOUND = (Kind.SPOT, Kind.CANARY, Kind.QUORUM)

log = structlog.get_logger("workers")


@dataclass(frozen=True, slots=True)
class SuspensionRule:
    """When a worker is suspended by itself; 0 = never."""

    after: int = 1
    """Decided disagreements since the operator last gave it work again."""
    after_lies: int = 3
    """Answers within a day that were not what they said they were."""


async def accuse(connection: Connection, found: Disagreement, rule: SuspensionRule) -> int | None:
    """Records it; where it is decided its result is never posted, counts as a lie, and suspends by
    the rule. Equivocation suspends in any case: it costs the worker its stake.

    The record's id; None where it was known before, which changes nothing.
    """
    number = await evidence.record(connection, found)
    worker = found.accused.worker
    if number is None or worker is None:
        return None
    log.warning(
        "disagreement",
        id=number,
        kind=str(found.kind),
        worker="0x" + worker.hex(),
        request_id=found.key.id,
        decided=found.decided,
        reason=found.reason,
    )
    if not found.decided or found.kind in (Kind.LIE, Kind.MANIFEST):
        return number  # lies are counted with the lease that they fail
    await results.find_wrong(connection, worker, found.key)
    await reputation.count_lie(connection, worker, found.model_id)
    if found.kind is Kind.EQUIVOCATION:
        await _suspend(connection, worker, f"it signed two answers to one request: record {number}")
    elif rule.after and await _disagreements(connection, worker) >= rule.after:
        await _suspend(connection, worker, f"its answer was found wrong: record {number}")
    return number


async def suspend_liar(connection: Connection, worker: Address, rule: SuspensionRule) -> None:
    """Where it has lied too often of late. Call it after its newest lie was counted."""
    if not rule.after_lies:
        return
    lies = await reputation.lies_of_late(connection, worker, LIES_WITHIN_S)
    if lies >= rule.after_lies:
        await _suspend(
            connection, worker, f"{lies} answers within a day were not what they said they were"
        )


async def _disagreements(connection: Connection, worker: Address) -> int:
    found: int = await connection.fetchval(
        """
        SELECT count(*) FROM node.disagreement d
        WHERE accused = $1 AND decided AND kind = ANY($2::text[])
          AND NOT EXISTS (SELECT FROM node.worker_pardon p WHERE p.worker = $1 AND p.at >= d.at)
        """,
        worker,
        [str(kind) for kind in _FOUND],
    )
    return found


async def _suspend(connection: Connection, worker: Address, reason: str) -> None:
    """Nothing changes for a worker that is distrusted already: each change has all rounds and
    posts look at everything anew."""
    if worker in await reputation.distrusted(connection):
        return
    await reputation.suspend(connection, worker, reason, SUSPENDED_BY, distrusted=True)
    log.error("worker_suspended", worker="0x" + worker.hex(), reason=reason)
