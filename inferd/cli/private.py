"""Private inputs and answers, as commands make and read them."""

from __future__ import annotations

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
    """Nobody, or another than was asked for, says that the node's encryption key is its own."""

    code: ClassVar[str] = "key_not_vouched_for"


class NotForYou(OperatorError):
    """The answer is encrypted to another requester."""

    code: ClassVar[str] = "not_for_you"


async def sealed_prompt(
    client: NodeClient,
    contracts: Contracts,
    requester: KeySource,
    prompt: bytes,
    model: ModelId,
    operator: Address | None,
) -> bytes:
    """The prompt, encrypted to the node's key, with the answer to come back for `requester` alone.

    Raises KeyNotVouchedFor, BadKey and what the client raises; without `operator` any poster's
    word will do, and a note says whose it is.
    """
    key, poster = await _vouched_key(client, contracts)
    if operator is not None and poster != operator:
        raise KeyNotVouchedFor(
            f"the encryption key of the node at {client.shown} is that of"
            f" {to_checksum_address(poster)}",
            help_text="correct `node_url` or `--operator`; nothing was sent",
        )
    note(f"encrypted to 0x{key.hex()}, which poster {to_checksum_address(poster)} vouches for")
    account = open_account(requester, contracts.chain_id, use="requester")
    reply = reply_key(bytes(account.key), contracts.chain_id, contracts.requests)
    address = Address(bytes.fromhex(account.address.removeprefix("0x")))
    context = Context(contracts.chain_id, contracts.requests, address, model)
    return seal_input(prompt, key, reply.public, context)


async def _vouched_key(client: NodeClient, contracts: Contracts) -> tuple[EncryptionKey, Address]:
    view = await client.encryption_key()
    if view.signature is None:
        raise KeyNotVouchedFor(
            f"nobody vouches for the encryption key of the node at {client.shown}",
            help_text="its poster's key is at a remote signer; ask at another node",
        )
    try:
        key, poster = _unhex(view.key), Address(_unhex(view.poster))
        signature = CompactSignature(_unhex(view.signature))
    except ValueError:
        raise NotAnInferdNode(
            f"the node at {client.shown} gave an encryption key that cannot be read",
            help_text="correct `node_url`, or run the same release on both sides",
        ) from None
    domain = domain_separator(contracts.chain_id, contracts.requests)
    try:
        signer: Address | None = recover(encryption_key_digest(domain, key), signature)
    except BadSignature:
        signer = None
    if signer != poster or not is_key(key):
        raise KeyNotVouchedFor(
            f"the encryption key of the node at {client.shown} is not signed by its poster",
            help_text="do not send it anything private; ask its operator",
        )
    return EncryptionKey(key), poster


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
