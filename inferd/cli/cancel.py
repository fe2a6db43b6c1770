"""`inferd cancel`: ask for a request's end before its deadline."""

from __future__ import annotations

import typer

from inferd.chain.requester import Cancelled, cancel
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import (
    IdArgument,
    JsonOption,
    Session,
    deployed_chain,
    run_async,
    session_of,
)


def register(app: typer.Typer) -> None:
    app.command("cancel")(cancel_command)


def cancel_command(
    context: typer.Context, request_id: IdArgument, as_json: JsonOption = False
) -> None:
    """Shorten your request's deadline; a result that is under way may still land and is paid.

    After the new deadline the fee can be refunded. The `requester` key of the
    settings must be the one that submitted it.

    Example: inferd cancel 7
    """
    done = run_async(_cancel(session_of(context), request_id))
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "id": done.request_id,
                "deadline_s": done.deadline_s,
                "tx_hash": "0x" + done.tx_hash.hex(),
                "block": done.block_number,
            }
        )
        return
    show(f"request {done.request_id}")
    show(f"transaction 0x{done.tx_hash.hex()}")
    note(f"its deadline is now {done.deadline_s} (Unix time); after it the fee can be refunded")


async def _cancel(session: Session, request_id: int) -> Cancelled:
    async with deployed_chain(session) as chain:
        sender = await chain.sender(session.settings.requester, use="requester")
        return await cancel(sender, chain.contracts, request_id)
