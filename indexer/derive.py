"""Logs in chain order -> what they add up to. Pure: the same logs always give the same rows.

Forward and after a reorganisation the rows of every touched request and worker are folded anew
from all of its canonical logs, so no sequence of reorganisations can leave a trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

import msgspec
from msgspec.structs import replace

from indexer import events as ev
from indexer.events import Event
from indexer.rpc.types import RawLog
from indexer.types import Address, Hash32, Wei

REQUEST_KINDS: Final = tuple(kind.__name__ for kind in get_args(ev.RequestEvent))
"""Kinds of logs that `fold_request` reads."""
WORKER_KINDS: Final = tuple(kind.__name__ for kind in get_args(ev.WorkerEvent))
"""Kinds of logs that `fold_worker` reads."""

_NAME_A_REQUEST: Final = frozenset(
    get_args(ev.RequestEvent) + get_args(ev.SkipEvent) + get_args(ev.DisputeEvent)
)
_NAME_A_WORKER: Final = frozenset(get_args(ev.WorkerEvent))
_MAX_STORED_ID = 2**63 - 1


class LocatedEvent(msgspec.Struct, frozen=True, gc=False):
    """A decoded log and where it stands in the chain."""

    log: RawLog
    event: Event
    timestamp_s: int
    """Of its block."""


class RequestRow(msgspec.Struct, frozen=True, gc=False):
    """A row of chain.request; the fields are its columns."""

    id: int
    commitment: bytes
    requester: Address
    model_id: Hash32
    input_kind: int
    input: bytes
    max_tokens: int
    memory_mb: int
    callback_gas_limit: int
    quorum: int
    batchable: bool
    delivery: int
    under_terms: bool
    fee_wei: Wei
    deadline_s: int
    submitted_deadline_s: int
    cancel_requested: bool
    created_block: int
    created_block_hash: Hash32
    created_log_index: int
    created_tx_hash: Hash32
    created_at_s: int
    status: Literal["pending", "fulfilled", "refunded"] = "pending"
    digest: Hash32 | None = None
    worker: Address | None = None
    settled_block: int | None = None
    settled_tx_hash: Hash32 | None = None
    callback_delivered_block: int | None = None
    callback_failures: int = 0
    callback_failure: bytes | None = None


class WorkerRow(msgspec.Struct, frozen=True, gc=False):
    """A row of chain.worker; the fields are its columns."""

    signer: Address
    owner: Address
    models: tuple[Hash32, ...]
    endpoint: bytes
    slots: int
    memory_mb: int
    enabled: bool
    staked: bool
    stake_wei: Wei
    unbonding_wei: Wei
    registered_block: int


class PaymentRow(msgspec.Struct, frozen=True, gc=False):
    """A row of chain.payment; the fields are its columns."""

    block_hash: Hash32
    log_index: int
    block_number: int
    tx_hash: Hash32
    role: Literal["worker", "poster"]
    account: Address
    worker: Address | None
    results: int | None
    amount_wei: Wei


def request_of(event: Event) -> int | None:
    """The request an event says something of, where the id is one that a request can have."""
    if type(event) not in _NAME_A_REQUEST:
        return None
    request_id: int = event.request_id  # type: ignore[union-attr]  # all of those have one
    return request_id if request_id <= _MAX_STORED_ID else None


def worker_of(event: Event) -> Address | None:
    """The worker an event changes. Not who earned a payment: a fold reads all that this names."""
    return event.signer if type(event) in _NAME_A_WORKER else None  # type: ignore[union-attr]


def fold_request(located: Iterable[LocatedEvent]) -> RequestRow | None:
    """One request's logs in chain order; None where its creation is not among them."""
    row: RequestRow | None = None
    for item in located:
        if row is None:
            if isinstance(item.event, ev.InferenceRequested):
                row = _created(item.event, item)
        else:
            row = _request_after(row, item)
    return row


def fold_worker(located: Iterable[LocatedEvent]) -> WorkerRow | None:
    """One worker's logs in chain order; None where its registration is not among them."""
    row: WorkerRow | None = None
    for item in located:
        if row is None:
            if isinstance(item.event, ev.WorkerRegistered):
                row = _registered(item.event, item)
        else:
            row = _worker_after(row, item.event)
    return row


