"""`inferd worker ...`: the workers of the settings on chain, and their stakes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar

import typer
from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.errors import OperatorError
from indexer.types import Address, Contracts, Wei
from inferd.chain.amounts import parse_amount_wei, show_ether
from inferd.chain.keys import KeySource, open_account
from inferd.chain.money import Taken, Unstaking, unstake, withdraw_stake
from inferd.chain.register import Registration, register_worker
from inferd.chain.transact import Sender
from inferd.cli.moved import show_moved
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import (
    DeployedChain,
    JsonOption,
    Session,
    deployed_chain,
    run_async,
    session_of,
)
from inferd.node.settings import Settings, WorkerSettings


class NoSuchWorker(OperatorError):
    """The settings name no such worker, or none at all."""

    code: ClassVar[str] = "no_such_worker"


class OwnerMissing(OperatorError):
    """A worker has no owner's key in the settings."""

    code: ClassVar[str] = "owner_missing"


def register(app: typer.Typer) -> None:
    workers = typer.Typer(
        help="Put workers on chain.\n\nExample: inferd worker register", rich_markup_mode="rich"
    )
    workers.command("register")(register_command)
    workers.command("unstake")(unstake_command)
    workers.command("withdraw-stake")(withdraw_stake_command)
    app.add_typer(workers, name="worker")


def register_command(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Workers of the settings; default: all."),
    ] = None,
    stake: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help="Stake to hold; default: the contract's minimum."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Register and stake workers of the settings; what is done already is left alone.

    Each worker's `owner` key in the settings registers it, stakes it and is
    paid for its work.

    Example: inferd worker register text --stake 0.5ether
    """
    stake_wei = None if stake is None else parse_amount_wei(stake, name="stake")
    done = run_async(_register(session_of(context), names or [], stake_wei))
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "workers": [_body(worker, outcome) for worker, outcome in done],
            }
        )
        return
    for worker, outcome in done:
        show(f"{worker.name} {to_checksum_address(outcome.signer)} {_summary(outcome)}")


def unstake_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A worker of the settings.")],
    amount: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="How much; default: all of it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start to take a worker's stake out; results stop counting where too little is left.

    Example: inferd worker unstake text
    """
    amount_wei = None if amount is None else parse_amount_wei(amount, name="amount")

    async def work() -> Unstaking:
        async with _owned(session_of(context), name) as (owner, signer, contracts):
            return await unstake(owner, contracts, signer, amount_wei)

    done = run_async(work())
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "unbonding_wei": str(done.unbonding_wei),
                "withdrawable_at_s": done.withdrawable_at_s,
                "tx_hash": "0x" + done.tx_hash.hex(),
            }
        )
        return
    show(f"{show_ether(done.unbonding_wei)} from {done.withdrawable_at_s} (Unix time)")
    note(f"transaction 0x{done.tx_hash.hex()}")


def withdraw_stake_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A worker of the settings.")],
    as_json: JsonOption = False,
) -> None:
    """Take out a worker's stake that has finished unbonding; it goes to the owner.

    Example: inferd worker withdraw-stake text
    """

    async def work() -> Taken:
        async with _owned(session_of(context), name) as (owner, signer, contracts):
            return await withdraw_stake(owner, contracts, signer)

    done = run_async(work())
    show_moved(done.amount_wei, done.tx_hash, as_json=as_json)


@asynccontextmanager
async def _owned(session: Session, name: str) -> AsyncIterator[tuple[Sender, Address, Contracts]]:
    """The worker's owner as a sender, and its signer's address."""
    (worker,) = chosen_workers(session.settings, [name])
    async with deployed_chain(session) as chain:
        owner = chain.sender(owner_of(worker), use=f"owner of worker {name}")
        signer = open_account(worker.key, chain.contracts.chain_id, use=f"worker {name}")
        yield owner, Address(to_canonical_address(signer.address)), chain.contracts


def owner_of(worker: WorkerSettings) -> KeySource:
    """Raises OwnerMissing."""
    if worker.owner is None:
        raise OwnerMissing(
            f"worker {worker.name} has no `owner` key in the settings",
            help_text="add `owner` to its section; that account registers, stakes and is paid",
        )
    return worker.owner


async def _register(
    session: Session, names: list[str], stake_wei: Wei | None
) -> list[tuple[WorkerSettings, Registration]]:
    chosen = chosen_workers(session.settings, names)
    done = []
    async with deployed_chain(session) as chain:
        for worker in chosen:
            outcome = await _register_one(chain, worker, stake_wei)
            if not outcome.enabled:
                note(f"{worker.name} is registered, and its owner has taken it out of service")
            done.append((worker, outcome))
    return done


async def _register_one(
    chain: DeployedChain, worker: WorkerSettings, stake_wei: Wei | None
) -> Registration:
    account = open_account(worker.key, chain.contracts.chain_id, use=f"worker {worker.name}")
    owner = chain.sender(owner_of(worker), use=f"owner of worker {worker.name}")
    note(f"registering {worker.name} ({account.address})")
    return await register_worker(
        owner,
        account,
        [worker.model],
        worker.slots,
        worker.memory_mb,
        stake_wei,
        chain.contracts,
    )


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


def _summary(outcome: Registration) -> str:
    words = []
    if outcome.registered:
        words.append("registered")
    if outcome.updated:
        words.append("updated")
    if outcome.added_stake_wei:
        words.append(f"staked {outcome.added_stake_wei} wei")
    return ", ".join(words) or "unchanged"


def _body(worker: WorkerSettings, outcome: Registration) -> dict[str, Any]:
    return {
        "name": worker.name,
        "signer": to_checksum_address(outcome.signer),
        "owner": to_checksum_address(outcome.owner),
        "model": worker.model,
        "registered": outcome.registered,
        "updated": outcome.updated,
        "added_stake_wei": str(outcome.added_stake_wei),
        "stake_wei": str(outcome.stake_wei),
        "enabled": outcome.enabled,
    }
