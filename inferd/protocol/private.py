"""Private inputs and their answers: HPKE envelopes that are tied to one requester and request.

HPKE (RFC 9180), base mode, with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305.
Sizes are padded as in Padmé (Nikitin et al., "Reducing Metadata Leakage from Encrypted Files",
2019).
The layouts are in docs/protocol.md.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from typing import NewType

from Crypto.Protocol import HPKE
from Crypto.Protocol.DH import import_x25519_private_key, import_x25519_public_key
from eth_utils.crypto import keccak

from indexer.types import Address
from inferd.protocol.request import Commitment, ModelId

EncryptionKey = NewType("EncryptionKey", bytes)
"""A public key of X25519, 32 bytes."""

INPUT_MAGIC = b"inferd-private"
ANSWER_MAGIC = b"inferd-answer-"
VERSION = 1
KEY_BYTES = 32
HEAD_BYTES = len(INPUT_MAGIC) + 1 + KEY_BYTES
"""Of an input's envelope: what tells whose it is."""
ANSWER_MEDIA_TYPE = "application/vnd.inferd.private"
_LEAST_BYTES = 256
_REPLY_SALT = b"inferd reply key, version 1"


class NotPrivate(ValueError):
    """It is no envelope of this version."""


class CannotOpen(ValueError):
    """The key is another one, or the envelope was made for another requester, model or deployment,
    or it was changed. Which of these is not told: nobody can use the node to find out."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an input is tied to."""

    chain_id: int
    requests: Address
    """The contract InferenceRequests."""
    requester: Address
    model: ModelId

    def encoded(self) -> bytes:
        """Of one length, so no two contexts have one encoding."""
        return self.chain_id.to_bytes(32, "big") + self.requests + self.requester + self.model


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """What an answer is tied to."""

    chain_id: int
    requests: Address
    request_id: int
    commitment: Commitment

    def encoded(self) -> bytes:
        """Of one length, as above."""
        numbers = self.chain_id.to_bytes(32, "big") + self.request_id.to_bytes(32, "big")
        return numbers + self.requests + self.commitment


@dataclass(frozen=True, slots=True)
class PrivateInput:
    """What an envelope holds."""

    content: bytes = field(repr=False)
    reply_to: EncryptionKey
    """Whom the answer is for. It is inside, so nobody can put another one in its place."""


@dataclass(frozen=True, slots=True)
class PrivateAnswer:
    """What an answer's envelope holds."""

    content: bytes = field(repr=False)
    media_type: str


class DecryptionKey:
    """A private key of X25519, which is in no text of it."""

    __slots__ = ("_key", "public")

    def __init__(self, secret: bytes) -> None:
        """Raises ValueError where it is not 32 bytes."""
        self._key = import_x25519_private_key(secret)
        self.public = EncryptionKey(self._key.public_key().export_key(format="raw"))

    def open(self, info: bytes, enc: bytes, sealed: bytes, context: bytes) -> bytes:
        """Raises CannotOpen."""
        try:
            receiver = HPKE.new(
                receiver_key=self._key, aead_id=HPKE.AEAD.CHACHA20_POLY1305, enc=enc, info=info
            )
            opened: bytes = receiver.unseal(sealed, context)
        except ValueError:
            raise CannotOpen from None
        return opened

    def __repr__(self) -> str:
        return f"DecryptionKey({self.public.hex()})"


def reply_key(account_key: bytes, chain_id: int, requests: Address) -> DecryptionKey:
    """The key that answers to an account are encrypted to, derived from the account's own: whoever
    has that can read the answers, and nothing else has to be kept.

    HKDF-SHA256 (RFC 5869) with one block of output.
    """
    extracted = hmac.digest(_REPLY_SALT, account_key, hashlib.sha256)
    info = chain_id.to_bytes(32, "big") + requests + b"\x01"
    return DecryptionKey(hmac.digest(extracted, info, hashlib.sha256))


def is_private(request_input: bytes) -> bool:
    """Whether it is taken for an envelope, of any version."""
    return request_input.startswith(INPUT_MAGIC)


def recipient_of(request_input: bytes) -> EncryptionKey | None:
    """Whom an input is encrypted to; None where it is not private. The first HEAD_BYTES are enough.

    Raises NotPrivate for an envelope of another version, or one that is cut off.
    """
    if not is_private(request_input):
        return None
    head = request_input[len(INPUT_MAGIC) : HEAD_BYTES]
    if len(head) < HEAD_BYTES - len(INPUT_MAGIC) or head[0] != VERSION:
        raise NotPrivate(f"its envelope is not one of version {VERSION}")
    return EncryptionKey(head[1:])


