"""`inferd result`: an answer from the node, checked against the chain before it is printed."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from eth_utils.address import to_checksum_address

from inferd.chain.requester import CheckedResult, check_result, require_result
from inferd.cli.client import NodeClient, NotAnInferdNode, NotFound
from inferd.cli.output import SCHEMA_VERSION, note, show_bytes, show_json
from inferd.cli.private import opened
from inferd.cli.session import (
    DeployedChain,
    IdArgument,
    JsonOption,
    Session,
    deployed_chain,
    run_async,
    session_of,
)
from inferd.node.api_models import ResultView
from inferd.protocol.private import is_answer
from inferd.protocol.request import Commitment


@dataclass(frozen=True, slots=True)
class Answer:
    """An output whose digest is the one on chain."""

    output: bytes
    media_type: str
    checked: CheckedResult
    commitment: Commitment
    workers: tuple[str, ...] = ()
    """Who signed it, as the node says; the chain names the first."""
    private: bool = False
    """Whether the output was encrypted, and is not the bytes of the digest any more."""


def register(app: typer.Typer) -> None:
    app.command("result")(result_command)


def result_command(
    context: typer.Context,
    request_id: IdArgument,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the exact bytes on a terminal too.")
    ] = False,
    sealed: Annotated[
        bool, typer.Option("--sealed", help="Do not decrypt the answer to a private request.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a request's answer after checking it against the digest on chain.

    A pipe or a file gets the exact bytes; a terminal gets text with control
    characters escaped. The answer to a private request is decrypted with the
    `requester` key.

    Example: inferd result 7 > answer.txt
    """
    answer = run_async(_result(session_of(context), request_id, sealed=sealed))
    show_answer(answer, as_json=as_json, raw=raw)


async def _result(session: Session, request_id: int, *, sealed: bool) -> Answer:
    async with deployed_chain(session) as chain, NodeClient(session.settings.node_url) as client:
        answer = await fetch_answer(client, chain, request_id)
    return answer if sealed else opened_answer(session, chain, answer)


def opened_answer(session: Session, chain: DeployedChain, answer: Answer) -> Answer:
    """With its plain output where it is private. Raises NotForYou and BadKey."""
    if not is_answer(answer.output):
        return answer
    plain = opened(
        answer.output,
        chain.contracts,
        session.settings.requester,
        answer.checked.request_id,
        answer.commitment,
    )
    return replace(answer, output=plain.content, media_type=plain.media_type, private=True)


async def fetch_answer(client: NodeClient, chain: DeployedChain, request_id: int) -> Answer:
    """Raises NotFound, DigestMismatch, NotSettled and what the client and the chain raise."""
    try:
        view = await client.result(request_id)
    except NotFound:
        await require_result(chain.rpc, chain.contracts, request_id)  # why there is none
        raise
    output = await fetch_output(client, view)
    checked = await check_result(chain.rpc, chain.contracts, request_id, output)
    workers = tuple(to_checksum_address(worker) for worker in view.workers)
    return Answer(output, view.media_type, checked, _commitment(view, client), workers)


def _commitment(view: ResultView, client: NodeClient) -> Commitment:
    try:
        return Commitment(bytes.fromhex(view.commitment.removeprefix("0x")))
    except ValueError:
        raise NotAnInferdNode(
            f"the node at {client.shown} gave a commitment that is no hex",
            help_text="correct `node_url`, or run the same release on both sides",
        ) from None


async def fetch_output(client: NodeClient, view: ResultView) -> bytes:
    """The bytes of a result, wherever the node has them. Raises as the client does."""
    if view.output_base64 is None:
        return await client.output(view.id)
    try:
        return base64.b64decode(view.output_base64, validate=True)
    except binascii.Error:
        raise NotAnInferdNode(
            f"the node at {client.shown} gave an output that is no base64",
            help_text="correct `node_url`, or run the same release on both sides",
        ) from None


def show_answer(answer: Answer, *, as_json: bool, raw: bool) -> None:
    """The output on stdout, and what it was checked against on stderr (or both as JSON)."""
    checked = answer.checked
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "id": checked.request_id,
                "media_type": answer.media_type,
                "output_base64": base64.b64encode(answer.output).decode(),
                "digest": "0x" + checked.digest.hex(),
                "digest_matches_chain": True,
                "private": answer.private,
                "worker": to_checksum_address(checked.worker),
                "workers": list(answer.workers),
                "tx_hash": "0x" + checked.tx_hash.hex(),
                "block": checked.block_number,
            }
        )
        return
    worker = to_checksum_address(checked.worker)
    others = [one for one in answer.workers if one != worker]
    beside = f" and, as the node says, {', '.join(others)}" if others else ""
    note(
        f"digest 0x{checked.digest.hex()} is on chain: block {checked.block_number},"
        f" worker {worker}{beside}, transaction 0x{checked.tx_hash.hex()}"
    )
    show_bytes(answer.output, raw=raw)
