"""How fast and how reliable each worker is with each model: the rows behind the estimates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.workers import length_stats
from inferd.workers.job import Job, SignedResult
from scheduler import predict_service, reliability
from scheduler.model import ServiceEstimate
from scheduler.predict_round import Size, p90_ms, size_of
from scheduler.predict_service import ServiceHistory, ServicePrior
from scheduler.reliability import Reliability

_PEERS = 32
"""So many other workers of a model say what a newcomer is taken for."""
_TYPICAL_TOKENS = 64.0
"""Of the request that a back end's guess of its duration is about."""

_COLUMNS = """
    worker, model_id, completed, failed, successes, failures, observations, fit_weight, fit_x,
    fit_xx, fit_y, fit_xy, error_square, log_factor, peak_ms, peak_at_s
"""


@dataclass(frozen=True, slots=True)
class ServiceStat:
    """One row of node.service_stat, without its key."""

    completed: int
    failed: int
    history: ServiceHistory
    reliability: Reliability


async def record_success(
    connection: Connection,
    worker: Address,
    job: Job,
    result: SignedResult,
    *,
    prior_ms: float,
    at_s: float,
) -> None:
    """Mixes one result in, within the caller's transaction: its time, its length, that it came.

    `at_s` is when it came, in seconds since the epoch.
    """
    tenant = await _requester(connection, job)
    size = await _size(connection, job, tenant)
    tokens = output_tokens(result.manifest, job.max_tokens)
    stat, prior = await _locked(connection, worker, job.model_id, prior_ms)
    history = predict_service.observed(
        stat.history,
        prior,
        tokens=size.tokens if tokens is None else tokens,
        service_ms=float(result.compute_ms),
        at_s=at_s,
        p90_ms=_p90_ms(stat, prior, size, at_s),
    )
    reliable = reliability.outcome(stat.reliability, success=True)
    await _update(
        connection,
        worker,
        job.model_id,
        ServiceStat(stat.completed + 1, stat.failed, history, reliable),
    )
    if tokens is not None:
        await length_stats.record(connection, job.model_id, tenant, tokens, job.max_tokens)


async def record_failure(
    connection: Connection,
    worker: Address,
    job: Job,
    *,
    prior_ms: float,
    at_s: float,
    waited_ms: float | None,
) -> None:
    """Counts one failure, within the caller's transaction.

    It says nothing about speed, unless the worker ran out of time: then `waited_ms` is how long it
    had been given.
    """
    stat, prior = await _locked(connection, worker, job.model_id, prior_ms)
    history = stat.history
    if waited_ms is not None:
        size = await _size(connection, job, await _requester(connection, job))
        history = predict_service.overdue(
            history,
            waited_ms=waited_ms,
            at_s=at_s,
            p90_ms=_p90_ms(stat, prior, size, at_s),
        )
    reliable = reliability.outcome(stat.reliability, success=False)
    await _update(
        connection,
        worker,
        job.model_id,
        ServiceStat(stat.completed, stat.failed + 1, history, reliable),
    )


async def read_all(connection: Connection) -> dict[tuple[Address, ModelId], ServiceStat]:
    """Every row, by worker and model."""
    rows = await connection.fetch(f"SELECT {_COLUMNS} FROM node.service_stat")  # noqa: S608
    return {(Address(row["worker"]), ModelId(row["model_id"])): _stat(row) for row in rows}


class Priors:
    """What is assumed of workers before they are known, given all rows."""

    def __init__(self, stats: Mapping[tuple[Address, ModelId], ServiceStat]) -> None:
        self._known: dict[ModelId, list[ServiceHistory]] = {}
        for (_, model), stat in stats.items():
            self._known.setdefault(model, []).append(stat.history)
        self._found: dict[tuple[ModelId, float], ServicePrior] = {}

    def of(self, model: ModelId, prior_ms: float) -> ServicePrior:
        """What the workers that are known show; if there is none, a request takes `prior_ms`."""
        found = self._found.get((model, prior_ms))
        if found is None:
            found = self._found[model, prior_ms] = _prior(prior_ms, self._known.get(model, ()))
        return found


