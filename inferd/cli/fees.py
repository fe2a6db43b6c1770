"""`inferd raise-fee` and `inferd refund`: what anyone may do for a request on chain."""

from __future__ import annotations

from typing import Annotated

import typer

from inferd.chain.amounts import parse_fee_wei
from inferd.chain.requester import raise_fee, refund
from inferd.cli.moved import show_moved
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
            sender = await chain.sender(session.settings.requester, use="requester")
            return await raise_fee(sender, chain.contracts, request_id, added_wei)

    fee_wei, tx_hash = run_async(work())
    show_moved(fee_wei, tx_hash, as_json=as_json, name="fee_wei", id=request_id)


def refund_command(
    context: typer.Context, request_id: IdArgument, as_json: JsonOption = False
) -> None:
    """Credit an expired request's fee back to its requester, who takes it with `withdraw`.

    Example: inferd refund 7
    """
    session = session_of(context)

    async def work() -> tuple[int, bytes]:
        async with deployed_chain(session) as chain:
            sender = await chain.sender(session.settings.requester, use="requester")
            return await refund(sender, chain.contracts, request_id)

    amount_wei, tx_hash = run_async(work())
    show_moved(amount_wei, tx_hash, as_json=as_json, id=request_id)
