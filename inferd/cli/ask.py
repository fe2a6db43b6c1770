"""`inferd submit`: ask for one inference and, if wished, wait for its checked answer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

import typer
from eth_utils.address import to_checksum_address

from indexer.errors import OperatorError, RpcUnreachable
from indexer.types import Wei
from inferd.chain.amounts import Deadline, parse_duration_s, parse_fee_wei
from inferd.chain.requester import Submitted, submit
from inferd.cli.addresses import parse_address
from inferd.cli.client import NodeClient, NodeUnreachable, NotAnInferdNode, NotFound
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.private import Reader, sealed_prompt
from inferd.cli.result import Answer, fetch_answer, opened_answer, show_answer
from inferd.cli.session import (
    DeployedChain,
    JsonOption,
    Session,
    deployed_chain,
    run_async,
    session_of,
)
from inferd.cli.waiting import wait_until_settled
from inferd.inputs.source import input_of
from inferd.node.api_models import StatusView
from inferd.node.pool_models import PoolView
from inferd.protocol.request import Delivery, InputKind, RequestParams, model_id
from inferd.protocol.terms import MAX_QUORUM

_UINT32_MAX = 2**32 - 1


class NoCallbackToKeys(OperatorError):
    """An account with a key asked to be called back."""

    code: ClassVar[str] = "no_callback_to_keys"


class ModelUnknown(OperatorError):
    """No worker of the node serves the model."""

    code: ClassVar[str] = "model_unknown"


class BadPrompt(OperatorError):
    """There is no prompt, or it cannot be read."""

    code: ClassVar[str] = "bad_prompt"


@dataclass(frozen=True, slots=True)
class Question:
    """What `inferd submit` was asked for, before it is tied to a chain's clock."""

    model: str
    prompt: bytes
    fee_wei: Wei
    deadline: Deadline
    max_tokens: int
    memory_mb: int
    batchable: bool
    quorum: int
    delivery: Delivery
    uri: str
    """Where the prompt is, if it is not to be on chain."""
    reader: Reader | None
    """Who is to read a private prompt; None where it is for all."""

    @property
    def private(self) -> bool:
        return self.reader is not None


class DeliveryName(StrEnum):
    """As people write it."""

    EVENT = "event"
    STORED = "stored"
    CALLBACK = "callback"


def register(app: typer.Typer) -> None:
    app.command("submit")(submit_command)


