"""The operator's accounts as the API and the command show them: amounts are decimal strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime

from eth_utils.address import to_checksum_address

from indexer.database import Connection
from indexer.types import DAY_S
from inferd.node.account_models import (
    AccountView,
    DayView,
    FiguresView,
    LinesView,
    LineView,
    ReportView,
)
from inferd.node.account_rows import load_now_s, load_spent
from inferd.node.accounts import AccountFlow, Figures, Line, Report
from inferd.node.api_models import FundsView
from inferd.settlement.runway import runway_days
from inferd.settlement.settings import KeyStatus


def report_view(report: Report) -> ReportView:
    return ReportView(
        begin_s=report.period.begin_s,
        end_s=report.period.end_s,
        total=FiguresView.model_validate(_figures(report.total)),
        days=[
            DayView.model_validate({"day": day.date.isoformat()} | _figures(day.figures))
            for day in report.days
        ],
        accounts=[_account(flow, report.held_wei.get(flow.account, 0)) for flow in report.accounts],
    )


def line_view(line: Line) -> LineView:
    return LineView(
        time=datetime.fromtimestamp(line.at_s, UTC).isoformat().replace("+00:00", "Z"),
        tx_hash="0x" + line.tx_hash.hex(),
        id=line.request_id,
        kind=line.kind,
        outcome=line.outcome,
        poster_fee_wei=str(line.poster_fee_wei),
        worker_fee_wei=str(line.worker_fee_wei),
        gas_wei=str(line.gas_wei),
        released_wei=str(line.released_wei),
        bond_wei=str(line.bond_wei),
        profit_wei=str(line.profit_wei),
    )


def lines_view(request_id: int, lines: Sequence[Line]) -> LinesView:
    return LinesView(
        id=request_id,
        lines=[line_view(line) for line in lines],
        profit_wei=str(sum(line.profit_wei for line in lines)),
    )


async def funds_view(connection: Connection, status: KeyStatus) -> FundsView | None:
    """None while settlement has not looked yet."""
    seen, now_s = status.projection, await load_now_s(connection)
    if seen is None or now_s is None:
        return None
    spent_wei, first_s = await load_spent(connection, now_s - DAY_S, status.address)
    span_s = 0 if first_s is None else max(now_s - first_s, 1)
    return FundsView(
        state=status.funds,
        in_flight_wei=str(seen.in_flight_wei),
        waiting_wei=str(seen.waiting_wei),
        result_wei=str(seen.result_wei),
        runway_results=seen.runway_results,
        spent_wei_per_day=str(spent_wei * DAY_S // span_s if span_s else 0),
        runway_days=runway_days(seen.spare_wei, spent_wei, span_s),
    )


def _figures(figures: Figures) -> dict[str, int | str]:
    """Counts are numbers, amounts are strings."""
    values = {one.name: getattr(figures, one.name) for one in fields(Figures)}
    values["profit_wei"] = figures.profit_wei
    return {name: str(v) if name.endswith("_wei") else v for name, v in values.items()}


def _account(flow: AccountFlow, held_wei: int) -> AccountView:
    return AccountView(
        account=to_checksum_address(flow.account),
        poster_fees_wei=str(flow.poster_fees_wei),
        worker_fees_wei=str(flow.worker_fees_wei),
        other_credits_wei=str(flow.other_credits_wei),
        withdrawn_wei=str(flow.withdrawn_wei),
        gas_wei=str(flow.gas_wei),
        released_wei=str(flow.released_wei),
        bonds_wei=str(flow.bonds_wei),
        held_wei=str(held_wei),
    )
