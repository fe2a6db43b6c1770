"""`inferd report`: what this node earned and paid, by day, by account and by request."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, ClassVar

import typer

from indexer.database import Connection
from indexer.errors import OperatorError
from indexer.types import Address
from indexer.verify import NothingIndexed
from inferd.chain.amounts import BadDuration, parse_duration_s, show_ether_rounded
from inferd.chain.keys import address_of
from inferd.cli.output import SCHEMA_VERSION, show, show_json, write
from inferd.cli.session import JsonOption, Session, run_async, session_of
from inferd.cli.tables import node_tables
from inferd.node.account_lines import load_lines
from inferd.node.account_models import AccountView, DayView, FiguresView, LineView, ReportView
from inferd.node.account_rows import load_now_s, load_report, load_senders
from inferd.node.account_views import line_view, report_view
from inferd.node.accounts import Period

DAY_COLUMNS = (
    "day",
    "results",
    "refunds",
    "callbacks",
    "transactions",
    "wasted_transactions",
    "poster_fees_wei",
    "worker_fees_wei",
    "post_gas_wei",
    "delivery_gas_wei",
    "refund_gas_wei",
    "wasted_gas_wei",
    "profit_wei",
    "releases",
    "disputes",
    "dispute_gas_wei",
    "released_wei",
    "bonds_wei",
)
"""Of `--csv`; stable: new ones come at the end."""
LINE_COLUMNS = (
    "time",
    "tx_hash",
    "id",
    "kind",
    "outcome",
    "poster_fee_wei",
    "worker_fee_wei",
    "gas_wei",
    "profit_wei",
    "released_wei",
    "bond_wei",
)
"""Of `--csv --requests`; stable: new ones come at the end."""
_TABLE = (
    ("results", "results"),
    ("refunds", "refunds"),
    ("callbacks", "callbacks"),
    ("poster fees", "poster_fees_wei"),
    ("worker fees", "worker_fees_wei"),
    ("post gas", "post_gas_wei"),
    ("delivery gas", "delivery_gas_wei"),
    ("refund gas", "refund_gas_wei"),
    ("of it wasted", "wasted_gas_wei"),
    ("profit", "profit_wei"),
)


class BadPeriod(OperatorError):
    """A text is no begin or end of a report, or the end is not after the begin."""

    code: ClassVar[str] = "bad_period"


def register(app: typer.Typer) -> None:
    app.command("report")(report_command)


def report_command(
    context: typer.Context,
    since: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="From when on: a span before the newest block (7d, 24h), a day of UTC"
            " (2030-01-31), or a time with its zone (2030-01-31T12:00Z).",
        ),
    ] = "7d",
    until: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Up to when, in the same words; else the newest block."),
    ] = None,
    requests: Annotated[
        bool,
        typer.Option("--requests", help="A line for each request in each transaction instead."),
    ] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV with a header line; amounts in wei.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what this node earned and paid, by day of UTC: fees by events, gas by receipts.

    Reads the tables; no node need run. Begin and end are moved out to full hours. With --requests,
    --json prints a line of JSON for each.

    Example: inferd report --since 30d --csv > report.csv
    """
    if as_csv and as_json:
        raise typer.BadParameter("choose one of --csv and --json")
    work = _show_lines if requests else _show_days
    run_async(work(session_of(context), since, until, as_csv=as_csv, as_json=as_json))


def parse_moment_s(text: str, now_s: int) -> int:
    """A time in seconds; spans count back from `now_s`. Raises BadPeriod."""
    compact = text.strip()
    try:
        day = date.fromisoformat(compact)
    except ValueError:
        return _time_or_span(compact, now_s)
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def period_of(since: str, until: str | None, now_s: int) -> Period:
    """The full hours that the two are in; the newest block's is among them where no end is named.

    Raises BadPeriod.
    """
    begin_s = parse_moment_s(since, now_s)
    end_s = now_s + 1 if until is None else parse_moment_s(until, now_s)
    if end_s <= begin_s:
        raise BadPeriod(
            f"the report would end {begin_s - end_s} s before it begins"
            if end_s < begin_s
            else "the report would end where it begins",
            help_text="choose an earlier --since, or a later --until",
        )
    return Period.around(begin_s, end_s)


async def _show_days(
    session: Session, since: str, until: str | None, *, as_csv: bool, as_json: bool
) -> None:
    async with node_tables(session) as connection:
        period, accounts = await _asked(connection, session, since, until)
        view = report_view(await load_report(connection, period, accounts))
    if as_json:
        show_json(view.model_dump(mode="json"))
    elif as_csv:
        write(_csv([DAY_COLUMNS, *(_cells(day, DAY_COLUMNS) for day in view.days)]))
    else:
        for line in table(view):
            show(line)


