"""Who asks a worker agent, and that heartbeats and answers are its own: EIP-712, and the headers'
forms.

  EIP712Domain   name "inferd worker", version "1", chainId, verifyingContract = InferenceResults
  OperatorRequest(string method,string target,bytes32 bodyHash,address worker,bytes32 nonce,
                  uint64 expiresAt)
  Heartbeat(bytes32 nonce,uint64 atMs,bytes32 bodyHash)
  Answer(bytes32 nonce,bytes32 bodyHash)

The domain's name differs from that of results, so no such signature is ever one over results.

  Authorization: Inferd operator=0x..,body=0x..,nonce=0x..,expires=SECONDS,signature=0x..

`body` is keccak256 of the request's body, also of an empty one: with it the signature can be
judged before a byte of the body is read. `target` is path and query as they follow the worker's
endpoint, from "/v1/" on, so that a reverse proxy may put a prefix before it.

  Inferd-Signature: 0x..

is an answer's header: the worker's word that all of the body is its answer to the request with this
nonce, and nothing of it was put there on the way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from indexer.types import Address, Hash32
from inferd.protocol.typed_data import (
    BadSignature,
    CompactSignature,
    DigestSigner,
    compact,
    domain_separator,
    recover,
    typed_digest,
)
from inferd.protocol.worker_api import (
    BadMessage,
    Heartbeat,
    SignedHeartbeat,
    as_hex,
    decode,
    of_hex,
)
from inferd.protocol.worker_api import encode as as_json

_REQUEST_TYPEHASH = keccak(
    text="OperatorRequest(string method,string target,bytes32 bodyHash,address worker,"
    "bytes32 nonce,uint64 expiresAt)"
)
_HEARTBEAT_TYPEHASH = keccak(text="Heartbeat(bytes32 nonce,uint64 atMs,bytes32 bodyHash)")
_ANSWER_TYPEHASH = keccak(text="Answer(bytes32 nonce,bytes32 bodyHash)")
ANSWER_HEADER = "Inferd-Signature"
_ANSWER_SIGNATURE = re.compile(r"0x[0-9a-f]{128}", re.ASCII)
_HEADER = re.compile(
    r"Inferd operator=0x([0-9a-f]{40}), ?body=0x([0-9a-f]{64}), ?nonce=0x([0-9a-f]{64}), ?"
    r"expires=(0|[1-9][0-9]{0,18}), ?signature=0x([0-9a-f]{128}(?:[0-9a-f]{2})?)",
    re.ASCII,
)
_NO_BODY = keccak(b"")


class BadCredentials(ValueError):
    """The Authorization header has another form, or its signature is not the operator's."""


class BadHeartbeat(ValueError):
    """It is not that worker's, or not the answer to that request."""


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """What an operator signs of a request."""

    method: str
    target: str
    body_hash: Hash32
    worker: Address
    nonce: Hash32
    """Random, never used again."""
    expires_at_s: int
    """Seconds since the epoch from which on the worker refuses it."""

    def digest(self, domain: Hash32) -> Hash32:
        """What is signed."""
        encoded = encode(
            ("bytes32", "bytes32", "bytes32", "bytes32", "address", "bytes32", "uint64"),
            (
                _REQUEST_TYPEHASH,
                keccak(text=self.method),
                keccak(text=self.target),
                self.body_hash,
                self.worker,
                self.nonce,
                self.expires_at_s,
            ),
        )
        return typed_digest(domain, keccak(encoded))


@dataclass(frozen=True, slots=True)
class Credentials:
    """An Authorization header, read. Nothing in it is true until `signed_by` says so."""

    operator: Address
    body_hash: Hash32
    nonce: Hash32
    expires_at_s: int
    signature: CompactSignature

    def request(self, method: str, target: str, worker: Address) -> OperatorRequest:
        """What must have been signed."""
        return OperatorRequest(
            method, target, self.body_hash, worker, self.nonce, self.expires_at_s
        )


def worker_domain(chain_id: int, results: Address) -> Hash32:
    """The EIP-712 domain of this API; `results` is the deployment's InferenceResults."""
    return domain_separator(chain_id, results, name="inferd worker")


def body_hash(body: bytes) -> Hash32:
    """keccak256 of the body's bytes as they are sent."""
    return Hash32(keccak(body)) if body else Hash32(_NO_BODY)


