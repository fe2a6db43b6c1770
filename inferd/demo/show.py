"""What the demo prints: a live table on a terminal, plain lines elsewhere, a report at the end."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from inferd.chain.amounts import show_ether
from inferd.cli.output import escape
from inferd.demo.verify import Report
from inferd.node.api_models import RequestState, RequestView

_SHOWN_OUTPUT = 160
_STYLES = {
    RequestState.SETTLED: "green",
    RequestState.REFUNDED: "yellow",
    RequestState.REFUSED: "red",
    RequestState.EXPIRED: "red",
    RequestState.POSTING: "cyan",
    RequestState.COMPUTED: "cyan",
    RequestState.ASSIGNED: "blue",
}


class Board:
    """The table of requests while they are worked on."""

    def __init__(self, console: Console, workers: Mapping[str, str]) -> None:
        """`workers` are names by lower-case address."""
        self._console = console
        self._workers = workers
        self._seen: dict[int, RequestState] = {}
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Board:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self, views: Mapping[int, RequestView]) -> None:
        if self._live:
            self._live.update(self._table(views), refresh=True)
            return
        for request_id, view in sorted(views.items()):
            if self._seen.get(request_id) is not view.state:
                self._seen[request_id] = view.state
                self._console.print(self._line(view), markup=False, highlight=False, soft_wrap=True)

    def _table(self, views: Mapping[int, RequestView]) -> Table:
        table = Table(title="requests")
        for name in ("id", "model", "fee", "state", "worker", "waited", "batch", "transaction"):
            table.add_column(name, justify="right" if name in {"id", "waited", "batch"} else "left")
        for _, view in sorted(views.items()):
            table.add_row(
                str(view.id),
                escape(view.model),
                show_ether(int(view.fee_wei)),
                f"[{_STYLES.get(view.state, 'white')}]{view.state}[/]" + _why(view),
                self._worker(view),
                f"{view.waited_blocks} blocks",
                str(view.batch_size or ""),
                (view.tx_hash or "")[:12],
            )
        return table

    def _line(self, view: RequestView) -> str:
        parts = [
            f"request {view.id}",
            escape(view.model),
            show_ether(int(view.fee_wei)),
            f"{view.state}{_why(view)}",
            f"after {view.waited_blocks} blocks",
        ]
        if view.worker:
            parts.append(f"worker {self._worker(view)}")
        if view.tx_hash:
            batch = f"batch of {view.batch_size} in " if view.batch_size else ""
            parts.append(f"{batch}{view.tx_hash[:12]}")
        return ", ".join(parts)

    def _worker(self, view: RequestView) -> str:
        return self._workers.get((view.worker or "").lower(), (view.worker or "")[:10])


def show_report(console: Console, report: Report) -> None:
    """Answers, posts, refunds, credits; and each promise that was broken."""

    def line(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    line("\nanswers, each digest equal to the chain's:")
    for answer in report.answers:
        text = escape(answer.output.decode(errors="backslashreplace"))
        shown = text if len(text) <= _SHOWN_OUTPUT else text[:_SHOWN_OUTPUT] + "..."
        line(f"  {answer.request_id}. {escape(answer.prompt)}")
        line(f"     {shown}")
        line(f"     digest 0x{answer.digest.hex()[:16]}... in 0x{answer.tx_hash.hex()[:16]}...")
    line("\nposts:")
    for post in report.posts:
        each = post.gas_used // post.results
        line(
            f"  block {post.block_number}: {post.results} results, {post.gas_used} gas,"
            f" {each} each, {post.tx_hash[:18]}..."
        )
    total_gas = sum(post.gas_used for post in report.posts)
    if report.answers:
        line(f"  {total_gas // len(report.answers)} gas per result on average")
    line(f"\nrefunded: {', '.join(map(str, report.refunded)) or 'none'}")
    line("\ncredits, to be withdrawn:")
    for name, amount_wei in report.credits_wei.items():
        line(f"  {name}: {show_ether(amount_wei)}")
    if report.broken:
        line("\nNOT AS PROMISED:")
        for what in report.broken:
            line(f"  {what}")
    else:
        line("\neverything is as promised: every digest and every wei was checked on chain")


def _why(view: RequestView) -> str:
    waiting = view.state in {RequestState.WAITING, RequestState.REFUSED}
    return f" ({view.reason})" if waiting and view.reason else ""