async def _show_lines(
    session: Session, since: str, until: str | None, *, as_csv: bool, as_json: bool
) -> None:
    async with (
        node_tables(session) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        period, accounts = await _asked(connection, session, since, until)
        if as_csv:
            write(_csv([LINE_COLUMNS]))
        async for line in load_lines(connection, period, accounts):
            view = line_view(line)
            if as_json:
                body = {"schema_version": SCHEMA_VERSION, **view.model_dump(mode="json")}
                show_json(body, one_line=True)
            elif as_csv:
                write(_csv([_cells(view, LINE_COLUMNS)]))
            else:
                show(_line(view))


async def _asked(
    connection: Connection, session: Session, since: str, until: str | None
) -> tuple[Period, frozenset[Address]]:
    """Raises BadPeriod, NothingIndexed, BadKey."""
    from inferd.node.session_settings import own_accounts  # noqa: PLC0415 - it loads settlement

    now_s = await load_now_s(connection)
    chain_id: int | None = await connection.fetchval("SELECT chain_id FROM chain.source")
    if now_s is None or chain_id is None:
        raise NothingIndexed("no block is indexed yet", help_text="start `inferd node`, or wait")
    settings = session.settings
    posters = [address_of(key, chain_id, use=name) for name, key in settings.named_posters.items()]
    own = own_accounts(settings, chain_id, posters)
    return period_of(since, until, now_s), own | await load_senders(connection)


def table(view: ReportView) -> Iterator[str]:
    """Days, their total, and what went through each account, for people."""
    begin, end = (
        datetime.fromtimestamp(at_s, UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
        for at_s in (view.begin_s, view.end_s)
    )
    yield f"{begin} to {end}; amounts in ether, rounded to gwei"
    rows = [["day", *(head for head, _ in _TABLE)]]
    rows += [[day.day, *_row(day)] for day in view.days]
    rows.append(["total", *_row(view.total)])
    yield from _aligned(rows)
    total = view.total
    if total.wasted_transactions:
        yield f"{total.wasted_transactions} of {total.transactions} transactions did nothing"
    if total.releases or total.disputes or int(total.released_wei) or int(total.bonds_wei):
        yield (
            f"disputes: {total.releases} payments released, {total.disputes} disputes opened;"
            f" {_ether(total.released_wei)} came from held payments and bonds,"
            f" {_ether(total.bonds_wei)} staked, {_ether(total.dispute_gas_wei)} of gas"
        )
    heads = ["account", "poster fees", "worker fees", "released", "other credits"]
    heads += ["withdrawn", "gas", "held back"]
    yield ""
    yield from _aligned([heads, *(_account_row(account) for account in view.accounts)])


def _ether(amount_wei: str) -> str:
    return show_ether_rounded(int(amount_wei))


def _row(figures: FiguresView | DayView) -> list[str]:
    values = ((name, getattr(figures, name)) for _, name in _TABLE)
    return [show_ether_rounded(int(v)) if n.endswith("_wei") else str(v) for n, v in values]


def _account_row(account: AccountView) -> list[str]:
    amounts = (
        account.poster_fees_wei,
        account.worker_fees_wei,
        account.released_wei,
        account.other_credits_wei,
        account.withdrawn_wei,
        account.gas_wei,
        account.held_wei,
    )
    return [account.account, *(show_ether_rounded(int(amount)) for amount in amounts)]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        yield "  ".join(cells)


def _line(view: LineView) -> str:
    subject = "no request" if view.id is None else f"request {view.id}"
    amounts = view.poster_fee_wei, view.worker_fee_wei, view.gas_wei, view.profit_wei
    poster, worker, gas, profit = map(_ether, amounts)
    held = f", released {_ether(view.released_wei)}" if int(view.released_wei) else ""
    held += f", bond {_ether(view.bond_wei)}" if int(view.bond_wei) else ""
    return (
        f"{view.time}  {subject}, {view.kind} {view.outcome or 'not final'}:"
        f" fees {poster} + {worker}{held}, gas {gas}, profit {profit}  {view.tx_hash}"
    )


def _cells(view: DayView | LineView, columns: Sequence[str]) -> list[str]:
    values = (getattr(view, column) for column in columns)
    return ["" if value is None else str(value) for value in values]


def _csv(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _time_or_span(text: str, now_s: int) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now_s - parse_duration_s(text)
        except BadDuration:
            raise BadPeriod(
                f"{text!r} is no time",
                help_text="write a span like 7d or 24h, a day like 2030-01-31, or a time like"
                " 2030-01-31T12:00Z",
            ) from None
    if moment.tzinfo is None:
        raise BadPeriod(
            f"the time {text!r} does not say in which time zone",
            help_text="add it, like 2030-01-31T12:00Z or 2030-01-31T12:00+02:00",
        )
    return int(moment.timestamp())
