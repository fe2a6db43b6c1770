"""The node's HTTP API: health, metrics, requests, results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from eth_utils.address import to_checksum_address
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from indexer.database import CONNECTION_LOST, Connection, Pool
from indexer.forget import settled_block_of_forgotten
from indexer.types import Address
from inferd import __version__
from inferd.node import audits, views
from inferd.node.account_routes import account_routes
from inferd.node.api_models import (
    DecisionsView,
    EncryptionKeyView,
    HealthView,
    RequestPage,
    RequestView,
    StatusView,
    WhyView,
)
from inferd.node.health import Health
from inferd.node.metrics import REGISTRY
from inferd.node.others import Others
from inferd.node.pool_models import PoolWorkerView
from inferd.node.pool_routes import pool_routes
from inferd.node.private_keys import KeyStatement
from inferd.node.result_routes import RESULT, result_routes
from inferd.node.roles import ALL, Role, Roles
from inferd.node.status import StatusReader
from inferd.node.why import why
from inferd.outputs.files import OutputFiles

_MAX_ID = 2**63 - 1


@dataclass
class ApiState:
    """What the handlers read; the daemon fills it in as it comes up."""

    health: Health
    names: Mapping[bytes, str] = field(default_factory=dict)
    """Model names by id."""
    key: KeyStatement | None = None
    """To which inputs may be encrypted."""
    outputs: OutputFiles | None = None
    """Where large outputs are."""
    own_accounts: frozenset[Address] = frozenset()
    """Whose money is the operator's."""
    status: StatusReader | None = None
    db: Pool | None = None
    roles: Roles = ALL
    others: Others | None = None
    """Of the same node, where it is split over processes."""

    def encryption_key(self) -> EncryptionKeyView | None:
        """To which inputs may be encrypted, by this process or by one that computes."""
        own = self.own_encryption_key()
        if own is None and self.others is not None:
            return self.others.encryption_key
        return own

    def own_encryption_key(self) -> EncryptionKeyView | None:
        """The same, where it is this process that reads such inputs."""
        if self.key is None:
            return None
        signature = self.key.signature
        return EncryptionKeyView(
            key="0x" + self.key.key.hex(),
            poster=to_checksum_address(self.key.poster),
            signature=None if signature is None else "0x" + signature.hex(),
        )

    async def workers_elsewhere(self, connection: Connection) -> Mapping[str, PoolWorkerView]:
        """By address, as the other processes know them."""
        return {} if self.others is None else await self.others.pool(connection)

    def accounts(self) -> frozenset[Address]:
        """Whose money is the operator's, by this process or by one that settles."""
        if self.own_accounts or self.others is None:
            return self.own_accounts
        return self.others.own_accounts


def build_api(state: ApiState) -> FastAPI:
    """The application. Handlers answer 503 while the database is away. A process without the role
    of the API serves health, metrics and status alone."""
    app = FastAPI(
        title="inferd node",
        version=__version__,
        description="Requests, results and health of one inferd node.",
    )

    async def database_away(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": "PostgreSQL does not answer"}, status_code=503)

    for kind in CONNECTION_LOST:
        app.add_exception_handler(kind, database_away)

    @app.get("/healthz")
    async def healthz() -> HealthView:
        """200 while the process works; the body says what is in its way."""
        return _health(state.health)

    @app.get("/readyz", responses={503: {"model": HealthView}})
    async def readyz(response: Response) -> HealthView:
        """200 while nothing keeps the node from its work, else 503 with the problems."""
        response.status_code = 200 if state.health.ready else 503
        return _health(state.health)

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/status")
    async def status() -> StatusView:
        if state.status is None:
            raise HTTPException(503, "the node is starting")
        return await state.status.read()

    if Role.API in state.roles:
        _serve_requests(app, state)
    return app


def _serve_requests(app: FastAPI, state: ApiState) -> None:
    @app.get("/v1/encryption-key")
    async def encryption_key() -> EncryptionKeyView:
        """To which inputs may be encrypted."""
        key = state.encryption_key()
        if key is None:
            raise HTTPException(503, "the node is starting, or has nobody who reads such inputs")
        return key

    @app.get("/v1/requests")
    async def requests(
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        before: Annotated[int | None, Query(ge=0, le=_MAX_ID)] = None,
    ) -> RequestPage:
        """Newest first; page on with `before`."""
        async with _database(state).acquire() as connection:
            found = await views.latest_requests(connection, state.names, limit=limit, before=before)
        return RequestPage(requests=found)

    @app.get("/v1/requests/{request_id}")
    async def request(request_id: int) -> RequestView:
        return await _request(state, request_id)

    @app.get("/v1/requests/{request_id}/why")
    async def request_why(request_id: int) -> WhyView:
        """One plain sentence on where the request is, and what can be done."""
        view = await _request(state, request_id)
        return (
            why(view, state.status.posting, state.status.delivering) if state.status else why(view)
        )

    @app.get("/v1/requests/{request_id}/decisions")
    async def request_decisions(request_id: int) -> DecisionsView:
        """All decisions on the request, with what proves them against the chain."""
        await _request(state, request_id)
        async with _database(state).acquire() as connection:
            return await audits.load_decisions_of(connection, request_id)

    @app.get("/v1/rounds/{round_id}/snapshot", response_class=Response)
    async def round_snapshot(round_id: int) -> Response:
        """What the round saw, as `scheduler/recording.py` writes it."""
        async with _database(state).acquire() as connection:
            found = await audits.load_recorded(connection, _checked(round_id))
        if found is None:
            raise HTTPException(404, f"what round {round_id} saw is not kept here")
        return Response(found, media_type="application/octet-stream")

    async def result_row(request_id: int) -> Any:
        async with _database(state).acquire() as connection:
            row = await connection.fetchrow(RESULT, _checked(request_id))
            if row is None:
                await _refuse_forgotten(connection, request_id)
                raise HTTPException(404, f"there is no result of request {request_id} here")
        return row

    app.include_router(result_routes(result_row, lambda: state.outputs))
    app.include_router(
        account_routes(
            state.accounts,
            lambda: _database(state),
            lambda request_id: _request(state, request_id),
        )
    )
    app.include_router(
        pool_routes(
            lambda: state.status.session if state.status else None,
            state.workers_elsewhere,
            lambda: _database(state),
            lambda: state.names,
        )
    )


def _health(health: Health) -> HealthView:
    return HealthView(
        status="ok" if health.ready else "degraded",
        role=health.role,
        problems=list(health.problems.values()),
    )


async def _request(state: ApiState, request_id: int) -> RequestView:
    async with _database(state).acquire() as connection:
        found = await views.one_request(connection, state.names, _checked(request_id))
        if found is None:
            await _refuse_forgotten(connection, request_id)
            raise HTTPException(404, f"there is no request {request_id} in the indexed chain")
    return found


async def _refuse_forgotten(connection: Connection, request_id: int) -> None:
    """Raises HTTPException where the request was deleted after the retention time."""
    block = await settled_block_of_forgotten(connection, request_id)
    if block is not None:
        raise HTTPException(
            410, f"request {request_id} was settled in block {block}, and deleted after its time"
        )


def _checked(request_id: int) -> int:
    if not 0 <= request_id <= _MAX_ID:
        raise HTTPException(404, f"{request_id} is no request id")
    return request_id


def _database(state: ApiState) -> Pool:
    if state.db is None:
        raise HTTPException(503, "PostgreSQL does not answer")
    return state.db
