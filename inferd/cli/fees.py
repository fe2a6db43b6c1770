"""`inferd raise-fee` and `inferd refund`: what anyone may do for a request on chain."""

from __future__ import annotations

from typing import Annotated

import typer

from inferd.chain.amounts import parse_fee_wei, show_ether
from inferd.chain.requester import raise_fee, refund
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import IdArgument, JsonOption, deployed_chain, run_async, session_of


def register(app: typer.Typer) -> None:
    app.command("raise-fee")(raise_fee_command)
    app.command("refund")(refund_command)


def raise_fee_command(
    context: typer.Context,
    request_id: IdArgument,
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="What is added, like 0.01ether.")],
    as_json: JsonOption = False,
) -> None:
    """Add to a pending request's fee, so that it is worth its gas or comes sooner.

    Example: inferd raise-fee 7 0.01ether
    """
    added_wei = parse_fee_wei(amount)
    session = session_of(context)

    async def work() -> tuple[int, bytes]:
        async with deployed_chain(session) as chain:
            sender = chain.sender(session.settings.requester, use="requester")
            return await raise_fee(sender, chain.contracts, request_id, added_wei)

    fee_wei, tx_hash = run_async(work())
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "id": request_id,
                "fee_wei": str(fee_wei),
                "tx_hash": "0x" + tx_hash.hex(),
            }
        )
        return
    show(show_ether(fee_wei))
    note(f"transaction 0x{tx_hash.hex()}")


def refund_command(
    context: typer.Context, request_id: IdArgument, as_json: JsonOption = False
) -> None:
    """Credit an expired request's fee back to its requester, who takes it with `withdraw`.

    Example: inferd refund 7
    """
    session = session_of(context)

    async def work() -> tuple[int, bytes]:
        async with deployed_chain(session) as chain:
            sender = chain.sender(session.settings.requester, use="requester")
            return await refund(sender, chain.contracts, request_id)

    amount_wei, tx_hash = run_async(work())
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "id": request_id,
                "amount_wei": str(amount_wei),
                "tx_hash": "0x" + tx_hash.hex(),
            }
        )
        return
    show(show_ether(amount_wei))
    note(f"transaction 0x{tx_hash.hex()}")
