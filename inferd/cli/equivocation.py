"""`inferd worker report-equivocation`: two answers of one worker to one request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from eth_utils.address import to_checksum_address

from inferd.chain.amounts import show_ether
from inferd.chain.equivocation import load_signed_item, report_equivocation
from inferd.cli.accounts import AccountOption, send_as
from inferd.cli.moved import show_sent
from inferd.cli.session import JsonOption, session_of

_File = Annotated[
    Path, typer.Argument(metavar="FILE", help="JSON with items, signature and index.")
]


def register(workers: typer.Typer) -> None:
    workers.command("report-equivocation")(report_command)


def report_command(
    context: typer.Context,
    one: _File,
    other: _File,
    account: AccountOption = "requester",
    as_json: JsonOption = False,
) -> None:
    """Show that a worker signed two digests for one request: it loses its whole stake.

    Each file is {"items": "0x…", "signature": "0x…", "index": 0}: a group as it was
    signed, its signature, and which of its items is meant. Who reports is credited
    the deployment's reporter share.

    Example: inferd worker report-equivocation first.json second.json
    """
    items = load_signed_item(one), load_signed_item(other)
    done = send_as(
        session_of(context),
        account,
        lambda sender, contracts: report_equivocation(sender, contracts, *items),
    )
    signer = to_checksum_address(done.signer)
    show_sent(
        f"worker {signer} lost {show_ether(done.slashed_wei)},"
        f" {show_ether(done.reward_wei)} of it are credited to you",
        done.tx_hash,
        as_json=as_json,
        signer=signer,
        slashed_wei=str(done.slashed_wei),
        reward_wei=str(done.reward_wei),
    )
