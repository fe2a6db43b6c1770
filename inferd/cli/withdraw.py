"""`inferd withdraw`: what the contract owes an account of the settings."""

from __future__ import annotations

from typing import Annotated

import typer

from inferd.chain.money import withdraw
from inferd.cli.accounts import send_as
from inferd.cli.addresses import parse_optional_address
from inferd.cli.moved import show_moved
from inferd.cli.session import JsonOption, session_of

ToOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Where the money goes; default: the account.")
]


def register(app: typer.Typer) -> None:
    app.command("withdraw")(withdraw_command)


def withdraw_command(
    context: typer.Context,
    account: Annotated[
        str,
        typer.Argument(
            metavar="ACCOUNT",
            help="requester, poster (poster-2, ...), deployer, or a worker's name (its owner).",
        ),
    ] = "requester",
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take out all that is credited to an account: refunds, fees, rewards, bonds.

    Example: inferd withdraw poster
    """
    target = parse_optional_address(to)
    done = send_as(
        session_of(context),
        account,
        lambda sender, contracts: withdraw(sender, contracts, target),
    )
    show_moved(done.amount_wei, done.tx_hash, as_json=as_json)
