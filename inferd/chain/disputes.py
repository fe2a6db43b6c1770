"""Payments that are held back, and disputes over their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.decode import topic_of
from indexer.errors import OperatorError, RpcUnreachable, TemporaryError
from indexer.events import (
    DisputeLapsed,
    DisputeOpened,
    DisputeRuled,
    PaymentHeld,
    PaymentReleased,
)
from indexer.rpc import Rpc
from indexer.types import Address, Contracts, Hash32, Wei
from inferd.chain.admin import NotPermitted
from inferd.chain.connect import read_view
from inferd.chain.events import events_in, expect_events, id_topic, newest_event
from inferd.chain.requester import MAX_ID, read_request
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.hold import Hold, HoldStatus

_HELD = topic_of(
    "PaymentHeld(uint256,bytes20,bytes32,address[],address[],uint256,address,uint256,uint256,uint40)"
)
_OPENED = topic_of("DisputeOpened(uint256,address,uint40)")
_RULED = topic_of("DisputeRuled(uint256,bool,address,uint256)")
_LAPSED = topic_of("DisputeLapsed(uint256)")

E = TypeVar("E")


class NothingHeld(OperatorError):
    """No payment of this request is or was held back."""

    code: ClassVar[str] = "nothing_held"


class DisputeOver(OperatorError):
    """A held payment or a dispute is not, or no longer, where this can be done."""

    code: ClassVar[str] = "dispute_over"


class DisputeTooEarly(TemporaryError):
    """A time that must pass first has not passed."""

    code: ClassVar[str] = "dispute_too_early"


@dataclass(frozen=True, slots=True)
class Case:
    """A held payment and what became of it."""

    held: Hold
    status: HoldStatus
    opened: DisputeOpened | None
    ruled: DisputeRuled | None
    lapsed: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """A dispute that is on chain."""

    bond_wei: Wei
    ruling_until_s: int
    tx_hash: Hash32


@dataclass(frozen=True, slots=True)
class Ruled:
    """A ruling that is on chain."""

    upheld: bool
    slashed_wei: Wei
    tx_hash: Hash32


@dataclass(frozen=True, slots=True)
class Released:
    """Payments that went to workers' owners and posters."""

    request_ids: tuple[int, ...]
    tx_hash: Hash32


async def read_case(rpc: Rpc, contracts: Contracts, request_id: int) -> Case:
    """From the contract's status and its events. Raises NothingHeld."""
    held, status = await _read_hold(rpc, contracts, request_id)
    opened = ruled = lapsed = None
    if status in {HoldStatus.DISPUTED, HoldStatus.CLOSED}:
        opened = await _event(rpc, contracts, _OPENED, request_id, DisputeOpened)
    if status is HoldStatus.CLOSED and opened is not None:
        ruled = await _event(rpc, contracts, _RULED, request_id, DisputeRuled)
        lapsed = await _event(rpc, contracts, _LAPSED, request_id, DisputeLapsed)
    return Case(held, status, opened, ruled, lapsed is not None)


async def open_dispute(sender: Sender, contracts: Contracts, request_id: int) -> Opened:
    """Disputes a result, with its bond as stake.

    Raises NothingHeld, DisputeOver and what `Sender.send` raises.
    """
    held, status = await _read_hold(sender.rpc, contracts, request_id)
    _refuse_unless(status, HoldStatus.HELD, request_id)
    now_s = await _now_s(sender.rpc)
    if now_s > held.disputable_until_s:
        raise DisputeOver(
            f"request {request_id} could be disputed until {now_s - held.disputable_until_s} s ago",
            help_text=f"its payment is due: `inferd dispute release {request_id}`",
        )
    data = calls.open_dispute(held)
    receipt = await sender.send(contracts.disputes, data, value_wei=held.bond_wei)
    (event,) = expect_events(receipt, contracts, contracts.disputes, DisputeOpened)
    return Opened(held.bond_wei, event.ruling_until_s, receipt.tx_hash)