def submit_command(
    context: typer.Context,
    model: Annotated[str, typer.Option(metavar="NAME", help="A model that the node serves.")],
    prompt: Annotated[
        str,
        typer.Option(metavar="TEXT|@FILE|-", help="The prompt, a file with it, or - for stdin."),
    ],
    fee: Annotated[str, typer.Option(metavar="AMOUNT", help="What you pay, like 0.01ether.")],
    deadline: Annotated[
        str,
        typer.Option(metavar="SPAN|TIME", help="10m, or a time like 2030-01-31T12:00Z."),
    ],
    max_tokens: Annotated[
        int, typer.Option(min=0, max=_UINT32_MAX, metavar="N", help="0 = the worker's own limit.")
    ] = 0,
    memory_mb: Annotated[
        int, typer.Option(min=0, max=_UINT32_MAX, metavar="N", help="A worker must have; 0 = any.")
    ] = 0,
    batchable: Annotated[
        bool, typer.Option(help="Whether the result may wait to share a transaction.")
    ] = True,
    delivery: Annotated[
        DeliveryName,
        typer.Option(help="stored: contracts can read the answer's digest; else an event has it."),
    ] = DeliveryName.EVENT,
    quorum: Annotated[
        int,
        typer.Option(
            min=1, max=MAX_QUORUM, metavar="N", help="How many workers must give the same answer."
        ),
    ] = 1,
    uri: Annotated[
        str,
        typer.Option(
            metavar="URI",
            help="Where the node finds the prompt (https, ipfs, data): only its hash is on chain.",
        ),
    ] = "",
    private: Annotated[
        bool, typer.Option("--private", help="Encrypt the prompt to the node, and the answer back.")
    ] = False,
    operator: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="With --private: the poster that must vouch for it."),
    ] = "",
    worker: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="With --private: the worker to encrypt to, not the node."
        ),
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the answer, check it and print it.")
    ] = False,
    timeout: Annotated[
        str, typer.Option(metavar="SPAN", help="With --wait: how long at most.")
    ] = "15m",
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Submit although no worker serves the model.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask for one inference; prints the request's id and its transaction.

    The contract holds the fee: it pays for a result that lands before the
    deadline, and is yours again after it. With --wait only the answer goes to
    stdout, as `inferd result` prints it.

    Example: inferd submit --model smollm2-135m --prompt "Why is the sky blue?"
    --fee 0.01ether --deadline 10m --wait
    """
    question = Question(
        model=model,
        prompt=_read_prompt(prompt),
        fee_wei=parse_fee_wei(fee),
        deadline=Deadline.parse(deadline),
        max_tokens=max_tokens,
        memory_mb=memory_mb,
        batchable=batchable,
        quorum=_quorum(quorum, private=private),
        delivery=_delivery(delivery),
        uri=_uri(uri, private=private),
        reader=_reader(private, operator, worker),
    )
    timeout_s = parse_duration_s(timeout)
    session = session_of(context)
    if wait:
        answer = run_async(_ask_and_wait(session, question, timeout_s, anyway=anyway))
        show_answer(answer, as_json=as_json, raw=False)
        return
    submitted, deadline_s = run_async(_ask(session, question, anyway=anyway))
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "id": submitted.request_id,
                "commitment": "0x" + submitted.commitment.hex(),
                "tx_hash": "0x" + submitted.tx_hash.hex(),
                "block": submitted.block_number,
                "fee_wei": str(question.fee_wei),
                "deadline_s": deadline_s,
            }
        )
        return
    for line in _lines(submitted):
        show(line)


async def _ask(session: Session, question: Question, *, anyway: bool) -> tuple[Submitted, int]:
    async with deployed_chain(session) as chain:
        if not anyway:
            await _refuse_unknown_model(session, chain, question)
        return await _submit(session, chain, question)


async def _ask_and_wait(
    session: Session, question: Question, timeout_s: int, *, anyway: bool
) -> Answer:
    async with deployed_chain(session) as chain:
        if not anyway:
            await _refuse_unknown_model(session, chain, question)
        submitted, _ = await _submit(session, chain, question)
        for line in _lines(submitted):
            note(line)
        async with NodeClient(session.settings.node_url) as client:
            await wait_until_settled(client, submitted.request_id, timeout_s)
            answer = await fetch_answer(client, chain, submitted.request_id)
    return opened_answer(session, chain, answer)


async def _submit(
    session: Session, chain: DeployedChain, question: Question
) -> tuple[Submitted, int]:
    sender = await chain.sender(session.settings.requester, use="requester")
    head = await chain.rpc.header("latest")
    if head is None:
        raise RpcUnreachable(
            f"{chain.rpc.endpoint} has no newest block", help_text="wait until it has synced"
        )
    deadline_s = question.deadline.at(head.timestamp_s)
    params = RequestParams(
        model_id=model_id(question.model),
        max_tokens=question.max_tokens,
        deadline_s=deadline_s,
        memory_mb=question.memory_mb,
        input=await _input(session, chain, question),
        batchable=question.batchable,
        quorum=question.quorum,
        delivery=question.delivery,
        input_kind=InputKind.URI if question.uri else InputKind.INLINE,
    )
    return await submit(sender, chain.contracts, params, question.fee_wei), deadline_s


async def _input(session: Session, chain: DeployedChain, question: Question) -> bytes:
    if question.uri:
        return input_of(question.prompt, question.uri)
    if question.reader is None:
        return question.prompt
    async with NodeClient(session.settings.node_url) as client:
        return await sealed_prompt(
            client,
            chain.contracts,
            session.settings.requester,
            question.prompt,
            model_id(question.model),
            question.reader,
        )


async def _refuse_unknown_model(session: Session, chain: DeployedChain, question: Question) -> None:
    model, pool = question.model, PoolView(workers=[])
    reader = question.reader
    async with NodeClient(session.settings.node_url) as client:
        try:
            status = await client.status()
            if reader is None or reader.worker is not None:
                pool = await client.workers()
        except NotFound:
            pass  # It tells of no others.
        except (NodeUnreachable, NotAnInferdNode) as error:
            note(f"warning: cannot tell whether a worker serves {model}: {error.message}")
            return
    if status.chain_id != chain.contracts.chain_id:
        note(f"warning: the node at {client.shown} serves another chain, {status.chain_id}")
        return
    served = _served(status, pool, reader)
    # A node knows the names of its own models, and the ids of others.
    if not served & {model, "0x" + model_id(model).hex()}:
        named = ", ".join(sorted(served)) or "none"
        what = f"{'' if reader is None else 'private requests for '}the model {model!r}"
        only = None if reader is None else reader.worker
        at = f"of the node at {client.shown}"
        raise ModelUnknown(
            f"no worker {at} serves {what}"
            if only is None
            else f"worker {to_checksum_address(only)} {at} does not serve {what}",
            help_text=f"choose of {named}, or submit with --anyway",
        )


def _served(status: StatusView, pool: PoolView, reader: Reader | None) -> set[str]:
    """Names or ids of the models that a request for this reader may go to."""
    only = None if reader is None or reader.worker is None else to_checksum_address(reader.worker)
    served = {
        one.model
        for worker in pool.workers
        # One that is silent or rests for a while is waited for.
        if worker.in_pool or worker.heartbeat_age_s is not None
        if only in {None, worker.address}
        for one in worker.models
    }
    # Only workers inside the node have its own key.
    return served if only else served | {worker.model for worker in status.workers}


def _uri(uri: str, *, private: bool) -> str:
    if uri and private:
        raise BadPrompt(
            "a prompt at a URI cannot be encrypted by this command",
            help_text="leave out --uri: a private prompt goes on chain, encrypted",
        )
    if uri and urlsplit(uri).scheme not in {"https", "http", "ipfs", "data"}:
        raise BadPrompt(
            f"nodes fetch no {uri.partition(':')[0]!r} URIs",
            help_text="name one of https://, http://, ipfs:// or data:",
        )
    return uri


def _reader(private: bool, operator: str, worker: str) -> Reader | None:
    """Who says whose key it is means a prompt that nobody else reads: none goes out in plain."""
    for option, given in (("--operator", operator), ("--worker", worker)):
        if given and not private:
            raise BadPrompt(
                f"{option} is for a prompt that is encrypted, and without --private all can read"
                " it",
                help_text=f"add --private, or leave out {option}; nothing was sent",
            )
    if operator and worker:
        raise BadPrompt(
            "--worker vouches for its own key, so no --operator has to",
            help_text="leave out one of them; nothing was sent",
        )
    if not private:
        return None
    return Reader(
        worker=parse_address(worker) if worker else None,
        operator=parse_address(operator) if operator else None,
    )


def _quorum(quorum: int, *, private: bool) -> int:
    if quorum > 1 and private:
        raise BadPrompt(
            "workers cannot agree on a private request: each encrypts its answer anew",
            help_text="leave out --private or --quorum; nothing was sent",
        )
    return quorum


def _delivery(name: DeliveryName) -> Delivery:
    if name is DeliveryName.CALLBACK:
        raise NoCallbackToKeys(
            "only a contract can be called back, and `inferd submit` asks with a key",
            help_text="choose event or stored, or ask from a contract as docs/protocol.md says",
        )
    return Delivery[name.name]


def _lines(submitted: Submitted) -> tuple[str, str]:
    return f"request {submitted.request_id}", f"transaction 0x{submitted.tx_hash.hex()}"


def _read_prompt(prompt: str) -> bytes:
    if prompt == "-":
        content = sys.stdin.buffer.read()
    elif prompt.startswith("@"):
        try:
            content = Path(prompt[1:]).read_bytes()
        except OSError as error:
            raise BadPrompt(
                f"the prompt file {prompt[1:]} cannot be read: {error.strerror}",
                help_text="correct the path; a prompt that begins with @ can come from stdin (-)",
            ) from None
    else:
        content = prompt.encode("utf-8", "surrogateescape")
    if not content:
        raise BadPrompt("the prompt is empty", help_text="give one with `--prompt`")
    return content
