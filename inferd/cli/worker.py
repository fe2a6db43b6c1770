"""`inferd worker ...`: the agent, the workers of the settings on chain, and their stakes."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from eth_utils.address import to_checksum_address

from indexer.types import Wei
from inferd.chain.amounts import parse_amount_wei, show_ether
from inferd.chain.keys import open_account
from inferd.chain.money import Taken, Unstaking, unstake, withdraw_stake
from inferd.chain.register import Registration, register_worker
from inferd.cli import equivocation, worker_agent, worker_offer
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
from inferd.cli.worker_settings import chosen_workers, owned_worker, owner_of
from inferd.node.worker_settings import WorkerSettings


def register(app: typer.Typer) -> None:
    workers = typer.Typer(rich_markup_mode="rich", invoke_without_command=True)
    workers.callback()(worker_agent.run_command)
    workers.command("check")(worker_agent.check_command)
    workers.command("register")(register_command)
    worker_offer.register(workers)
    workers.command("unstake")(unstake_command)
    workers.command("withdraw-stake")(withdraw_stake_command)
    equivocation.register(workers)
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
        async with owned_worker(session_of(context), name) as (owner, signer, contracts):
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
        async with owned_worker(session_of(context), name) as (owner, signer, contracts):
            return await withdraw_stake(owner, contracts, signer)

    done = run_async(work())
    show_moved(done.amount_wei, done.tx_hash, as_json=as_json)


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
    owner = await chain.sender(owner_of(worker), use=f"owner of worker {worker.name}")
    note(f"registering {worker.name} ({account.address})")
    return await register_worker(
        owner,
        account,
        worker.model_names,
        worker.slots,
        worker.memory_mb,
        stake_wei,
        chain.contracts,
        endpoint=worker.endpoint,
    )


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
        "models": list(worker.model_names),
        "endpoint": worker.endpoint,
        "registered": outcome.registered,
        "updated": outcome.updated,
        "added_stake_wei": str(outcome.added_stake_wei),
        "stake_wei": str(outcome.stake_wei),
        "enabled": outcome.enabled,
    }
