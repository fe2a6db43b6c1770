"""The workers of the settings, and the keys of theirs that commands use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from eth_utils.address import to_canonical_address

from indexer.errors import OperatorError
from indexer.types import Address, Contracts
from inferd.chain.keys import KeySource, open_account
from inferd.chain.transact import Sender
from inferd.cli.session import Session, deployed_chain
from inferd.node.settings import Settings
from inferd.node.worker_settings import WorkerSettings


class NoSuchWorker(OperatorError):
    """The settings name no such worker, or none at all."""

    code: ClassVar[str] = "no_such_worker"


class OwnerMissing(OperatorError):
    """A worker has no owner's key in the settings."""

    code: ClassVar[str] = "owner_missing"


def chosen_workers(settings: Settings, names: list[str]) -> list[WorkerSettings]:
    """Those of the settings with these names, or all. Raises NoSuchWorker."""
    known = {worker.name: worker for worker in settings.workers}
    if not known:
        raise NoSuchWorker(
            "the settings name no workers", help_text="add [[workers]] sections to inferd.toml"
        )
    missing = [name for name in names if name not in known]
    if missing:
        raise NoSuchWorker(
            f"the settings name no worker {', '.join(missing)}",
            help_text=f"choose of {', '.join(known)}",
        )
    return [known[name] for name in names] if names else list(known.values())


def owner_of(worker: WorkerSettings) -> KeySource:
    """Raises OwnerMissing."""
    if worker.owner is None:
        raise OwnerMissing(
            f"worker {worker.name} has no `owner` key in the settings",
            help_text="add `owner` to its section; that account registers, stakes and is paid",
        )
    return worker.owner


@asynccontextmanager
async def owned_worker(
    session: Session, name: str
) -> AsyncIterator[tuple[Sender, Address, Contracts]]:
    """The worker's owner as a sender, and its signer's address.

    Raises NoSuchWorker, OwnerMissing, BadKey and what `deployed_chain` raises.
    """
    (worker,) = chosen_workers(session.settings, [name])
    async with deployed_chain(session) as chain:
        owner = await chain.sender(owner_of(worker), use=f"owner of worker {name}")
        signer = open_account(worker.key, chain.contracts.chain_id, use=f"worker {name}")
        yield owner, Address(to_canonical_address(signer.address)), chain.contracts
