"""Who of the pool may check whom."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.workers.checks import rules
from inferd.workers.job import Job
from inferd.workers.pool import Elsewhere, WorkerPool
from scheduler import model as scheduling

LEAST_PATIENCE_S = 30.0
_PATIENCE_MEANS = 20.0
_USUAL_TOKENS = 64
"""Of a request that leaves its length to the worker."""


def trusts(pool: WorkerPool, address: Address, owner: Address | None = None) -> bool:
    """Whether a worker is this operator's own: in this process, or paid to its accounts. Of one
    that may have left the pool only its `owner` tells."""
    if owner is not None and owner in pool.own_accounts:
        return True
    if address in pool and not isinstance(pool.worker(address), Elsewhere):
        return True
    view = pool.seen.get(address)
    return view is not None and view.owned


def is_new(pool: WorkerPool, address: Address, model: ModelId, *, proved: float) -> bool:
    """As `rules.is_new`, of a worker that is not this operator's."""
    if trusts(pool, address):
        return False
    view = pool.seen.get(address)
    offer = None if view is None else view.service.get(scheduling.ModelId(model))
    return rules.is_new(offer, proved=proved)


def on_probation(pool: WorkerPool, address: Address, model: ModelId, *, proved: float) -> bool:
    """Whether a worker that is not this operator's has not yet shown that it succeeds so surely."""
    if trusts(pool, address):
        return False
    view = pool.seen.get(address)
    offer = None if view is None else view.service.get(scheduling.ModelId(model))
    return offer is None or offer.success_lower < proved


def free_for(pool: WorkerPool, model: ModelId, memory_mb: int = 0) -> list[Address]:
    """Who could compute a request of this model now; the operator's own first, then who succeeds
    most surely."""
    wanted = scheduling.ModelId(model)
    found = [
        (not trusts(pool, address), -view.service[wanted].success_lower, address)
        for address, view in pool.seen.items()
        if wanted in view.service and view.memory_mb >= memory_mb and pool.is_free(address)
    ]
    return [address for _, _, address in sorted(found)]


def has_peer(pool: WorkerPool, address: Address, model: ModelId) -> bool:
    """Whether there is a worker of another owner that could check it, free or not."""
    view = pool.seen.get(address)
    owner = b"" if view is None else view.owner
    wanted = scheduling.ModelId(model)
    return any(
        other.available and other.owner and other.owner != owner and wanted in other.service
        for other in pool.seen.values()
    )


def patience_s(pool: WorkerPool, address: Address, job: Job) -> float:
    """How long a check waits for this worker's answer at most: twenty times what it is expected to
    take, at least 30 s. One that hangs would else hold up a result for half of its time."""
    view = pool.seen.get(address)
    usual = None if view is None else view.service.get(scheduling.ModelId(job.model_id))
    if usual is None:
        return LEAST_PATIENCE_S
    tokens = job.max_tokens or _USUAL_TOKENS
    mean_ms = usual.load_ms + usual.base_ms + usual.per_token_ms * tokens
    return max(LEAST_PATIENCE_S, _PATIENCE_MEANS * mean_ms / 1000.0)


async def owners_of(
    connection: Connection, workers: Collection[Address]
) -> Mapping[Address, Address]:
    """By the registry; who is not in it is its own."""
    rows = await connection.fetch(
        "SELECT signer, owner FROM chain.worker WHERE signer = ANY($1::bytea[])", list(workers)
    )
    owners = {Address(row["signer"]): Address(row["owner"]) for row in rows}
    return {worker: owners.get(worker, worker) for worker in workers}
