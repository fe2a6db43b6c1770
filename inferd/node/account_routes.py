"""The part of the HTTP API that tells of fees, gas and profit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from indexer.database import Pool
from indexer.types import DAY_S, Address
from inferd.node.account_lines import load_lines_of
from inferd.node.account_models import LinesView, ReportView
from inferd.node.account_rows import load_now_s, load_report, load_senders
from inferd.node.account_views import lines_view, report_view
from inferd.node.accounts import Period

_MAX_TIME_S = 2**40 - 1
_DAYS = 7


def account_routes(
    own_accounts: Callable[[], frozenset[Address]],
    database: Callable[[], Pool],
    require_request: Callable[[int], Awaitable[object]],
) -> APIRouter:
    """The last two raise HTTPException where there is no database, or no such request."""
    routes = APIRouter()

    @routes.get("/v1/requests/{request_id}/accounts")
    async def request_accounts(request_id: int) -> LinesView:
        """What the request earned and cost this operator, in each transaction it was in."""
        await require_request(request_id)
        async with database().acquire() as connection:
            own = own_accounts() | await load_senders(connection)
            return lines_view(request_id, await load_lines_of(connection, request_id, own))

    @routes.get("/v1/report")
    async def report(
        begin_s: Annotated[int | None, Query(ge=0, le=_MAX_TIME_S)] = None,
        end_s: Annotated[int | None, Query(ge=1, le=_MAX_TIME_S)] = None,
    ) -> ReportView:
        """What this node earned and paid, by day of UTC; by default in the last 7 days.

        Times are those of the chain's blocks, moved out to full hours.
        """
        async with database().acquire() as connection:
            now_s = await load_now_s(connection)
            if now_s is None:
                raise HTTPException(503, "no block is indexed yet")
            last_s = now_s + 1 if end_s is None else end_s
            first_s = max(last_s - _DAYS * DAY_S, 0) if begin_s is None else begin_s
            if first_s >= last_s:
                raise HTTPException(422, "the report would not end after its begin")
            own = own_accounts() | await load_senders(connection)
            found = await load_report(connection, Period.around(first_s, last_s), own)
        return report_view(found)

    return routes
