"""The part of the HTTP API that tells of workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated

from eth_utils.address import is_hex_address, to_canonical_address
from fastapi import APIRouter, HTTPException, Query

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.node.evidence_views import EvidenceView, load_evidence
from inferd.node.pool_models import PoolView, PoolWorkerDetailView, PoolWorkerView
from inferd.node.pool_views import load_pool, load_worker

if TYPE_CHECKING:
    from inferd.node.session import Session

Limit = Annotated[int, Query(ge=1, le=100)]


def pool_routes(
    session: Callable[[], Session | None],
    told: Callable[[Connection], Awaitable[Mapping[str, PoolWorkerView]]],
    database: Callable[[], Pool],
    names: Callable[[], Mapping[bytes, str]],
) -> APIRouter:
    """`told` are workers by address as other processes know them; `database` raises HTTPException
    where there is none."""
    routes = APIRouter()

    @routes.get("/v1/workers")
    async def workers() -> PoolView:
        """Every worker that is embedded, registered, or has computed for this node."""
        async with database().acquire() as connection:
            return await load_pool(connection, session(), names(), await told(connection))

    @routes.get("/v1/workers/{address}")
    async def worker(address: str) -> PoolWorkerDetailView:
        """One of them: why it is in the pool or not, how it does, its last failures."""
        canonical = _canonical(address)
        async with database().acquire() as connection:
            elsewhere = await told(connection)
            found = await load_worker(connection, session(), names(), canonical, elsewhere)
        if found is None:
            raise HTTPException(404, f"nothing is known of a worker {address}")
        return found

    @routes.get("/v1/workers/{address}/evidence")
    async def worker_evidence(address: str, limit: Limit = 20) -> EvidenceView:
        """Its answers that contradict others, with what proves it; the newest first."""
        async with database().acquire() as connection:
            return await load_evidence(connection, names(), _canonical(address), limit)

    @routes.get("/v1/evidence")
    async def all_evidence(limit: Limit = 20) -> EvidenceView:
        """The same of all workers."""
        async with database().acquire() as connection:
            return await load_evidence(connection, names(), None, limit)

    return routes


def _canonical(address: str) -> Address:
    if not is_hex_address(address):
        raise HTTPException(404, "that is no address of 0x and 40 hex digits")
    return Address(to_canonical_address(address))