def payments(located: Iterable[LocatedEvent]) -> list[PaymentRow]:
    """The payments among logs in chain order; a poster is paid for a whole transaction or for
    a quorum's group, and its row names no worker."""
    rows: list[PaymentRow] = []
    for item in located:
        match item.event:
            case ev.WorkerPaid() as paid:
                rows.append(
                    _payment(item, "worker", paid.owner, paid.worker, paid.results, paid.amount_wei)
                )
            case ev.PosterPaid() as paid:
                rows.append(_payment(item, "poster", paid.poster, None, None, paid.amount_wei))
    return rows


def _created(event: ev.InferenceRequested, item: LocatedEvent) -> RequestRow:
    return RequestRow(
        id=event.request_id,
        commitment=event.commitment,
        requester=event.requester,
        model_id=event.model_id,
        input_kind=event.input_kind,
        input=event.input,
        max_tokens=event.max_tokens,
        memory_mb=event.memory_mb,
        callback_gas_limit=event.callback_gas_limit,
        quorum=event.quorum,
        batchable=event.batchable,
        delivery=event.delivery,
        under_terms=event.under_terms,
        fee_wei=event.fee_wei,
        deadline_s=event.deadline_s,
        submitted_deadline_s=event.deadline_s,
        cancel_requested=False,
        created_block=item.log.block_number,
        created_block_hash=item.log.block_hash,
        created_log_index=item.log.log_index,
        created_tx_hash=item.log.tx_hash,
        created_at_s=item.timestamp_s,
    )


def _request_after(row: RequestRow, item: LocatedEvent) -> RequestRow:
    match item.event:
        case ev.FeeRaised(fee_wei=fee_wei):
            return replace(row, fee_wei=fee_wei)
        case ev.CancelRequested(deadline_s=deadline_s):
            return replace(row, deadline_s=deadline_s, cancel_requested=True)
        case ev.InferenceFulfilled(worker=worker, digest=digest):
            return replace(
                row,
                status="fulfilled",
                digest=digest,
                worker=worker,
                settled_block=item.log.block_number,
                settled_tx_hash=item.log.tx_hash,
            )
        case ev.RequestRefunded():
            return replace(
                row,
                status="refunded",
                settled_block=item.log.block_number,
                settled_tx_hash=item.log.tx_hash,
            )
        case ev.CallbackDelivered():
            return replace(row, callback_delivered_block=item.log.block_number)
        case ev.CallbackFailed(reason=reason):
            return replace(
                row, callback_failures=row.callback_failures + 1, callback_failure=reason
            )
        case _:
            return row


def _registered(event: ev.WorkerRegistered, item: LocatedEvent) -> WorkerRow:
    return WorkerRow(
        signer=event.signer,
        owner=event.owner,
        models=event.models,
        endpoint=event.endpoint,
        slots=event.slots,
        memory_mb=event.memory_mb,
        enabled=True,
        staked=False,
        stake_wei=Wei(0),
        unbonding_wei=Wei(0),
        registered_block=item.log.block_number,
    )


def _worker_after(row: WorkerRow, event: Event) -> WorkerRow:
    match event:
        case ev.WorkerUpdated():
            return replace(
                row,
                owner=event.owner,
                models=event.models,
                endpoint=event.endpoint,
                slots=event.slots,
                memory_mb=event.memory_mb,
            )
        case ev.WorkerEnabled(enabled=enabled):
            return replace(row, enabled=enabled)
        case ev.WorkerStaked(staked=staked):
            return replace(row, staked=staked)
        case ev.Staked(staked_wei=staked_wei):
            return replace(row, stake_wei=staked_wei)
        case (
            ev.UnstakeStarted(staked_wei=staked_wei, unbonding_wei=unbonding_wei)
            | ev.Slashed(staked_wei=staked_wei, unbonding_wei=unbonding_wei)
        ):
            return replace(row, stake_wei=staked_wei, unbonding_wei=unbonding_wei)
        case ev.StakeWithdrawn():
            # The contract lets all that has finished unbonding leave at once.
            return replace(row, unbonding_wei=Wei(0))
        case _:
            return row


def _payment(
    item: LocatedEvent,
    role: Literal["worker", "poster"],
    account: Address,
    worker: Address | None,
    results: int | None,
    amount_wei: Wei,
) -> PaymentRow:
    return PaymentRow(
        block_hash=item.log.block_hash,
        log_index=item.log.log_index,
        block_number=item.log.block_number,
        tx_hash=item.log.tx_hash,
        role=role,
        account=account,
        worker=worker,
        results=results,
        amount_wei=amount_wei,
    )
