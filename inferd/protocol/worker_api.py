"""What operators and worker agents say to each other over HTTP: the bodies, version 1.

JSON. Short bytes are 0x and hex, outputs and inputs base64, request ids decimal strings. Fields
that are not known are passed over, so that both ends can be of different releases.

  POST   /v1/jobs          JobRequest    200 JobDone, 202 JobRunning
  GET    /v1/jobs/{id}?wait_ms=N         the same
  DELETE /v1/jobs/{id}                   200 JobGone: cancels it, or acknowledges its answer
  POST   /v1/sign          SignRequest   200 SignAnswer
  GET    /v1/health                      200 SignedHeartbeat

Any other status has an ErrorBody. How requests and heartbeats are signed:
inferd.protocol.worker_api_signing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import msgspec

from indexer.types import Address, Hash32
from inferd.protocol.request import Commitment
from inferd.protocol.result import ITEM_BYTES, ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import BadSignature, CompactSignature, group_digest, recover

JOBS = "/v1/jobs"
SIGN = "/v1/sign"
HEALTH = "/v1/health"

PULL = "pull:"
"""In the place of a URL, the endpoint of a worker that takes its requests from a broker which it
and its operator agreed on."""

MAX_WAIT_MS = 60_000
"""The longest that an answer can be waited for in one request."""
MAX_SIGNED_ITEMS = 400
"""In one group, at most: what fits a transaction."""
MAX_MODEL_CHARACTERS = 200
MAX_HEARTBEAT_MODELS = 64
MAX_ENCRYPTION_KEYS = 8
"""Of one worker, at most."""
MAX_MANIFEST_BYTES = 16 * 1024
"""Of a manifest as it is sent: what is larger is not read at all."""
_MAX_ID = 2**63 - 1

_T = TypeVar("_T")

_Hex20 = Annotated[str, msgspec.Meta(pattern=r"\A0x[0-9a-f]{40}\Z")]
_Hex32 = Annotated[str, msgspec.Meta(pattern=r"\A0x[0-9a-f]{64}\Z")]
_Hex64 = Annotated[str, msgspec.Meta(pattern=r"\A0x[0-9a-f]{128}\Z")]
_Decimal = Annotated[str, msgspec.Meta(pattern=r"\A(0|[1-9][0-9]{0,18})\Z")]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Model = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_MODEL_CHARACTERS)]
_JOB_ID = re.compile(r"(0|[1-9][0-9]{0,18})-([0-9a-f]{40})-(0|[1-9][0-9]{0,9})", re.ASCII)


class BadMessage(ValueError):
    """The bytes are no message of this API. The text holds nothing of an input or output."""


class BadAnswer(ValueError):
    """The worker's answer is not what it says it is."""


class ErrorCode(StrEnum):
    """Why there is no answer. `STATUS` has the HTTP status of each."""

    BAD_INPUT = "bad_input"
    """No worker can compute this: the request itself is at fault."""
    BUSY = "busy"
    """Slots and queue are full, or the agent is stopping; Retry-After says when to ask again."""
    FAILED = "failed"
    """This worker could not do it; another one might."""
    UNAUTHORISED = "unauthorised"
    """The request is not signed as it must be, by an operator whom the worker trusts."""
    TOO_LARGE = "too_large"
    """The body is larger than the worker takes."""
    RATE = "rate"
    """The operator asks more often than the worker allows."""
    UNKNOWN_JOB = "unknown_job"
    """No such job was asked for, or it was cancelled or acknowledged."""
    CONFLICT = "conflict"
    """The same job was asked with another content."""
    REFUSED_TO_SIGN = "refused_to_sign"
    """The group holds an item that this worker has not signed itself."""
    BAD_REQUEST = "bad_request"
    """The message cannot be read, or there is nothing at its path."""


STATUS = {
    ErrorCode.BAD_INPUT: 422,
    ErrorCode.BUSY: 503,
    ErrorCode.FAILED: 500,
    ErrorCode.UNAUTHORISED: 401,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.RATE: 429,
    ErrorCode.UNKNOWN_JOB: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.REFUSED_TO_SIGN: 409,
    ErrorCode.BAD_REQUEST: 400,
}
"""The HTTP status of each."""


@dataclass(frozen=True, slots=True, order=True)
class JobId:
    """One attempt at one request, on one branch of the chain."""

    request_id: int
    commitment: Commitment
    attempt: int

    def __str__(self) -> str:
        return f"{self.request_id}-{self.commitment.hex()}-{self.attempt}"

    @property
    def path(self) -> str:
        """Where the job is asked for."""
        return f"{JOBS}/{self}"

    @classmethod
    def parse(cls, text: str) -> JobId:
        """The inverse of `str`. Raises BadMessage."""
        found = _JOB_ID.fullmatch(text)
        if found is None or int(found[1]) > _MAX_ID or int(found[3]) >= 2**32:
            raise BadMessage("a job's id is REQUEST-COMMITMENT-ATTEMPT")
        return cls(int(found[1]), Commitment(bytes.fromhex(found[2])), int(found[3]))


class JobRequest(msgspec.Struct, frozen=True):
    """Compute this."""

    request_id: _Decimal
    commitment: _Hex20
    attempt: _Count
    """Counts the operator's leases on the request: another attempt is another job."""
    model: _Model
    """Its name, not its hash."""
    input: bytes
    max_tokens: _Count
    """0 leaves the length to the worker."""
    deadline_s: _Time
    """Seconds since the epoch after which the chain takes no result."""
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0
    """How long to wait for the answer before "running" is said."""
    requester: _Hex20 = "0x" + "00" * 20
    """Who asked on chain, to whom a private input is tied."""

    def __post_init__(self) -> None:
        if int(self.request_id) > _MAX_ID:
            raise ValueError("request_id is above 2^63 - 1")

    @property
    def id(self) -> JobId:
        return JobId(int(self.request_id), Commitment(of_hex(self.commitment)), self.attempt)

    def __repr__(self) -> str:
        return f"JobRequest({self.id}, {len(self.input)} bytes)"


