"""`inferd worker register`: the workers of the settings, on chain."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import typer
from eth_utils.address import to_checksum_address

from indexer.errors import OperatorError
from indexer.types import Wei
from inferd.chain.amounts import parse_amount_wei
from inferd.chain.keys import open_account
from inferd.chain.register import Registration, register_worker
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
    # A callback keeps `register` a command of its own, however few there are.
    workers.callback()(lambda: None)
    workers.command("register")(register_command)
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


async def _register(
    session: Session, names: list[str], stake_wei: Wei | None
) -> list[tuple[WorkerSettings, Registration]]:
    chosen = _chosen(session.settings, names)
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
    if worker.owner is None:
        raise OwnerMissing(
            f"worker {worker.name} has no `owner` key in the settings",
            help_text="add `owner` to its section; that account registers, stakes and is paid",
        )
    account = open_account(worker.key, chain.contracts.chain_id, use=f"worker {worker.name}")
    owner = chain.sender(worker.owner, use=f"owner of worker {worker.name}")
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


def _chosen(settings: Settings, names: list[str]) -> list[WorkerSettings]:
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
