"""How fast and how reliable each worker is with each model: the rows behind the estimates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.workers import length_stats
from inferd.workers.job import Job, SignedResult
from inferd.workers.length_stats import Learning, Lengths
from scheduler import predict_service, reliability
from scheduler.model import RequestKey, ServiceEstimate
from scheduler.predict_round import Size, p90_ms
from scheduler.predict_service import ServiceHistory, ServicePrior
from scheduler.reliability import Reliability

_Key: TypeAlias = tuple[Address, ModelId]

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


@dataclass(frozen=True, slots=True)
class Experience:
    """What one lease told of its worker."""

    worker: Address
    job: Job
    result: SignedResult | None
    """None where it failed."""
    prior_ms: float
    """What the back end takes for a request by its own guess."""
    at_s: float
    """When it was told, in seconds since the epoch."""
    waited_ms: float | None = None
    """Of a failure of a worker that ran out of time: how long it was waited for. Other failures
    say nothing about speed."""

    @property
    def tokens(self) -> int | None:
        """The output's length, where there is one and the worker says it."""
        if self.result is None:
            return None
        return output_tokens(self.result.manifest, self.job.max_tokens)

    @property
    def is_of_time(self) -> bool:
        """Whether it says how long something took."""
        return self.result is not None or self.waited_ms is not None


async def record(connection: Connection, experiences: Sequence[Experience]) -> None:
    """Mixes them in one after the other, within the caller's transaction: each one's time, its
    length, and whether it came. What newcomers are taken for stays as it was before the first."""
    if not experiences:
        return
    tenants = await _requesters(connection, [one.job for one in experiences if one.is_of_time])
    lengths = await _Lengths.of(connection, experiences, tenants)
    stats, peers = await _held(connection, experiences)
    priors = Priors(peers)
    for one in experiences:
        key = (one.worker, one.job.model_id)
        prior = priors.of(one.job.model_id, one.prior_ms)
        tenant = tenants.get(one.job.key)
        stat = stats[key]
        history = stat.history
        if one.is_of_time:
            size = lengths.size(one, tenant)
            # How surely it comes is no part of how long it takes, and takes long to compute.
            expected = predict_service.estimate(stat.history, prior, Reliability(), now_s=one.at_s)
            p90 = p90_ms(expected, size)
            if one.result is not None:
                history = predict_service.observed(
                    history,
                    prior,
                    tokens=size.tokens if one.tokens is None else one.tokens,
                    service_ms=float(one.result.compute_ms),
                    at_s=one.at_s,
                    p90_ms=p90,
                )
            elif one.waited_ms is not None:
                history = predict_service.overdue(
                    history, waited_ms=one.waited_ms, at_s=one.at_s, p90_ms=p90
                )
        stats[key] = ServiceStat(
            stat.completed + (one.result is not None),
            stat.failed + (one.result is None),
            history,
            reliability.outcome(stat.reliability, success=one.result is not None),
        )
        lengths.learn(one, tenant)
    await _update(connection, stats)
    await lengths.store(connection)


async def read_all(connection: Connection) -> dict[tuple[Address, ModelId], ServiceStat]:
    """Every row, by worker and model."""
    return _by_key(
        await connection.fetch(f"SELECT {_COLUMNS} FROM node.service_stat")  # noqa: S608
    )


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


class _Lengths:
    """What is known of the outputs that experiences are about, and what they add to it."""

    def __init__(self, known: Lengths, held: Learning) -> None:
        self._known = known
        self._held = held

    @classmethod
    async def of(
        cls,
        connection: Connection,
        experiences: Sequence[Experience],
        tenants: Mapping[RequestKey, Address | None],
    ) -> _Lengths:
        """Rows that nothing is added to are only read, and not made."""

        def pairs(*, said: bool) -> set[tuple[ModelId, Address]]:
            return {
                (one.job.model_id, tenants.get(one.job.key) or length_stats.ALL)
                for one in experiences
                if one.is_of_time and (one.tokens is not None) is said
            }

        return cls(
            await length_stats.load(connection, pairs(said=False)),
            await length_stats.hold(connection, pairs(said=True)),
        )

    def size(self, one: Experience, tenant: Address | None) -> Size:
        known = self._known if one.tokens is None else self._held
        tenant = length_stats.ALL if tenant is None else tenant
        return known.size(one.job.model_id, tenant, one.job.max_tokens)

    def learn(self, one: Experience, tenant: Address | None) -> None:
        if one.tokens is not None:
            self._held.add(one.job.model_id, tenant, one.tokens, one.job.max_tokens)

    async def store(self, connection: Connection) -> None:
        await self._held.store(connection)


