"""`inferd admin ...`: what the owner of a deployment may do."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import typer
from eth_utils.address import to_checksum_address

from indexer.errors import OperatorError
from indexer.types import Address, Contracts, Hash32, Wei
from inferd.chain.admin import (
    Administration,
    accept_ownership,
    offer_ownership,
    read_administration,
    read_model_terms,
    set_arbiter,
    set_model_terms,
    set_paused,
)
from inferd.chain.amounts import parse_amount_wei, parse_duration_s, show_ether
from inferd.chain.deploy import NOBODY
from inferd.chain.transact import Sender
from inferd.cli.accounts import AccountOption, send_as
from inferd.cli.addresses import parse_address
from inferd.cli.moved import show_sent
from inferd.cli.output import SCHEMA_VERSION, show, show_json
from inferd.cli.session import JsonOption, Session, deployed_chain, run_async, session_of
from inferd.protocol.request import model_id
from inferd.protocol.terms import MAX_QUORUM, ModelTerms

_AddressArgument = Annotated[str, typer.Argument(metavar="ADDRESS")]


class NoTermsNamed(OperatorError):
    """Neither terms nor their absence were asked for, or both."""

    code: ClassVar[str] = "no_terms_named"


def register(app: typer.Typer) -> None:
    admin = typer.Typer(
        help="Look after a deployment that you own.\n\nExample: inferd admin show",
        rich_markup_mode="rich",
    )
    admin.command("show")(show_command)
    admin.command("pause")(pause_command)
    admin.command("unpause")(unpause_command)
    admin.command("terms")(terms_command)
    admin.command("arbiter")(arbiter_command)
    admin.command("offer-ownership")(offer_command)
    admin.command("accept-ownership")(accept_command)
    app.add_typer(admin, name="admin")


def show_command(
    context: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="And the terms of this model; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show who may change what, what the deployment is fixed to, and terms of models.

    Example: inferd admin show --model smollm2-135m
    """
    state, terms = run_async(_read(session_of(context), models or []))
    if as_json:
        show_json(_body(state, terms))
        return
    for line in (*_lines(state), *(_terms_line(name, found) for name, found in terms.items())):
        show(line)


def pause_command(
    context: typer.Context, account: AccountOption = "deployer", as_json: JsonOption = False
) -> None:
    """Stop new requests; results, refunds and withdrawals go on.

    Example: inferd admin pause
    """
    _set_paused(session_of(context), account, paused=True, as_json=as_json)


def unpause_command(
    context: typer.Context, account: AccountOption = "deployer", as_json: JsonOption = False
) -> None:
    """Allow new requests again.

    Example: inferd admin unpause
    """
    _set_paused(session_of(context), account, paused=False, as_json=as_json)


def terms_command(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    verifier: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Contract that checks a proof of each result."),
    ] = None,
    dispute_window: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Time for which payments are held back for disputes."),
    ] = None,
    bond: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help="What a dispute costs its loser; with a window."),
    ] = None,
    min_quorum: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_QUORUM, metavar="N", help="Workers that must agree, at least."),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Take all terms away.")] = False,
    account: AccountOption = "deployer",
    as_json: JsonOption = False,
) -> None:
    """Set what a model asks for beyond one worker's signature, for requests to come.

    What is not named, the model does not have from then on.

    Example: inferd admin terms smollm2-135m --dispute-window 1h --bond 0.01ether
    """
    given = (verifier, dispute_window, bond, min_quorum)
    if none == any(value is not None for value in given):
        raise NoTermsNamed(
            "name the terms, or --none to take them away",
            help_text="--verifier, --dispute-window with --bond, and --min-quorum can be set",
        )
    terms = ModelTerms(
        model_id=model_id(model),
        verifier=NOBODY if verifier is None else parse_address(verifier),
        dispute_window_s=0 if dispute_window is None else parse_duration_s(dispute_window),
        bond_wei=Wei(0) if bond is None else parse_amount_wei(bond, name="bond"),
        min_quorum=min_quorum or 0,
    )
    tx_hash = send_as(
        session_of(context),
        account,
        lambda sender, contracts: set_model_terms(sender, contracts, terms),
    )
    show_sent(
        _terms_line(model, terms),
        tx_hash,
        as_json=as_json,
        model=model,
        terms=_terms_body(terms),
    )


def arbiter_command(
    context: typer.Context,
    arbiter: _AddressArgument,
    account: AccountOption = "deployer",
    as_json: JsonOption = False,
) -> None:
    """Appoint who rules on disputes, the open ones too.

    Example: inferd admin arbiter 0x70997970C51812dc3A010C7d01b50e0d17dc79C8
    """
    to = parse_address(arbiter)
    tx_hash = send_as(
        session_of(context), account, lambda sender, contracts: set_arbiter(sender, contracts, to)
    )
    shown = to_checksum_address(to)
    show_sent(f"{shown} rules on disputes", tx_hash, as_json=as_json, arbiter=shown)