def authorization(request: OperatorRequest, operator: Address, signature: bytes) -> str:
    """The header's value. Raises BadSignature where it is none of 64 or 65 bytes."""
    return (
        f"Inferd operator={as_hex(operator)},body={as_hex(request.body_hash)},"
        f"nonce={as_hex(request.nonce)},expires={request.expires_at_s},"
        f"signature={as_hex(compact(signature))}"
    )


def parse_authorization(header: str) -> Credentials:
    """The inverse of `authorization`. Raises BadCredentials."""
    found = _HEADER.fullmatch(header)
    if found is None or int(found[4]) >= 2**63:
        raise BadCredentials("the Authorization header has another form")
    try:
        signature = compact(bytes.fromhex(found[5]))
    except BadSignature as error:
        raise BadCredentials(str(error)) from None
    return Credentials(
        operator=Address(bytes.fromhex(found[1])),
        body_hash=Hash32(bytes.fromhex(found[2])),
        nonce=Hash32(bytes.fromhex(found[3])),
        expires_at_s=int(found[4]),
        signature=signature,
    )


def check_signature(
    credentials: Credentials, method: str, target: str, worker: Address, domain: Hash32
) -> None:
    """That the operator named in the header signed this request. Raises BadCredentials."""
    try:
        signer = recover(
            credentials.request(method, target, worker).digest(domain), credentials.signature
        )
    except (BadSignature, UnicodeEncodeError):
        raise BadCredentials("the signature is none") from None
    if signer != credentials.operator:
        raise BadCredentials("the signature is another key's, or of another request")


def heartbeat_digest(domain: Hash32, nonce: Hash32, at_ms: int, hash_of_body: Hash32) -> Hash32:
    """What a worker signs of its heartbeat."""
    encoded = encode(
        ("bytes32", "bytes32", "uint64", "bytes32"),
        (_HEARTBEAT_TYPEHASH, nonce, at_ms, hash_of_body),
    )
    return typed_digest(domain, keccak(encoded))


def sign_heartbeat(signer: DigestSigner, domain: Hash32, heartbeat: Heartbeat) -> SignedHeartbeat:
    """The heartbeat as it is sent."""
    body = as_json(heartbeat)
    nonce = Hash32(of_hex(heartbeat.nonce))
    digest = heartbeat_digest(domain, nonce, heartbeat.at_ms, body_hash(body))
    return SignedHeartbeat(body, as_hex(signer.sign(digest)))


def checked_heartbeat(
    signed: SignedHeartbeat, *, nonce: Hash32, worker: Address, domain: Hash32
) -> Heartbeat:
    """What the worker says, where it is the answer to the request with `nonce`.

    Raises BadHeartbeat.
    """
    try:
        heartbeat = decode(signed.heartbeat, Heartbeat)
        digest = heartbeat_digest(domain, nonce, heartbeat.at_ms, body_hash(signed.heartbeat))
        signer = recover(digest, CompactSignature(of_hex(signed.signature)))
    except (BadMessage, BadSignature, ValueError) as error:
        raise BadHeartbeat(str(error)) from None
    if signer != worker:
        raise BadHeartbeat("it is signed by another key, or answers another request")
    if of_hex(heartbeat.nonce) != nonce:
        raise BadHeartbeat("it names another request")
    return heartbeat


def answer_signature(signer: DigestSigner, domain: Hash32, nonce: Hash32, body: bytes) -> str:
    """The value of ANSWER_HEADER, for the answer to the request with `nonce`."""
    return as_hex(signer.sign(_answer_digest(domain, nonce, body)))


def is_vouched_for(
    header: str, body: bytes, *, nonce: Hash32, worker: Address, domain: Hash32
) -> bool:
    """Whether the worker signed that it answers the request with `nonce` by just this body."""
    if not _ANSWER_SIGNATURE.fullmatch(header):
        return False
    try:
        signer = recover(_answer_digest(domain, nonce, body), CompactSignature(of_hex(header)))
    except BadSignature:
        return False
    return signer == worker


def _answer_digest(domain: Hash32, nonce: Hash32, body: bytes) -> Hash32:
    return typed_digest(domain, keccak(_ANSWER_TYPEHASH + nonce + body_hash(body)))