async def _requesters(
    connection: Connection, jobs: Sequence[Job]
) -> dict[RequestKey, Address | None]:
    """Without those that a reorganisation took away."""
    rows = await connection.fetch(
        """
        SELECT id, commitment, requester
        FROM unnest($1::bigint[], $2::bytea[]) AS asked (id, commitment)
        JOIN chain.request USING (id, commitment)
        """,
        [job.request_id for job in jobs],
        [job.commitment for job in jobs],
    )
    return {RequestKey(row["id"], row["commitment"]): Address(row["requester"]) for row in rows}


async def _held(
    connection: Connection, experiences: Sequence[Experience]
) -> tuple[dict[_Key, ServiceStat], dict[_Key, ServiceStat]]:
    """The rows, made where they are not there, until the transaction's end; and those that say what
    a newcomer to their models is taken for. In one order for all."""
    keys = sorted({(one.worker, one.job.model_id) for one in experiences})
    rows = await connection.fetch(
        f"""
        INSERT INTO node.service_stat AS stat (worker, model_id)
        SELECT * FROM unnest($1::bytea[], $2::bytea[])
        ON CONFLICT (worker, model_id) DO UPDATE SET updated_at = now()
        RETURNING {_COLUMNS}
        """,  # noqa: S608 - constants
        [worker for worker, _ in keys],
        [model for _, model in keys],
    )
    peers = await connection.fetch(
        f"""
        SELECT peer.* FROM unnest($1::bytea[]) AS asked (model_id), LATERAL (
            SELECT {_COLUMNS} FROM node.service_stat
            WHERE model_id = asked.model_id AND observations > 0
            ORDER BY updated_at DESC LIMIT {_PEERS}) AS peer
        """,  # noqa: S608 - constants
        sorted({model for _, model in keys}),
    )
    return _by_key(rows), _by_key(peers)


async def _update(connection: Connection, stats: Mapping[_Key, ServiceStat]) -> None:
    await connection.execute(
        """
        UPDATE node.service_stat stat SET
            completed = learnt.completed, failed = learnt.failed, successes = learnt.successes,
            failures = learnt.failures, observations = learnt.observations,
            fit_weight = learnt.fit_weight, fit_x = learnt.fit_x, fit_xx = learnt.fit_xx,
            fit_y = learnt.fit_y, fit_xy = learnt.fit_xy, error_square = learnt.error_square,
            log_factor = learnt.log_factor, peak_ms = learnt.peak_ms, peak_at_s = learnt.peak_at_s
        FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::float8[],
                    $6::float8[], $7::float8[], $8::float8[], $9::float8[], $10::float8[],
                    $11::float8[], $12::float8[], $13::float8[], $14::float8[], $15::float8[],
                    $16::float8[])
             AS learnt (worker, model_id, completed, failed, successes, failures, observations,
                        fit_weight, fit_x, fit_xx, fit_y, fit_xy, error_square, log_factor,
                        peak_ms, peak_at_s)
        WHERE stat.worker = learnt.worker AND stat.model_id = learnt.model_id
        """,
        *zip(*(_values(*key, stat) for key, stat in stats.items()), strict=True),
    )


def _values(worker: Address, model: ModelId, stat: ServiceStat) -> tuple[Any, ...]:
    history = stat.history
    return (
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


def _by_key(rows: Collection[Any]) -> dict[_Key, ServiceStat]:
    return {(Address(row["worker"]), ModelId(row["model_id"])): _stat(row) for row in rows}


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
