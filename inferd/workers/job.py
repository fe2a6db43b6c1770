"""What a worker is given, what it gives back, and how it says no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from indexer.types import Address, Hash32
from inferd.protocol.private import is_private
from inferd.protocol.request import Commitment, ModelId
from inferd.protocol.result import ResultItem
from inferd.protocol.typed_data import CompactSignature
from scheduler.model import RequestKey

NOBODY = Address(bytes(20))


@dataclass(frozen=True, slots=True)
class Job:
    """One request, as a worker sees it."""

    request_id: int
    commitment: Commitment
    model_id: ModelId
    model: str
    """The model's name, of which `model_id` is the keccak256."""
    input: bytes = field(repr=False)
    max_tokens: int
    """0 leaves the length to the back end."""
    deadline_s: int
    """Seconds since the epoch after which the chain takes no result."""
    attempt: int = 1
    """Counts the leases on the request: to a worker elsewhere another attempt is another job."""
    requester: Address = NOBODY
    """Who asked, to whom a private input is tied."""
    quorum: int = 1
    """How many workers must give the same answer."""

    @property
    def key(self) -> RequestKey:
        return RequestKey(self.request_id, self.commitment)

    @property
    def is_private(self) -> bool:
        """Whether its input is encrypted, and its output will be."""
        return is_private(self.input)

    @property
    def seed(self) -> int:
        """For samplers: 31 bits of the commitment, so that a second run draws the same."""
        return int.from_bytes(self.commitment[:4], "big") & 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Completion:
    """What a back end made of a job."""

    output: bytes = field(repr=False)
    media_type: str
    manifest: dict[str, Any]
    """How it was made (model, back end, sampling, token counts): JSON without NUL characters."""


@dataclass(frozen=True, slots=True)
class SignedResult:
    """A worker's answer. It may leave the process only after its row is committed."""

    key: RequestKey
    worker: Address
    digest: Hash32
    output: bytes = field(repr=False)
    media_type: str
    manifest: Mapping[str, Any]
    signature: CompactSignature
    """Over a group of this one item."""
    compute_ms: int

    @property
    def item(self) -> ResultItem:
        return ResultItem(self.key.id, Commitment(self.key.commitment), self.digest)


@dataclass(frozen=True, slots=True)
class Spoken:
    """A result of which the output is not kept any more. The worker's word stands."""

    digest: Hash32
    signature: CompactSignature


class JobError(Exception):
    """A job that gave no result. `reason` is for the operator and holds nothing of the input."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WorkerFailed(JobError):
    """The worker could not do it; another one might."""


class WorkerLied(WorkerFailed):
    """What the worker answered, and signed as its answer, is not what it says it is: digest,
    signature or manifest."""

    def __init__(self, reason: str, *, signed: SignedResult | None = None) -> None:
        """`signed` is what it put its name to all the same, where its signature holds."""
        super().__init__(reason)
        self.signed = signed


class WorkerBusy(JobError):
    """The worker has no free slot. Not a failure: its reputation stays as it is."""

    def __init__(self, reason: str, *, retry_after_s: float | None = None) -> None:
        """`retry_after_s`: when another try is worth it, where that is known."""
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class BadInput(JobError):
    """No worker can ever compute this: the request itself is at fault, and says so each time."""


class Declined(JobError):
    """A worker that may not be believed says that the request itself is at fault, or its answer is
    larger than this node takes. It counts as a try of the request, and not against the worker; the
    request goes to others."""


class RefusedToSign(Exception):
    """A group holds an item that this worker has not computed and signed itself."""
