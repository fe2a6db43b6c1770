"""How fast and how reliable each worker is with each model: the rows behind the estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import ModelId
from scheduler import estimates
from scheduler.estimates import ServicePrior, ServiceStats
from scheduler.model import ServiceEstimate

_SELECT = """
    SELECT worker, model_id, completed, failed, weight, mean_ms, mean_square_ms2
    FROM node.service_stat
"""


@dataclass(frozen=True, slots=True)
class ServiceStat:
    """One row of node.service_stat, without its key."""

    completed: int
    failed: int
    speed: ServiceStats


async def record_success(
    connection: Connection, worker: Address, model: ModelId, compute_ms: int
) -> None:
    """Mixes one measured duration in, within the caller's transaction."""
    row = await connection.fetchrow(
        _SELECT + " WHERE worker = $1 AND model_id = $2 FOR UPDATE", worker, model
    )
    before = ServiceStats() if row is None else _stat(row).speed
    speed = estimates.observed(before, float(compute_ms))
    await connection.execute(
        """
        INSERT INTO node.service_stat AS stat
            (worker, model_id, completed, weight, mean_ms, mean_square_ms2)
        VALUES ($1, $2, 1, $3, $4, $5)
        ON CONFLICT (worker, model_id) DO UPDATE SET
            completed = stat.completed + 1, weight = $3, mean_ms = $4, mean_square_ms2 = $5,
            updated_at = now()
        """,
        worker,
        model,
        speed.count,
        speed.mean_ms,
        speed.mean_square_ms2,
    )


async def record_failure(connection: Connection, worker: Address, model: ModelId) -> None:
    """Counts one failure; it says nothing about speed."""
    await connection.execute(
        """
        INSERT INTO node.service_stat AS stat (worker, model_id, failed) VALUES ($1, $2, 1)
        ON CONFLICT (worker, model_id) DO UPDATE SET
            failed = stat.failed + 1, updated_at = now()
        """,
        worker,
        model,
    )


async def read_all(connection: Connection) -> dict[tuple[Address, ModelId], ServiceStat]:
    """Every row, by worker and model."""
    rows = await connection.fetch(_SELECT)
    return {(Address(row["worker"]), ModelId(row["model_id"])): _stat(row) for row in rows}


def estimate(stat: ServiceStat | None, prior_ms: float) -> ServiceEstimate:
    """What the scheduler reckons with.

    A newcomer is taken to need `prior_ms` with a spread as large as that, as service times of
    generation nearly have.
    """
    speed = ServiceStats() if stat is None else stat.speed
    return estimates.estimate(speed, ServicePrior(prior_ms, prior_ms))


def _stat(row: Any) -> ServiceStat:
    speed = ServiceStats(row["weight"], row["mean_ms"], row["mean_square_ms2"])
    return ServiceStat(row["completed"], row["failed"], speed)
