"""How fast and how reliable each worker is with each model, learnt with forgetting."""

from __future__ import annotations

import math
from dataclasses import dataclass

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import ModelId
from scheduler.model import ServiceEstimate

_FORGETTING = 0.05  # weight of the newest sample once there are many
_NORMAL_P90 = 1.2816


@dataclass(frozen=True, slots=True)
class ServiceStat:
    """One row of node.service_stat, without its key."""

    completed: int
    failed: int
    mean_ms: float
    mean_square_ms: float


async def record_success(
    connection: Connection, worker: Address, model: ModelId, compute_ms: int
) -> None:
    """Mixes one measured duration in.

    The first is taken with a spread as large as itself, as service times of generation nearly
    have; later ones correct that.
    """
    await connection.execute(
        """
        INSERT INTO node.service_stat AS stat
            (worker, model_id, completed, mean_ms, mean_square_ms)
        VALUES ($1, $2, 1, $3::float8, 2 * $3::float8 * $3::float8)
        ON CONFLICT (worker, model_id) DO UPDATE SET
            completed = stat.completed + 1,
            mean_ms = stat.mean_ms + greatest($4::float8, 1.0 / (stat.completed + 1))
                * (excluded.mean_ms - stat.mean_ms),
            mean_square_ms = CASE WHEN stat.completed = 0 THEN excluded.mean_square_ms
                ELSE stat.mean_square_ms + greatest($4::float8, 1.0 / (stat.completed + 1))
                    * (excluded.mean_ms * excluded.mean_ms - stat.mean_square_ms) END,
            updated_at = now()
        """,
        worker,
        model,
        float(compute_ms),
        _FORGETTING,
    )


async def record_failure(connection: Connection, worker: Address, model: ModelId) -> None:
    """Counts one failure; it says nothing about speed."""
    await connection.execute(
        """
        INSERT INTO node.service_stat AS stat (worker, model_id, failed, mean_ms, mean_square_ms)
        VALUES ($1, $2, 1, 0, 0)
        ON CONFLICT (worker, model_id) DO UPDATE SET
            failed = stat.failed + 1, updated_at = now()
        """,
        worker,
        model,
    )


async def read_all(connection: Connection) -> dict[tuple[Address, ModelId], ServiceStat]:
    """Every row, by worker and model."""
    rows = await connection.fetch(
        """
        SELECT worker, model_id, completed, failed, mean_ms, mean_square_ms
        FROM node.service_stat
        """
    )
    return {
        (Address(row["worker"]), ModelId(row["model_id"])): ServiceStat(
            row["completed"], row["failed"], row["mean_ms"], row["mean_square_ms"]
        )
        for row in rows
    }


def estimate(stat: ServiceStat | None, prior_ms: float) -> ServiceEstimate:
    """What the scheduler reckons with; `prior_ms` while nothing has been measured."""
    if stat is None or stat.completed == 0:
        return ServiceEstimate(mean_ms=prior_ms, p90_ms=prior_ms * (1 + _NORMAL_P90), samples=0)
    variance = max(0.0, stat.mean_square_ms - stat.mean_ms**2)
    return ServiceEstimate(
        mean_ms=stat.mean_ms,
        p90_ms=stat.mean_ms + _NORMAL_P90 * math.sqrt(variance),
        samples=stat.completed,
    )
