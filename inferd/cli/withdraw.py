"""`inferd withdraw`: what the contract owes an account of the settings."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer
from eth_utils.address import is_address, to_canonical_address

from indexer.errors import OperatorError
from indexer.types import Address
from inferd.chain.keys import KeySource
from inferd.chain.money import Taken, withdraw
from inferd.cli.moved import show_moved
from inferd.cli.session import JsonOption, Session, deployed_chain, run_async, session_of
from inferd.cli.worker import chosen_workers, owner_of


class BadAddress(OperatorError):
    """A text is not an address."""

    code: ClassVar[str] = "bad_address"


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
            metavar="ACCOUNT", help="requester, poster, or the name of a worker (its owner)."
        ),
    ] = "requester",
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take out all that is credited to an account: refunds, or fees it has earned.

    Example: inferd withdraw poster
    """
    done = run_async(_withdraw(session_of(context), account, to))
    show_moved(done.amount_wei, done.tx_hash, as_json=as_json)


async def _withdraw(session: Session, account: str, to: str | None) -> Taken:
    target = parse_address(to)
    source = _source(session, account)
    async with deployed_chain(session) as chain:
        return await withdraw(chain.sender(source, use=account), chain.contracts, target)


def _source(session: Session, account: str) -> KeySource:
    if account == "requester":
        return session.settings.requester
    if account == "poster":
        return session.settings.poster
    (worker,) = chosen_workers(session.settings, [account])
    return owner_of(worker)


def parse_address(text: str | None) -> Address | None:
    """Raises BadAddress."""
    if text is None:
        return None
    if not is_address(text):
        raise BadAddress(
            f"{text!r} is no address", help_text="write 0x and 40 hex digits, with a right checksum"
        )
    return Address(to_canonical_address(text))