async def rule(sender: Sender, contracts: Contracts, request_id: int, *, upheld: bool) -> Ruled:
    """Rules on a dispute; `upheld` = the disputer was right. Only the arbiter, in time.

    Raises NothingHeld, DisputeOver, NotPermitted, RequestNotFound and what `Sender.send` raises.
    """
    case = await read_case(sender.rpc, contracts, request_id)
    _refuse_unless(case.status, HoldStatus.DISPUTED, request_id)
    await _require_arbiter(sender, contracts)
    now_s = await _now_s(sender.rpc)
    if case.opened is not None and now_s > case.opened.ruling_until_s:
        raise DisputeOver(
            f"the time for a ruling was over {now_s - case.opened.ruling_until_s} s ago",
            help_text=f"`inferd dispute close {request_id}` gives everybody back what is theirs",
        )
    request = await read_request(sender.rpc, contracts, request_id)
    data = calls.rule(
        case.held,
        upheld=upheld,
        requester=request.requester,
        hash_of_params=request.params_hash,
    )
    receipt = await sender.send(contracts.disputes, data)
    (event,) = expect_events(receipt, contracts, contracts.disputes, DisputeRuled)
    return Ruled(event.upheld, event.slashed_wei, receipt.tx_hash)


async def close_dispute(sender: Sender, contracts: Contracts, request_id: int) -> Hash32:
    """Ends a dispute on which nobody ruled in time; anyone may.

    Raises NothingHeld, DisputeOver, DisputeTooEarly and what `Sender.send` raises.
    """
    case = await read_case(sender.rpc, contracts, request_id)
    _refuse_unless(case.status, HoldStatus.DISPUTED, request_id)
    now_s = await _now_s(sender.rpc)
    if case.opened is not None and now_s <= case.opened.ruling_until_s:
        raise DisputeTooEarly(
            f"the arbiter can rule for {case.opened.ruling_until_s - now_s} s more",
            help_text="try again then, if there is no ruling",
        )
    receipt = await sender.send(contracts.disputes, calls.close_dispute(case.held))
    return receipt.tx_hash


async def release(sender: Sender, contracts: Contracts, request_ids: Sequence[int]) -> Released:
    """Pays what was not disputed in time to workers' owners and posters; anyone may.

    Raises NothingHeld, DisputeOver, DisputeTooEarly and what `Sender.send` raises.
    """
    holds = []
    now_s = await _now_s(sender.rpc)
    for request_id in request_ids:
        held, status = await _read_hold(sender.rpc, contracts, request_id)
        _refuse_unless(status, HoldStatus.HELD, request_id)
        if now_s <= held.disputable_until_s:
            raise DisputeTooEarly(
                f"request {request_id} can be disputed for {held.disputable_until_s - now_s} s"
                " more",
                help_text="try again then, or leave it out: nothing was sent",
            )
        holds.append(held)
    receipt = await sender.send(contracts.disputes, calls.release(holds))
    paid = events_in(receipt, contracts, contracts.disputes, PaymentReleased)
    return Released(tuple(event.request_id for event in paid), receipt.tx_hash)


async def _read_hold(rpc: Rpc, contracts: Contracts, request_id: int) -> tuple[Hold, HoldStatus]:
    status, event = HoldStatus.NONE, None
    if 0 <= request_id <= MAX_ID:
        (number,) = await read_view(rpc, contracts.disputes, "Disputes", "statusOf", [request_id])
        status = HoldStatus(number)
    if status is not HoldStatus.NONE:
        event = await _event(rpc, contracts, _HELD, request_id, PaymentHeld)
    if event is None:
        raise NothingHeld(
            f"no payment of request {request_id} is held back",
            help_text="only results of models with a dispute window are; look at the id, and at"
            f" `inferd why {request_id}`",
        )
    return Hold.from_event(event), status


async def _event(
    rpc: Rpc, contracts: Contracts, topic: bytes, request_id: int, kind: type[E]
) -> E | None:
    topics = (topic, id_topic(request_id))
    found = await newest_event(rpc, contracts, contracts.disputes, topics, kind)
    return None if found is None else found[0]


def _refuse_unless(status: HoldStatus, wanted: HoldStatus, request_id: int) -> None:
    if status is not wanted:
        raise DisputeOver(
            f"the payment of request {request_id} is {status.name.lower()},"
            f" not {wanted.name.lower()}",
            help_text=f"look at it with `inferd dispute show {request_id}`",
        )


async def _require_arbiter(sender: Sender, contracts: Contracts) -> None:
    (named,) = await read_view(sender.rpc, contracts.disputes, "Disputes", "arbiter")
    arbiter = Address(to_canonical_address(named))
    if arbiter != sender.address:
        raise NotPermitted(
            f"disputes are ruled on by {to_checksum_address(arbiter)},"
            f" not by {to_checksum_address(sender.address)}",
            help_text="name the account that has the arbiter's key with `--account`",
        )


async def _now_s(rpc: Rpc) -> int:
    head = await rpc.header("latest")
    if head is None:
        raise RpcUnreachable(
            f"{rpc.endpoint} has no newest block", help_text="wait until it has synced"
        )
    return head.timestamp_s