def estimate(
    stat: ServiceStat | None, prior: ServicePrior, now_s: float, *, load_ms: float = 0.0
) -> ServiceEstimate:
    """What the scheduler reckons with; `load_ms` is what loading the model takes."""
    history, reliable = (
        (ServiceHistory(), Reliability()) if stat is None else (stat.history, stat.reliability)
    )
    return predict_service.estimate(history, prior, reliable, now_s=now_s, load_ms=load_ms)


def output_tokens(manifest: Mapping[str, Any], max_tokens: int) -> int | None:
    """What the worker says its output has, at most what it was allowed; None if it does not say."""
    tokens = manifest.get("completion_tokens")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
        return None
    return min(tokens, max_tokens) if max_tokens > 0 else tokens


async def _requester(connection: Connection, job: Job) -> Address | None:
    """None where a reorganisation took the request away."""
    found = await connection.fetchval(
        "SELECT requester FROM chain.request WHERE id = $1 AND commitment = $2",
        job.request_id,
        job.commitment,
    )
    return None if found is None else Address(found)


async def _size(connection: Connection, job: Job, tenant: Address | None) -> Size:
    pairs = [] if tenant is None else [(job.model_id, tenant)]
    lengths = await length_stats.load(connection, [(job.model_id, length_stats.ALL), *pairs])
    law = lengths.law(job.model_id, length_stats.ALL if tenant is None else tenant)
    return size_of(*law.predict(job.max_tokens))


async def _locked(
    connection: Connection, worker: Address, model: ModelId, prior_ms: float
) -> tuple[ServiceStat, ServicePrior]:
    """The row, made if it is not there, until the transaction's end."""
    row = await connection.fetchrow(
        f"""
        INSERT INTO node.service_stat AS stat (worker, model_id) VALUES ($1, $2)
        ON CONFLICT (worker, model_id) DO UPDATE SET updated_at = now()
        RETURNING {_COLUMNS}
        """,  # noqa: S608 - constants
        worker,
        model,
    )
    peers = await connection.fetch(
        f"""
        SELECT {_COLUMNS} FROM node.service_stat WHERE model_id = $1 AND observations > 0
        ORDER BY updated_at DESC LIMIT {_PEERS}
        """,  # noqa: S608 - constants
        model,
    )
    return _stat(row), _prior(prior_ms, [_stat(peer).history for peer in peers])


async def _update(
    connection: Connection, worker: Address, model: ModelId, stat: ServiceStat
) -> None:
    history = stat.history
    await connection.execute(
        """
        UPDATE node.service_stat SET
            completed = $3, failed = $4, successes = $5, failures = $6, observations = $7,
            fit_weight = $8, fit_x = $9, fit_xx = $10, fit_y = $11, fit_xy = $12,
            error_square = $13, log_factor = $14, peak_ms = $15, peak_at_s = $16
        WHERE worker = $1 AND model_id = $2
        """,
        worker,
        model,
        stat.completed,
        stat.failed,
        stat.reliability.successes,
        stat.reliability.failures,
        history.count,
        history.weight,
        history.weight_x,
        history.weight_xx,
        history.weight_y,
        history.weight_xy,
        history.error_square,
        history.log_factor,
        history.peak_ms,
        history.peak_at_s,
    )


def _prior(prior_ms: float, known: Collection[ServiceHistory]) -> ServicePrior:
    guess = ServicePrior.from_mean(prior_ms, _TYPICAL_TOKENS)
    return predict_service.newcomer_prior([one for one in known if one.count > 0.0], guess)


def _p90_ms(stat: ServiceStat, prior: ServicePrior, size: Size, at_s: float) -> float:
    return p90_ms(estimate(stat, prior, at_s), size)


def _stat(row: Any) -> ServiceStat:
    return ServiceStat(
        row["completed"],
        row["failed"],
        ServiceHistory(
            count=row["observations"],
            weight=row["fit_weight"],
            weight_x=row["fit_x"],
            weight_xx=row["fit_xx"],
            weight_y=row["fit_y"],
            weight_xy=row["fit_xy"],
            error_square=row["error_square"],
            log_factor=row["log_factor"],
            peak_ms=row["peak_ms"],
            peak_at_s=row["peak_at_s"],
        ),
        Reliability(row["successes"], row["failures"]),
    )
