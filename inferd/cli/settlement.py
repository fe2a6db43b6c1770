"""`inferd settlement ...`: transactions under way and given up, and what to do about them."""

from __future__ import annotations

import asyncio
import getpass
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from eth_utils.address import to_checksum_address

from indexer.database import BLOCK_CHANNEL
from indexer.types import WEI_PER_GWEI
from inferd.chain.amounts import show_ether
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import JsonOption, Session, run_async, session_of
from inferd.cli.tables import node_tables
from inferd.settlement.orders import Order, answer_of, give
from inferd.settlement.overview import Line, Overview, load_overview
from scheduler.words import count

_ANSWER_WITHIN_S = 15.0
_LOOK_EVERY_S = 0.2
_IDS_SHOWN = 6

IntentArgument = Annotated[
    int, typer.Argument(metavar="INTENT", min=1, help="The number in `inferd settlement list`.")
]


def register(app: typer.Typer) -> None:
    settlement = typer.Typer(
        help="Look after the node's transactions.\n\nExample: inferd settlement list",
        rich_markup_mode="rich",
    )
    settlement.command("list")(list_command)
    settlement.command("retry")(retry_command)
    settlement.command("cancel")(cancel_command)
    app.add_typer(settlement, name="settlement")


def list_command(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option(min=1, max=1_000, metavar="N", help="Given-up and past ones, at most.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """List transactions under way, those with items that were given up, and the newest past ones.

    Each is an intent: what has to happen on chain, whatever transaction does it.

    Example: inferd settlement list --limit 5
    """
    found = run_async(_list(session_of(context), limit))
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "live": [_body(line) for line in found.live],
                "given_up": [_body(line) for line in found.given_up],
                "over": [_body(line) for line in found.over],
            }
        )
        return
    for title, lines in (
        ("under way", found.live),
        ("given up", found.given_up),
        ("over", found.over),
    ):
        show(f"{title}: {len(lines) or 'none'}")
        for line in lines:
            for text in _told(line):
                show(f"  {text}")


def retry_command(
    context: typer.Context, intent: IntentArgument, as_json: JsonOption = False
) -> None:
    """Try the items of an intent again that were given up after too many failures.

    Each goes alone, with as many tries as before. The node does it, with its next block.

    Example: inferd settlement retry 17
    """
    _order(session_of(context), Order.RETRY, intent, as_json=as_json)


def cancel_command(
    context: typer.Context, intent: IntentArgument, as_json: JsonOption = False
) -> None:
    """End an intent that is stuck: its nonce is spent on a transaction without effect.

    Its items are free after that, and go into another transaction where they still can. Whichever
    of the two is mined first counts. The node does it, with its next block.

    Example: inferd settlement cancel 17
    """
    _order(session_of(context), Order.CANCEL, intent, as_json=as_json)


def _order(session: Session, act: Order, intent_id: int, *, as_json: bool) -> None:
    order_id, answer = run_async(_give(session, act, intent_id))
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, "order": order_id, "answer": answer})
    elif answer is not None:
        show(answer)
    if answer is None:
        note(f"no node has done it yet: order {order_id} waits for the one that works next")


async def _list(session: Session, limit: int) -> Overview:
    async with node_tables(session) as connection:
        return await load_overview(connection, limit)


async def _give(session: Session, act: Order, intent_id: int) -> tuple[int, str | None]:
    asked_by = f"{getpass.getuser()}@{socket.gethostname()}"
    async with node_tables(session) as connection:
        order_id = await give(connection, act, intent_id, asked_by)
        await connection.execute("SELECT pg_notify($1, '')", BLOCK_CHANNEL)
        end_s = time.monotonic() + _ANSWER_WITHIN_S
        while time.monotonic() < end_s:
            answer = await answer_of(connection, order_id)
            if answer is not None:
                return order_id, answer
            await asyncio.sleep(_LOOK_EVERY_S)
    return order_id, None


def _told(line: Line) -> Iterator[str]:
    nonce = "no nonce" if line.nonce is None else f"nonce {line.nonce}"
    where = f"{nonce} of {to_checksum_address(line.sender)}"
    sent = "" if line.tx_hash is None else f", 0x{line.tx_hash.hex()}"
    outcome = f" ({line.outcome})" if line.outcome else ""
    yield (
        f"{line.id} {line.kind} {line.state}{outcome}, {where}, {_age(line.age_s)} old,"
        f" {_price(line)}{sent}"
    )
    yield f"  {_requests(line.request_ids)}; {line.reason}"
    if line.given_up:
        yield f"  given up: {_requests(line.given_up)}"
    for word, text in (("failed", line.diagnosis), ("endpoint", line.error)):
        if text:
            yield f"  {word}: {text}"
    if line.cancel_asked and line.outcome is None:
        yield "  its end was asked for"


def _price(line: Line) -> str:
    if line.cost_wei is not None:
        return f"paid {show_ether(line.cost_wei)}"
    if line.max_fee_wei is None:
        return "not signed"
    tries = f" in {count(line.attempts, 'attempt')}" if line.attempts > 1 else ""
    return f"offers {line.max_fee_wei / WEI_PER_GWEI:.9g} gwei{tries}"


def _requests(ids: Sequence[int]) -> str:
    if not ids:
        return "no request"
    shown = ", ".join(map(str, ids[:_IDS_SHOWN]))
    more = f" and {len(ids) - _IDS_SHOWN} more" if len(ids) > _IDS_SHOWN else ""
    return f"{'request' if len(ids) == 1 else 'requests'} {shown}{more}"


def _age(age_s: float) -> str:
    for unit, size_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if age_s >= size_s:
            return f"{age_s / size_s:.0f} {unit}"
    return f"{age_s:.0f} s"


def _body(line: Line) -> dict[str, Any]:
    wei = ("max_fee_wei", "priority_fee_wei", "cost_wei")
    amounts = {name: None if (value := getattr(line, name)) is None else str(value) for name in wei}
    tx_hash = None if line.tx_hash is None else "0x" + line.tx_hash.hex()
    return asdict(line) | amounts | {"tx_hash": tx_hash, "sender": to_checksum_address(line.sender)}
