"""Private inputs and answers, as commands make and read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eth_utils.address import to_checksum_address

from indexer.errors import OperatorError
from indexer.types import Address, Contracts
from inferd.chain.keys import KeySource, open_account
from inferd.cli.client import NodeClient, NotAnInferdNode
from inferd.cli.output import note
from inferd.protocol.private import (
    AnswerContext,
    CannotOpen,
    Context,
    DecryptionKey,
    EncryptionKey,
    NotPrivate,
    PrivateAnswer,
    is_key,
    open_answer,
    reply_key,
    seal_input,
)
from inferd.protocol.request import Commitment, ModelId
from inferd.protocol.typed_data import (
    BadSignature,
    CompactSignature,
    domain_separator,
    encryption_key_digest,
    recover,
)


class KeyNotVouchedFor(OperatorError):
    """Nobody, or another than was asked for, says that an encryption key is its own."""

    code: ClassVar[str] = "key_not_vouched_for"


class NotForYou(OperatorError):
    """The answer is encrypted to another requester."""

    code: ClassVar[str] = "not_for_you"


@dataclass(frozen=True, slots=True)
class Reader:
    """Who is to read a private prompt: a worker, or the node, which computes with its own."""

    worker: Address | None = None
    operator: Address | None = None
    """Of a node: the poster that must vouch for its key; None = any."""


async def sealed_prompt(
    client: NodeClient,
    contracts: Contracts,
    requester: KeySource,
    prompt: bytes,
    model: ModelId,
    reader: Reader,
) -> bytes:
    """The prompt, encrypted to the reader's key, with the answer to come back for `requester`
    alone. A note says whose key it is.

    Raises KeyNotVouchedFor, BadKey and what the client raises.
    """
    if reader.worker is not None:
        key, whose = await _worker_key(client, contracts, reader.worker), "worker"
        signer = reader.worker
    else:
        key, signer = await _vouched_key(client, contracts)
        whose = "poster"
        if reader.operator is not None and signer != reader.operator:
            raise KeyNotVouchedFor(
                f"the encryption key of the node at {client.shown} is that of"
                f" {to_checksum_address(signer)}",
                help_text="correct `node_url` or `--operator`; nothing was sent",
            )
    note(f"encrypted to 0x{key.hex()}, which {whose} {to_checksum_address(signer)} vouches for")
    account = open_account(requester, contracts.chain_id, use="requester")
    reply = reply_key(bytes(account.key), contracts.chain_id, contracts.requests)
    address = Address(bytes.fromhex(account.address.removeprefix("0x")))
    context = Context(contracts.chain_id, contracts.requests, address, model)
    return seal_input(prompt, key, reply.public, context)


async def _worker_key(client: NodeClient, contracts: Contracts, worker: Address) -> EncryptionKey:
    """The newest that the worker has signed: the node that hands it on is not believed."""
    shown = to_checksum_address(worker)
    view = await client.worker(shown)
    if not view.encryption_keys:
        raise KeyNotVouchedFor(
            f"the node at {client.shown} knows no encryption key of worker {shown}",
            help_text="`inferd workers show` says whether it is heard; a worker inside the node has"
            " the node's key: leave out --worker. Nothing was sent",
        )
    newest = view.encryption_keys[0]
    key, signer = _signed_key(client, contracts, newest.key, newest.signature)
    if signer != worker:
        raise KeyNotVouchedFor(
            f"what the node at {client.shown} gives as the key of worker {shown} is not signed by"
            " it",
            help_text="do not send it anything private; ask at another node",
        )
    return key


async def _vouched_key(client: NodeClient, contracts: Contracts) -> tuple[EncryptionKey, Address]:
    view = await client.encryption_key()
    if view.signature is None:
        raise KeyNotVouchedFor(
            f"nobody vouches for the encryption key of the node at {client.shown}",
            help_text="its poster's key is at a remote signer; ask at another node",
        )
    key, signer = _signed_key(client, contracts, view.key, view.signature)
    try:
        poster: Address | None = Address(_unhex(view.poster))
    except ValueError:
        poster = None
    if signer is None or signer != poster:
        raise KeyNotVouchedFor(
            f"the encryption key of the node at {client.shown} is not signed by its poster",
            help_text="do not send it anything private; ask its operator",
        )
    return key, signer


def _signed_key(
    client: NodeClient, contracts: Contracts, key: str, signature: str
) -> tuple[EncryptionKey, Address | None]:
    """The key, and who signed it; nobody where it is none. Raises NotAnInferdNode."""
    try:
        made, signed = _unhex(key), CompactSignature(_unhex(signature))
    except ValueError:
        raise NotAnInferdNode(
            f"the node at {client.shown} gave an encryption key that cannot be read",
            help_text="correct `node_url`, or run the same release on both sides",
        ) from None
    domain = domain_separator(contracts.chain_id, contracts.requests)
    try:
        signer = recover(encryption_key_digest(domain, made), signed)
    except BadSignature:
        return EncryptionKey(made), None
    return EncryptionKey(made), signer if is_key(made) else None


def opened(
    output: bytes,
    contracts: Contracts,
    requester: KeySource,
    request_id: int,
    commitment: Commitment,
) -> PrivateAnswer:
    """The answer inside the output. Raises NotForYou and BadKey."""
    account = open_account(requester, contracts.chain_id, use="requester")
    key: DecryptionKey = reply_key(bytes(account.key), contracts.chain_id, contracts.requests)
    context = AnswerContext(contracts.chain_id, contracts.requests, request_id, commitment)
    try:
        return open_answer(output, key, context)
    except (NotPrivate, CannotOpen):
        raise NotForYou(
            f"the answer to request {request_id} is encrypted, and not to {account.address}",
            help_text="name the key that asked as `requester`; --sealed prints it as it is",
        ) from None


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
