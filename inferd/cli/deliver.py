"""`inferd deliver`: an output to the contract that asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

import typer
from eth_utils.address import to_checksum_address

from indexer.errors import OperatorError
from inferd.chain.delivery import Delivered, deliver, read_callback_request
from inferd.cli.accounts import AccountOption, account_source
from inferd.cli.client import NodeClient
from inferd.cli.moved import show_sent
from inferd.cli.result import fetch_answer
from inferd.cli.session import (
    DeployedChain,
    IdArgument,
    JsonOption,
    Session,
    deployed_chain,
    run_async,
    session_of,
)


class BadOutputFile(OperatorError):
    """The file with the output cannot be read."""

    code: ClassVar[str] = "bad_output_file"


def register(app: typer.Typer) -> None:
    app.command("deliver")(deliver_command)


def deliver_command(
    context: typer.Context,
    request_id: IdArgument,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The exact output; default: the node is asked for it."),
    ] = None,
    account: AccountOption = "requester",
    as_json: JsonOption = False,
) -> None:
    """Hand a settled request's output to the contract that asked with delivery callback.

    Anyone may, and nobody is paid for it. Its digest is checked against the chain first.

    Example: inferd deliver 7
    """
    given = None if output is None else _read(output)
    session = session_of(context)
    done = run_async(_deliver(session, request_id, given, account))
    consumer = to_checksum_address(done.consumer)
    show_sent(
        f"{consumer} has the output of request {request_id}",
        done.tx_hash,
        as_json=as_json,
        id=request_id,
        consumer=consumer,
        gas_used=done.gas_used,
    )


async def _deliver(
    session: Session, request_id: int, given: bytes | None, account: str
) -> Delivered:
    source = account_source(session, account)
    async with deployed_chain(session) as chain:
        await read_callback_request(chain.rpc, chain.contracts, request_id)
        output = await _from_node(session, chain, request_id) if given is None else given
        return await deliver(
            await chain.sender(source, use=account), chain.contracts, request_id, output
        )


async def _from_node(session: Session, chain: DeployedChain, request_id: int) -> bytes:
    async with NodeClient(session.settings.node_url) as client:
        return (await fetch_answer(client, chain, request_id)).output


def _read(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError as error:
        raise BadOutputFile(
            f"the output file {place} cannot be read: {error.strerror}",
            help_text="correct the path, or leave it out to ask the node",
        ) from None