def offer_command(
    context: typer.Context,
    to: _AddressArgument,
    account: AccountOption = "deployer",
    as_json: JsonOption = False,
) -> None:
    """Offer ownership to an account, which must accept it; the zero address takes it back.

    Example: inferd admin offer-ownership 0x70997970C51812dc3A010C7d01b50e0d17dc79C8
    """
    offered = parse_address(to)
    tx_hash = send_as(
        session_of(context),
        account,
        lambda sender, contracts: offer_ownership(sender, contracts, offered),
    )
    show_sent(
        f"ownership is offered to {_who(offered)}",
        tx_hash,
        as_json=as_json,
        pending_owner=_json(offered),
    )


def accept_command(
    context: typer.Context, account: AccountOption = "deployer", as_json: JsonOption = False
) -> None:
    """Take the ownership that was offered to the account.

    Example: inferd admin accept-ownership --account requester
    """

    async def accept(sender: Sender, contracts: Contracts) -> tuple[Address, Hash32]:
        return sender.address, await accept_ownership(sender, contracts)

    owner, tx_hash = send_as(session_of(context), account, accept)
    shown = to_checksum_address(owner)
    show_sent(f"{shown} owns the deployment", tx_hash, as_json=as_json, owner=shown)


def _set_paused(session: Session, account: str, *, paused: bool, as_json: bool) -> None:
    tx_hash = send_as(
        session, account, lambda sender, contracts: set_paused(sender, contracts, paused=paused)
    )
    show_sent(f"new requests are {_open(paused)}", tx_hash, as_json=as_json, paused=paused)


async def _read(
    session: Session, models: list[str]
) -> tuple[Administration, dict[str, ModelTerms]]:
    async with deployed_chain(session) as chain:
        state = await read_administration(chain.rpc, chain.contracts)
        terms = {
            model: await read_model_terms(chain.rpc, chain.contracts, model_id(model))
            for model in models
        }
    return state, terms


def _lines(state: Administration) -> tuple[str, ...]:
    offered = f", offered to {_who(state.pending_owner)}" if state.pending_owner != NOBODY else ""
    return (
        f"owner      {_who(state.owner)}{offered}",
        f"arbiter    {_who(state.arbiter)}, has {state.ruling_period_s} s to rule",
        f"requests   {_open(state.paused)}",
        f"fees       {state.poster_bps}/10000 to the poster, the rest to the workers' owners",
        f"cancel     {state.cancel_delay_s} s after its requester asked",
        f"stakes     {show_ether(state.min_stake_wei)} at least, leave after"
        f" {state.unbonding_delay_s} s",
        f"slashes    {state.reporter_bps}/10000 to the reporter, the rest to"
        f" {_who(state.treasury)}",
        f"disputes   {state.max_window_s} s at most",
    )


def _terms_line(model: str, terms: ModelTerms) -> str:
    words = []
    if terms.verifier != NOBODY:
        words.append(f"proofs for {to_checksum_address(terms.verifier)}")
    if terms.dispute_window_s:
        words.append(f"disputes for {terms.dispute_window_s} s, bond {show_ether(terms.bond_wei)}")
    if terms.min_quorum > 1:
        words.append(f"a quorum of {terms.min_quorum}")
    return f"model      {model}: {', '.join(words) or 'no terms'}"


def _body(state: Administration, terms: dict[str, ModelTerms]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "owner": _json(state.owner),
        "pending_owner": _json(state.pending_owner),
        "arbiter": _json(state.arbiter),
        "treasury": _json(state.treasury),
        "paused": state.paused,
        "poster_bps": state.poster_bps,
        "reporter_bps": state.reporter_bps,
        "cancel_delay_s": state.cancel_delay_s,
        "unbonding_delay_s": state.unbonding_delay_s,
        "ruling_period_s": state.ruling_period_s,
        "max_window_s": state.max_window_s,
        "min_stake_wei": str(state.min_stake_wei),
        "models": {model: _terms_body(found) for model, found in terms.items()},
    }


def _terms_body(terms: ModelTerms) -> dict[str, Any]:
    return {
        "verifier": _json(terms.verifier),
        "dispute_window_s": terms.dispute_window_s,
        "bond_wei": str(terms.bond_wei),
        "min_quorum": terms.min_quorum,
    }


def _open(paused: bool) -> str:
    return "stopped" if paused else "open"


def _who(address: Address) -> str:
    return "nobody" if address == NOBODY else to_checksum_address(address)


def _json(address: Address) -> str | None:
    return None if address == NOBODY else to_checksum_address(address)
