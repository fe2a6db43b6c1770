"""What the contracts' views must show: built from the model, or from logs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from tests.contracts.abi import NOBODY, Abi, Address, words
from tests.contracts.cast import GWEI
from tests.contracts.model.values import (
    NO_TERMS,
    Case,
    HoldStatus,
    Request,
    RequestStatus,
    Stake,
    Terms,
    Worker,
)

ALIAS = 2**64
"""Added to an id, it must not name the same request."""


@dataclass(frozen=True, slots=True)
class Record:
    """`RequestRecord`, in its order."""

    fee_gwei: int
    deadline: int
    commitment: bytes
    delivery: int
    quorum: int
    batchable: bool
    under_terms: bool


@dataclass(frozen=True, slots=True)
class Books:
    """The state of one deployment and its verifier."""

    next_id: int
    paused: bool
    owner: Address
    pending_owner: Address
    verifier_owner: Address
    pending_verifier_owner: Address
    arbiter: Address
    credits: dict[Address, int]
    workers: dict[Address, Worker]
    stakes: dict[Address, Stake]
    records: dict[int, Record]
    settled: set[int]
    stored: dict[int, bytes]
    owed: dict[int, tuple[bytes, bytes]]
    terms_of_model: dict[bytes, Terms]
    terms_of_request: dict[int, Terms]
    holds: dict[int, HoldStatus]
    enclaves: dict[tuple[bytes, Address], bool]


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom and what to ask about."""

    people: tuple[Address, ...]
    signers: tuple[Address, ...]
    keys: tuple[Address, ...]
    models: tuple[bytes, ...]
    requests: tuple[Request, ...]
    next_id: int
    now: int


View = tuple[str, str, tuple[Any, ...], bytes]
"""Role, function, arguments, and what it must return."""


def views(books: Books, asked: Asked) -> Iterator[View]:
    yield "requests", "nextId", (), words(books.next_id)
    yield "requests", "paused", (), words(books.paused)
    yield "requests", "owner", (), words(books.owner)
    yield "requests", "pendingOwner", (), words(books.pending_owner)
    yield "verifier", "owner", (), words(books.verifier_owner)
    yield "verifier", "pendingOwner", (), words(books.pending_verifier_owner)
    yield "disputes", "arbiter", (), words(books.arbiter)
    for who in asked.people:
        yield "requests", "credits", (who,), words(books.credits.get(who, 0))
    for model_id in asked.models:
        terms = books.terms_of_model.get(model_id, NO_TERMS)
        yield "requests", "termsOfModel", (model_id,), words(*terms)
        for key in asked.keys:
            trusted = books.enclaves.get((model_id, key), False)
            yield "verifier", "isEnclave", (model_id, key), words(trusted)
    for signer in asked.signers:
        yield from _worker_views(books, signer)
    for request in asked.requests:
        yield from _request_views(books, request, asked.now)
    for id_ in (0, asked.next_id, asked.next_id + 1, asked.next_id - 1 + ALIAS, 2**256 - 1):
        yield "requests", "statusOf", (id_,), words(RequestStatus.UNKNOWN)
        yield "requests", "recordOf", (id_,), words(*[0] * 7)
        yield "requests", "resultOf", (id_,), words(0, 0)
        yield "requests", "termsOfRequest", (id_,), words(*NO_TERMS)
        yield "disputes", "statusOf", (id_,), words(0)
        yield "requests", "owesCallback", (id_, bytes(20), bytes(32)), words(0)
    for index in {request.id >> 8 for request in asked.requests} | {asked.next_id >> 8}:
        bits = sum(1 << (id_ & 255) for id_ in books.settled if id_ >> 8 == index)
        if index < 2**55:
            yield "requests", "settledWord", (index,), words(bits)


def _worker_views(books: Books, signer: Address) -> Iterator[View]:
    worker = books.workers.get(signer)
    active = NOBODY
    shown = words(*[0] * 6)
    if worker is not None:
        info = keccak(encode(("bytes32[]", "string"), (worker.models, worker.endpoint)))
        flags = (worker.enabled, worker.staked)
        shown = words(worker.owner, *flags, worker.slots, worker.memory_mb, info)
        active = worker.owner if all(flags) else NOBODY
    yield "registry", "workerOf", (signer,), shown
    yield "registry", "activeOwner", (signer,), words(active)
    stake = books.stakes.get(signer, Stake())
    expected = (stake.staked, stake.unbonding, stake.withdrawable_at, stake.barred)
    yield "stakes", "stakeOf", (signer,), words(*expected)


def _request_views(books: Books, request: Request, now: int) -> Iterator[View]:
    id_ = request.id
    record = books.records.get(id_)
    if record is None:
        shown = words(*[0] * 7)
        status = RequestStatus.SETTLED if id_ in books.settled else RequestStatus.UNKNOWN
    else:
        shown = words(
            *(record.fee_gwei, record.deadline, record.commitment, record.delivery),
            *(record.quorum, record.batchable, record.under_terms),
        )
        in_time = now <= record.deadline
        status = RequestStatus.PENDING if in_time else RequestStatus.EXPIRED
    yield "requests", "recordOf", (id_,), shown
    yield "requests", "statusOf", (id_,), words(status)
    digest = books.stored.get(id_)
    yield "requests", "resultOf", (id_,), words(digest is not None, digest or bytes(32))
    said = request.digest or bytes(32)
    for asked in ((request.commitment, said), (request.commitment, keccak(said))):
        owed = books.owed.get(id_) == asked
        yield "requests", "owesCallback", (id_, *asked), words(owed)
    terms = books.terms_of_request.get(id_, NO_TERMS)
    yield "requests", "termsOfRequest", (id_,), words(*terms)
    yield "disputes", "statusOf", (id_,), words(books.holds.get(id_, HoldStatus.NONE))


def holds_of(cases: dict[int, Case]) -> dict[int, HoldStatus]:
    return {id_: case.status for id_, case in cases.items()}


def calldata(abis: dict[str, Abi]) -> Callable[[str, str, tuple[Any, ...]], bytes]:
    """The same views are asked for again and again."""

    @lru_cache(maxsize=50_000)
    def call(role: str, function: str, arguments: tuple[Any, ...]) -> bytes:
        return abis[role].call(function, arguments)

    return call


def record_of(request: Request) -> Record:
    params = request.params
    return Record(
        *(request.fee // GWEI, request.deadline, request.commitment, params.delivery),
        *(params.quorum, params.batchable, request.under_terms),
    )
