"""Accounts of the settings by the names that commands take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from indexer.types import Contracts
from inferd.chain.keys import KeySource
from inferd.chain.transact import Sender
from inferd.cli.session import Session, deployed_chain, run_async
from inferd.cli.worker_settings import chosen_workers, owner_of

T = TypeVar("T")

AccountOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Whose key sends it: requester, poster (poster-2, ...), deployer, or a worker's name"
        " (its owner).",
    ),
]


def account_source(session: Session, name: str) -> KeySource:
    """The key of that account. Raises NoSuchWorker, OwnerMissing."""
    settings = session.settings
    known = {
        "requester": settings.requester,
        **settings.named_posters,
        "deployer": settings.deployer,
    }
    if name in known:
        return known[name]
    (worker,) = chosen_workers(settings, [name])
    return owner_of(worker)


def send_as(session: Session, account: str, act: Callable[[Sender, Contracts], Awaitable[T]]) -> T:
    """Does `act` with that account's key on the deployment's chain.

    Raises what it does, `account_source` and `deployed_chain` raise, and BadKey.
    """

    async def work() -> T:
        source = account_source(session, account)
        async with deployed_chain(session) as chain:
            return await act(await chain.sender(source, use=account), chain.contracts)

    return run_async(work())
