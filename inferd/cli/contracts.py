"""`inferd compile` and `inferd deploy`: from sources to artifacts to addresses on a chain."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from eth_utils.address import to_checksum_address

from indexer.errors import OperatorError
from indexer.rpc import Rpc
from inferd.chain.amounts import parse_amount_wei, parse_duration_s
from inferd.chain.compile import compile_contracts, write_artifacts
from inferd.chain.deploy import BURNT, MAX_BPS, MAX_REPORTER_BPS, DeploymentTerms
from inferd.chain.deploy import deploy as deploy_contracts
from inferd.chain.signers import opened_signer
from inferd.chain.transact import Sender
from inferd.cli.addresses import parse_address, parse_optional_address
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import JsonOption, Session, run_async, session_of
from inferd.protocol.deployment import Deployment, load_deployment

_CHECKOUT = Path(__file__).parents[2]


class SourcesMissing(OperatorError):
    """There are no contract sources here."""

    code: ClassVar[str] = "sources_missing"


class DeploymentExists(OperatorError):
    """The deployment file names contracts that would be lost from sight."""

    code: ClassVar[str] = "deployment_exists"


def register(app: typer.Typer) -> None:
    app.command("compile")(compile_command)
    app.command("deploy")(deploy_command)


def compile_command(
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="PATH", help="Folder with src/; default: contracts/."),
    ] = None,
    install: Annotated[
        bool,
        typer.Option(help="Install a native solc where none is installed (needs the internet)."),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Compile the contracts into the artifacts that are kept in git.

    Needs a checkout. Nobody else needs a compiler: the artifacts come with inferd.

    Example: inferd compile --no-install
    """
    source = folder or _contracts_folder()
    if not (source / "src").is_dir():
        raise SourcesMissing(
            f"there are no contract sources in {source}",
            help_text="run it in a checkout, or name the folder with `--folder`",
        )
    note("compiling; the npm compiler takes some 10 s")
    compilation = compile_contracts(source, may_install=install)
    changed = write_artifacts(compilation, source / "artifacts")
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "compiler": compilation.compiler,
                "contracts": list(compilation.artifacts),
                "changed": [path.stem for path in changed],
            }
        )
        return
    show(f"compiled with {compilation.compiler}")
    for name in compilation.artifacts:
        state = "changed" if any(path.stem == name for path in changed) else "unchanged"
        show(f"{name} {state}")


def deploy_command(
    context: typer.Context,
    poster_bps: Annotated[
        int,
        typer.Option(min=0, max=MAX_BPS, help="The poster's share of each fee, in 1/10,000."),
    ] = DeploymentTerms().poster_bps,
    cancel_delay: Annotated[
        str, typer.Option(metavar="SPAN", help="Time a result has after a cancel request.")
    ] = "60s",
    min_stake: Annotated[
        str, typer.Option(metavar="AMOUNT", help="Stake without which a worker is inactive.")
    ] = "0.1ether",
    unbonding_delay: Annotated[
        str, typer.Option(metavar="SPAN", help="Time for which a leaving stake is still at risk.")
    ] = "7d",
    reporter_bps: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_REPORTER_BPS, help="A slash's share of who showed it, in 1/10,000."
        ),
    ] = DeploymentTerms().reporter_bps,
    ruling_period: Annotated[
        str, typer.Option(metavar="SPAN", help="Time the arbiter has to rule on a dispute.")
    ] = "3d",
    owner: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Who may pause requests and set models' terms; the zero address = nobody, ever;"
            " default: the deployer.",
        ),
    ] = None,
    arbiter: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Who rules on disputes; default: the owner."),
    ] = None,
    treasury: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Who gets the rest of a slash; default: burnt."),
    ] = to_checksum_address(BURNT),
    force: Annotated[
        bool, typer.Option("--force", help="Replace a deployment file that is in use.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Put the five contracts on the chain and write the deployment file.

    The terms are fixed for ever, but for owner and arbiter, who can hand over.
    The `deployer` key of the settings pays.

    Example: inferd deploy --poster-bps 2000 --min-stake 0.1ether
    """
    terms = DeploymentTerms(
        poster_bps=poster_bps,
        cancel_delay_s=parse_duration_s(cancel_delay),
        min_stake_wei=parse_amount_wei(min_stake, name="stake"),
        unbonding_delay_s=parse_duration_s(unbonding_delay),
        ruling_period_s=parse_duration_s(ruling_period),
        reporter_bps=reporter_bps,
        owner=parse_optional_address(owner),
        arbiter=parse_optional_address(arbiter),
        treasury=parse_address(treasury),
    )
    session = session_of(context)
    deployment = run_async(_deploy(session, terms, force=force))
    _show_deployment(deployment, session.settings.deployment_file, as_json=as_json)


async def _deploy(session: Session, terms: DeploymentTerms, *, force: bool) -> Deployment:
    settings = session.settings
    place = settings.deployment_file
    _refuse_unwritable(place)
    async with Rpc(settings.rpc_urls, send_urls=settings.rpc_send_urls) as rpc:
        chain_id = await rpc.chain_id()
        if place.exists() and not force:
            await _refuse_to_replace(rpc, chain_id, place)
        async with opened_signer(settings.deployer, chain_id, use="deployer") as signer:
            note(f"deploying to chain {chain_id} from {to_checksum_address(signer.address)}")
            deployment = await deploy_contracts(Sender(rpc, signer, chain_id), terms)
    deployment.save(place)
    return deployment


async def _refuse_to_replace(rpc: Rpc, chain_id: int, place: Path) -> None:
    """A file may be replaced where its contracts are certainly gone: a chain started anew."""
    existing = load_deployment(place)
    of_chain = existing.contracts.chain_id
    if of_chain != chain_id:
        raise DeploymentExists(
            f"{place} is of chain {of_chain}, and the endpoint serves chain {chain_id}",
            help_text="name another `deployment_file`, or replace this one with --force",
        )
    genesis = await rpc.header(0)
    same_chain = genesis is None or genesis.hash == existing.genesis_hash
    if same_chain and await rpc.code(existing.contracts.requests):
        raise DeploymentExists(
            f"{place} names contracts that are on chain {chain_id}",
            help_text="use them, name another `deployment_file`, or replace this one with --force",
        )


def _refuse_unwritable(place: Path) -> None:
    """Before any gas is spent: addresses that cannot be written down are lost."""
    folder = place.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable or place.is_dir():
        raise DeploymentExists(
            f"the deployment file {place} cannot be written",
            help_text="name another `deployment_file`, or correct the folder's permissions",
        )


def _show_deployment(deployment: Deployment, place: Path, *, as_json: bool) -> None:
    contracts = deployment.contracts
    named = {
        "InferenceRequests": to_checksum_address(contracts.requests),
        "InferenceResults": to_checksum_address(contracts.results),
        "WorkerRegistry": to_checksum_address(contracts.registry),
        "StakeManager": to_checksum_address(contracts.stakes),
        "Disputes": to_checksum_address(contracts.disputes),
    }
    if as_json:
        body: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "chain_id": contracts.chain_id,
            "start_block": contracts.start_block,
            "deployment_file": str(place),
            "contracts": named,
        }
        show_json(body)
        return
    for name, address in named.items():
        show(f"{name} {address}")
    note(f"written to {place}")


def _contracts_folder() -> Path:
    here = Path("contracts")
    return here if (here / "src").is_dir() else _CHECKOUT / "contracts"
