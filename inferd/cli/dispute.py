"""`inferd dispute ...`: payments that are held back, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import typer
from eth_utils.address import to_checksum_address

from inferd.chain.amounts import show_ether
from inferd.chain.disputes import Case, close_dispute, open_dispute, read_case, release, rule
from inferd.cli.accounts import AccountOption, send_as
from inferd.cli.client import NodeClient, NodeUnreachable, NotAnInferdNode, NotFound
from inferd.cli.moved import show_sent
from inferd.cli.output import SCHEMA_VERSION, show, show_json
from inferd.cli.session import (
    IdArgument,
    JsonOption,
    Session,
    deployed_chain,
    run_async,
    session_of,
)
from inferd.protocol.hold import HoldStatus


def register(app: typer.Typer) -> None:
    disputes = typer.Typer(
        help="Dispute results of models with a dispute window.\n\nExample: inferd dispute show 7",
        rich_markup_mode="rich",
    )
    disputes.command("show")(show_command)
    disputes.command("open")(open_command)
    disputes.command("rule")(rule_command)
    disputes.command("close")(close_command)
    disputes.command("release")(release_command)
    app.add_typer(disputes, name="dispute")


def show_command(
    context: typer.Context, request_id: IdArgument, as_json: JsonOption = False
) -> None:
    """Show a payment that is held back, until when, and what became of it.

    Where a node runs, also which of its records says that the result is wrong.

    Example: inferd dispute show 7
    """
    session = session_of(context)

    async def work() -> tuple[Case, int | None]:
        async with deployed_chain(session) as chain:
            case = await read_case(chain.rpc, chain.contracts, request_id)
        return case, await _disagreement(session, case)

    case, disagreement = run_async(work())
    if as_json:
        show_json({**_body(case), "disagreement": disagreement})
        return
    for line in _lines(case):
        show(line)
    if disagreement is not None:
        show(f"record     {disagreement} says that it is wrong; `inferd workers evidence` has it")


async def _disagreement(session: Session, case: Case) -> int | None:
    """What the node that runs here has against the result, if one runs."""
    with suppress(NodeUnreachable, NotAnInferdNode, NotFound):
        async with NodeClient(session.settings.node_url) as client:
            view = await client.request(case.held.request_id)
            if view.commitment == "0x" + case.held.commitment.hex():
                return view.disagreement
    return None


def open_command(
    context: typer.Context,
    request_id: IdArgument,
    account: AccountOption = "requester",
    as_json: JsonOption = False,
) -> None:
    """Dispute a result; the account stakes the bond that `inferd dispute show` names.

    The bond comes back if the arbiter upholds the dispute or does not rule in time.

    Example: inferd dispute open 7
    """
    done = send_as(
        session_of(context),
        account,
        lambda sender, contracts: open_dispute(sender, contracts, request_id),
    )
    show_sent(
        f"disputed with a bond of {show_ether(done.bond_wei)}, to be ruled on until"
        f" {done.ruling_until_s} (Unix time)",
        done.tx_hash,
        as_json=as_json,
        id=request_id,
        bond_wei=str(done.bond_wei),
        ruling_until_s=done.ruling_until_s,
    )


def rule_command(
    context: typer.Context,
    request_id: IdArgument,
    upheld: Annotated[
        bool, typer.Option("--upheld/--rejected", help="Whether the disputer was right.")
    ],
    account: AccountOption = "deployer",
    as_json: JsonOption = False,
) -> None:
    """Rule on a dispute, as its arbiter.

    Upheld: the requester gets the whole fee back, the disputer the bond, and each
    worker loses up to the bond. Rejected: payment and bond go to the workers' owners, the
    poster's share to the poster.

    Example: inferd dispute rule 7 --upheld
    """
    done = send_as(
        session_of(context),
        account,
        lambda sender, contracts: rule(sender, contracts, request_id, upheld=upheld),
    )
    show_sent(
        f"upheld, {show_ether(done.slashed_wei)} slashed" if done.upheld else "rejected",
        done.tx_hash,
        as_json=as_json,
        id=request_id,
        upheld=done.upheld,
        slashed_wei=str(done.slashed_wei),
    )


def close_command(
    context: typer.Context,
    request_id: IdArgument,
    account: AccountOption = "requester",
    as_json: JsonOption = False,
) -> None:
    """End a dispute on which nobody ruled in time: payment and bond go where they belong.

    Example: inferd dispute close 7
    """
    tx_hash = send_as(
        session_of(context),
        account,
        lambda sender, contracts: close_dispute(sender, contracts, request_id),
    )
    show_sent(
        f"the dispute of request {request_id} is over", tx_hash, as_json=as_json, id=request_id
    )


def release_command(
    context: typer.Context,
    request_ids: Annotated[list[int], typer.Argument(metavar="ID...", help="Requests.")],
    account: AccountOption = "requester",
    as_json: JsonOption = False,
) -> None:
    """Pay what nobody disputed in time to workers' owners and poster, who `withdraw` it.

    Example: inferd dispute release 7 8 9
    """
    done = send_as(
        session_of(context),
        account,
        lambda sender, contracts: release(sender, contracts, request_ids),
    )
    ids = ", ".join(map(str, done.request_ids)) or "none: somebody else was faster"
    show_sent(f"released {ids}", done.tx_hash, as_json=as_json, released=list(done.request_ids))


def _lines(case: Case) -> Iterator[str]:
    held = case.held
    yield f"request    {held.request_id}: {_outcome(case)}"
    yield f"payment    {show_ether(held.payment_wei)}"
    yield f"poster     {to_checksum_address(held.poster)}, {show_ether(held.poster_wei)}"
    yield f"bond       {show_ether(held.bond_wei)}"
    yield f"disputable until {held.disputable_until_s} (Unix time)"
    yield f"digest     0x{held.digest.hex()}"
    for worker, owner in zip(held.workers, held.owners, strict=True):
        yield f"worker     {to_checksum_address(worker)} of {to_checksum_address(owner)}"
    if case.opened is not None:
        yield f"disputer   {to_checksum_address(case.opened.disputer)}"
        yield f"to be ruled on until {case.opened.ruling_until_s} (Unix time)"


def _outcome(case: Case) -> str:
    if case.status is not HoldStatus.CLOSED:
        return case.status.name.lower()
    if case.ruled is not None:
        slashed = show_ether(case.ruled.slashed_wei)
        return f"dispute upheld, {slashed} slashed" if case.ruled.upheld else "dispute rejected"
    return "dispute lapsed" if case.lapsed else "released"


def _body(case: Case) -> dict[str, Any]:
    held, opened, ruled = case.held, case.opened, case.ruled
    return {
        "schema_version": SCHEMA_VERSION,
        "id": held.request_id,
        "status": case.status.name.lower(),
        "outcome": _outcome(case),
        "commitment": "0x" + held.commitment.hex(),
        "digest": "0x" + held.digest.hex(),
        "payment_wei": str(held.payment_wei),
        "poster": to_checksum_address(held.poster),
        "poster_wei": str(held.poster_wei),
        "bond_wei": str(held.bond_wei),
        "disputable_until_s": held.disputable_until_s,
        "workers": [to_checksum_address(worker) for worker in held.workers],
        "owners": [to_checksum_address(owner) for owner in held.owners],
        "disputer": None if opened is None else to_checksum_address(opened.disputer),
        "ruling_until_s": None if opened is None else opened.ruling_until_s,
        "upheld": None if ruled is None else ruled.upheld,
        "slashed_wei": None if ruled is None else str(ruled.slashed_wei),
    }