def is_key(key: bytes) -> bool:
    """Whether something can be encrypted to it."""
    try:
        import_x25519_public_key(key)
    except ValueError:
        return False
    return True


def private_model(model: ModelId, key: EncryptionKey) -> ModelId:
    """By which the scheduler knows requests for a model whose inputs are encrypted to `key`: they
    are for workers that have it."""
    return ModelId(keccak(b"inferd private model" + model + key))


def seal_input(
    content: bytes, to: EncryptionKey, reply_to: EncryptionKey, context: Context
) -> bytes:
    """The input to submit. Raises ValueError where `to` is no key."""
    head = INPUT_MAGIC + bytes([VERSION]) + to
    padded = reply_to + _padded(content)
    return head + _seal(to, INPUT_MAGIC, padded, head + context.encoded())


def open_input(request_input: bytes, key: DecryptionKey, context: Context) -> PrivateInput:
    """Raises NotPrivate and CannotOpen."""
    if recipient_of(request_input) is None:
        raise NotPrivate("it is no envelope")
    head, enc, sealed = _split(request_input, HEAD_BYTES)
    opened = key.open(INPUT_MAGIC, enc, sealed, head + context.encoded())
    content, reply_to = _unpadded(opened[KEY_BYTES:]), EncryptionKey(opened[:KEY_BYTES])
    if not is_key(reply_to):
        raise CannotOpen
    return PrivateInput(content, reply_to)


def seal_answer(answer: PrivateAnswer, to: EncryptionKey, context: AnswerContext) -> bytes:
    """The output of a private request. Raises ValueError where `to` is no key."""
    head = ANSWER_MAGIC + bytes([VERSION])
    media_type = answer.media_type.encode()
    content = struct.pack(">H", len(media_type)) + media_type + answer.content
    return head + _seal(to, ANSWER_MAGIC, _padded(content), head + context.encoded())


def is_answer(output: bytes) -> bool:
    """Whether it is the envelope of an answer, of any version."""
    return output.startswith(ANSWER_MAGIC)


def open_answer(output: bytes, key: DecryptionKey, context: AnswerContext) -> PrivateAnswer:
    """Raises NotPrivate and CannotOpen."""
    head_bytes = len(ANSWER_MAGIC) + 1
    if output[:head_bytes] != ANSWER_MAGIC + bytes([VERSION]):
        raise NotPrivate(f"it is not the envelope of an answer of version {VERSION}")
    head, enc, sealed = _split(output, head_bytes)
    content = _unpadded(key.open(ANSWER_MAGIC, enc, sealed, head + context.encoded()))
    length = int.from_bytes(content[:2], "big")
    media_type = content[2 : 2 + length].decode(errors="replace")
    return PrivateAnswer(content[2 + length :], media_type)


def padded_bytes(length: int) -> int:
    """How long `length` bytes are after padding: an eighth longer at most, above the least."""
    if length <= _LEAST_BYTES:
        return _LEAST_BYTES
    exponent = length.bit_length() - 1
    mask = (1 << (exponent - exponent.bit_length())) - 1
    return (length + mask) & ~mask


def _padded(content: bytes) -> bytes:
    counted = struct.pack(">I", len(content)) + content
    return counted.ljust(padded_bytes(len(counted)), b"\x00")


def _unpadded(padded: bytes) -> bytes:
    """Raises CannotOpen where the sender has padded wrongly."""
    length = int.from_bytes(padded[:4], "big")
    if len(padded) < 4 or length > len(padded) - 4:
        raise CannotOpen
    return padded[4 : 4 + length]


def _seal(to: EncryptionKey, info: bytes, content: bytes, context: bytes) -> bytes:
    sender = HPKE.new(
        receiver_key=import_x25519_public_key(to),
        aead_id=HPKE.AEAD.CHACHA20_POLY1305,
        info=info,
    )
    sealed: bytes = sender.seal(content, context)
    return bytes(sender.enc) + sealed


def _split(envelope: bytes, head_bytes: int) -> tuple[bytes, bytes, bytes]:
    body = head_bytes + KEY_BYTES
    return envelope[:head_bytes], envelope[head_bytes:body], envelope[body:]