class JobDone(msgspec.Struct, frozen=True, tag_field="state", tag="done"):
    """The worker's answer. It is kept until it is acknowledged."""

    digest: _Hex32
    """keccak256 of the output."""
    output: bytes
    media_type: str
    manifest: dict[str, Any]
    """How it was made."""
    signature: _Hex64
    """Over a group of this one item."""
    compute_ms: _Time

    def __repr__(self) -> str:
        return f"JobDone({self.digest}, {len(self.output)} bytes)"


class _Received(JobDone, frozen=True, tag_field="state", tag="done"):
    """JobDone as it came: millions of small values in the manifest would take seconds to make."""

    manifest: msgspec.Raw  # type: ignore[assignment]


class JobRunning(msgspec.Struct, frozen=True, tag_field="state", tag="running"):
    """Ask again."""


JobAnswer = JobDone | JobRunning


class JobGone(msgspec.Struct, frozen=True, tag_field="state", tag="gone"):
    """Cancelled, or acknowledged; also where there was no such job."""


class SignRequest(msgspec.Struct, frozen=True):
    """Sign these as one group."""

    items: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_ITEMS * ITEM_BYTES)]
    """Packed."""


class SignAnswer(msgspec.Struct, frozen=True):
    """The group's signature."""

    signature: _Hex64


class ErrorBody(msgspec.Struct, frozen=True):
    """What any status but 200 and 202 comes with."""

    code: str
    """An ErrorCode; text, so that a later release's can be read."""
    message: str


class ModelHealth(msgspec.Struct, frozen=True):
    """One model of a worker, now."""

    name: _Model
    loaded: bool
    load_ms: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    """How long loading took the last time; 0 before the first."""
    prior_ms: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    """The worker's guess at one request's duration."""
    tokens_per_s: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    """As measured at the start; 0 = unknown."""


class SignedKey(msgspec.Struct, frozen=True):
    """A public key of X25519 that inputs may be encrypted to, and the worker's word that it is its
    own: over EIP-712 `EncryptionKey(bytes32 key)` in the domain of InferenceRequests."""

    key: _Hex32
    signature: _Hex64


class Heartbeat(msgspec.Struct, frozen=True):
    """What a worker says of itself."""

    at_ms: _Time
    """The worker's clock, milliseconds since the epoch."""
    nonce: _Hex32
    """Of the request that this answers."""
    slots: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
    running: _Count
    """Jobs that are computed."""
    queued: _Count
    """Jobs that wait for a slot."""
    free_memory_mb: _Time
    models: Annotated[list[ModelHealth], msgspec.Meta(max_length=MAX_HEARTBEAT_MODELS)]
    version: Annotated[str, msgspec.Meta(max_length=100)]
    """Release of the agent."""
    stopping: bool = False
    """True once it takes no new jobs."""
    encryption_keys: Annotated[list[SignedKey], msgspec.Meta(max_length=MAX_ENCRYPTION_KEYS)] = []
    """For private inputs, the newest first; empty where it computes none."""


class SignedHeartbeat(msgspec.Struct, frozen=True):
    """The heartbeat's JSON as it was signed, and the signature."""

    heartbeat: bytes
    signature: _Hex64


def encode(message: msgspec.Struct) -> bytes:
    """The message's bytes."""
    return msgspec.json.encode(message)


def decode(body: bytes, kind: type[_T]) -> _T:
    """Raises BadMessage, whose text quotes no value."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(_without_values(str(error))) from None


def decode_answer(body: bytes) -> JobAnswer:
    """The body of a 200 or 202 about a job. Raises BadMessage."""
    read: _Received | JobRunning = decode(body, _Received | JobRunning)  # type: ignore[arg-type]
    if isinstance(read, JobRunning):
        return read
    if len(read.manifest) > MAX_MANIFEST_BYTES:
        raise BadMessage(f"the manifest has more than {MAX_MANIFEST_BYTES} bytes")
    manifest = decode(read.manifest, dict[str, Any])
    return JobDone(**{**msgspec.structs.asdict(read), "manifest": manifest})


def of_hex(text: str) -> bytes:
    """Bytes of 0x and hex digits. Raises ValueError for anything else."""
    if not text.startswith("0x"):
        raise ValueError("it does not start with 0x")
    return bytes.fromhex(text[2:])


def as_hex(value: bytes) -> str:
    """The inverse of `of_hex`."""
    return "0x" + value.hex()


def signed_item(
    done: JobDone, job: JobId, worker: Address, results_domain: Hash32
) -> tuple[ResultItem, CompactSignature]:
    """What the worker put its name to in `done`, checked: digest against output, signature against
    the worker. `results_domain` is that of the deployment's InferenceResults. Raises BadAnswer.
    """
    digest = Hash32(of_hex(done.digest))
    if digest_of(done.output) != digest:
        raise BadAnswer("the digest is not the output's")
    item = ResultItem(job.request_id, job.commitment, digest)
    signature = CompactSignature(of_hex(done.signature))
    try:
        signer = recover(group_digest(results_domain, pack_items([item])), signature)
    except BadSignature:
        raise BadAnswer("the signature is none") from None
    if signer != worker:
        raise BadAnswer("the signature is another key's")
    return item, signature


def _without_values(text: str) -> str:
    """msgspec quotes values of enumerations and tags only, and those of strangers may be long."""
    return text if len(text) <= 200 else text[:200] + "…"
