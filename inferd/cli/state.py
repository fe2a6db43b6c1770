"""`inferd status` and `inferd why`: how the node is, and why a request is where it is."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from inferd.chain.amounts import show_ether_rounded
from inferd.cli.client import NodeClient
from inferd.cli.output import show, show_json
from inferd.cli.session import IdArgument, JsonOption, Session, run_async, session_of
from inferd.node.api_models import (
    EndpointView,
    FundsView,
    IndexView,
    PosterView,
    ProcessView,
    SettlementView,
    StatusView,
    WhyView,
)


def register(app: typer.Typer) -> None:
    app.command("status")(status_command)
    app.command("why")(why_command)


def status_command(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show how the node is: what keeps it from its work, lag, requests, workers, posting.

    Example: inferd status
    """
    status = run_async(_status(session_of(context)))
    if as_json:
        show_json(status.model_dump(mode="json"))
        return
    for line in _status_lines(status):
        show(line)


def why_command(
    context: typer.Context, request_id: IdArgument, as_json: JsonOption = False
) -> None:
    """Say in one sentence why a request is not served yet, or never will be, and what to do.

    Below are the numbers that the newest decision on it was made of.

    Example: inferd why 7
    """
    why = run_async(_why(session_of(context), request_id))
    if as_json:
        show_json(why.model_dump(mode="json"))
        return
    show(f"{why.state} ({why.reason}): {why.sentence}")
    show(f"next: {why.next_action}")
    for name, value in why.numbers.items():
        show(f"  {name:<17} {value}")


async def _status(session: Session) -> StatusView:
    async with NodeClient(session.settings.node_url) as client:
        return await client.status()


async def _why(session: Session, request_id: int) -> WhyView:
    async with NodeClient(session.settings.node_url) as client:
        return await client.why(request_id)


def _status_lines(status: StatusView) -> Iterator[str]:
    ready = "ready" if status.ready else "not ready"
    yield f"node       {ready}, {status.role}, release {status.version}, chain {status.chain_id}"
    for problem in status.problems:
        yield f"problem    {problem.code}: {problem.sentence} {problem.next_action}"
    for warning in status.warnings:
        yield f"warning    {warning.code}: {warning.sentence} {warning.next_action}"
    for process in status.processes:
        yield from _process_lines(process)
    yield f"index      {_index_line(status.index)}"
    for endpoint in status.index.endpoints:
        yield f"endpoint   {_endpoint_line(endpoint)}"
    counts = ", ".join(f"{count} {state}" for state, count in status.requests.items())
    yield f"requests   {counts or 'none'}"
    for worker in status.workers:
        state = "available" if worker.available else "not available"
        yield (
            f"worker     {worker.name} {worker.address} {worker.model}: {state},"
            f" {worker.in_flight} of {worker.slots} busy,"
            f" {worker.completed} done, {worker.failed} failed"
        )
    if status.settlement is not None:
        yield f"posting    {_settlement_line(status.settlement)}"
        for poster in status.settlement.posters:
            yield f"poster     {_poster_line(poster)}"
            if poster.funds is not None:
                yield f"funds      {_funds_line(poster.funds)}"


def _process_lines(process: ProcessView) -> Iterator[str]:
    ready = "ready" if process.ready else "not ready"
    yield f"process    {process.holder} {', '.join(process.roles)}: {ready}"
    for one in (*process.problems, *process.warnings):
        yield f"           {one.code}: {one.sentence} {one.next_action}"


def _index_line(index: IndexView) -> str:
    if index.indexed is None:
        return "nothing yet"
    lag = f", {index.lag_blocks} behind" if index.lag_blocks else ""
    if index.head is not None and index.indexed > index.head:
        lag = f", the endpoint is {index.indexed - index.head} behind that"
    if index.left_s is not None:
        lag += f", about {index.left_s:.0f} s left"
    repaired = f", {index.repaired_blocks} blocks repaired" if index.repaired_blocks else ""
    return (
        f"block {index.indexed} of {index.head}{lag}, {index.reorgs} reorganisations,"
        f" {index.quarantined} unreadable logs{repaired}"
    )


def _endpoint_line(endpoint: EndpointView) -> str:
    parts = [f"{endpoint.endpoint} {endpoint.state.replace('_', ' ')}"]
    if endpoint.latency_ms is not None:
        parts.append(f"{endpoint.latency_ms:.0f} ms")
    if endpoint.error_rate >= 0.005:
        parts.append(f"{endpoint.error_rate:.0%} errors")
    if endpoint.lag_blocks:
        parts.append(f"{endpoint.lag_blocks} behind")
    if endpoint.calls_per_s is not None:
        parts.append(f"at most {endpoint.calls_per_s:.0f} calls/s")
    reason = f": {endpoint.reason}" if endpoint.reason else ""
    return ", ".join(parts) + reason


def _settlement_line(settlement: SettlementView) -> str:
    paused = f", paused: {settlement.paused_reason}" if settlement.paused_reason else ""
    owed = f", {settlement.callbacks_owed} callbacks owed" if settlement.callbacks_owed else ""
    return (
        f"{settlement.ready} results ready,"
        f" {settlement.in_flight} transactions in flight, {settlement.confirmed} confirmed"
        f"{owed}{paused}"
    )


def _poster_line(poster: PosterView) -> str:
    balance = "unknown" if poster.balance_wei is None else f"{poster.balance_wei} wei"
    former = ", not in the settings any more" if poster.former else ""
    paused = f", paused: {poster.paused_reason}" if poster.paused_reason else ""
    error = f" ({poster.error})" if poster.error else ""
    return (
        f"{poster.address} holds {balance}, {poster.in_flight} in flight,"
        f" {poster.confirmed} confirmed{former}{paused}{error}"
    )


def _funds_line(funds: FundsView) -> str:
    runway = "gas is free"
    if funds.runway_results is not None:
        each = show_ether_rounded(int(funds.result_wei))
        runway = f"for {funds.runway_results} results at {each} ether each"
    days = "" if funds.runway_days is None else f", {funds.runway_days:.1f} days at the recent rate"
    return (
        f"{funds.state}, {runway}{days};"
        f" {show_ether_rounded(int(funds.in_flight_wei))} ether at most under way,"
        f" some {show_ether_rounded(int(funds.waiting_wei))} waiting"
    )
