"""What a requester does on chain: ask, cancel, look, and check a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, TypeVar

from eth_utils.address import to_checksum_address

from indexer.decode import topic_of
from indexer.errors import ExitCode, OperatorError, TemporaryError
from indexer.events import (
    CancelRequested,
    FeeRaised,
    InferenceFulfilled,
    InferenceRequested,
    RequestRefunded,
)
from indexer.rpc import RawLog, Receipt, Rpc, RpcMalformed
from indexer.types import WEI_PER_GWEI, Address, Contracts, Hash32, Wei
from inferd.chain.connect import read_view
from inferd.chain.events import expect_events, id_topic, newest_event
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.request import (
    Commitment,
    Delivery,
    InputKind,
    ModelId,
    RequestParams,
    commitment,
    params_hash,
)
from inferd.protocol.result import digest_of

MAX_ID = 2**63 - 1
"""Ids count up from 1, and the tables hold 63 bits."""
_REQUESTED = topic_of("InferenceRequested(uint256,address,bytes32,uint256,uint256,bytes)")
_FULFILLED = topic_of("InferenceFulfilled(uint256,address,bytes32)")

E = TypeVar("E")


class RequestNotFound(OperatorError):
    """No request has this id."""

    code: ClassVar[str] = "request_not_found"


class NotYourRequest(OperatorError):
    """Only who made a request can cancel it."""

    code: ClassVar[str] = "not_your_request"


class RequestClosed(OperatorError):
    """A request is settled, refunded or expired: too late for what was asked."""

    code: ClassVar[str] = "request_closed"


class NotSettled(TemporaryError):
    """A request has no result on chain yet."""

    code: ClassVar[str] = "not_settled"


class DigestMismatch(OperatorError):
    """An output is not the one whose digest is on chain."""

    code: ClassVar[str] = "digest_mismatch"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


class ChainStatus(IntEnum):
    """The contract's own word on a request."""

    UNKNOWN = 0
    PENDING = 1
    EXPIRED = 2
    SETTLED = 3
    """Fulfilled or refunded."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A request that is on chain."""

    request_id: int
    commitment: Commitment
    tx_hash: Hash32
    block_number: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A cancel request that is on chain: a result can still land until `deadline_s`."""

    request_id: int
    deadline_s: int
    tx_hash: Hash32
    block_number: int


@dataclass(frozen=True, slots=True)
class OnChainRequest:
    """A request as submitted, and what the contract holds of it now."""

    requester: Address
    params: RequestParams
    commitment: Commitment
    params_hash: Hash32
    tx_hash: Hash32
    block_number: int
    status: ChainStatus
    fee_wei: Wei
    """Now held."""
    deadline_s: int
    """Now in force."""


@dataclass(frozen=True, slots=True)
class CheckedResult:
    """A result whose bytes have the digest that the chain holds."""

    request_id: int
    digest: Hash32
    worker: Address
    tx_hash: Hash32
    block_number: int


async def submit(
    sender: Sender, contracts: Contracts, params: RequestParams, fee_wei: Wei
) -> Submitted:
    """Asks for one inference. Raises what `Sender.send` raises."""
    receipt = await sender.send(contracts.requests, calls.submit(params), value_wei=fee_wei)
    return _submitted(receipt, contracts, 1)[0]


async def submit_many(
    sender: Sender, contracts: Contracts, params: Sequence[RequestParams], fees_wei: Sequence[Wei]
) -> tuple[Submitted, ...]:
    """Asks for several in one transaction, in this order. Raises what `Sender.send` raises."""
    receipt = await sender.send(
        contracts.requests,
        calls.submit_many(params, fees_wei),
        value_wei=Wei(sum(fees_wei)),
    )
    return _submitted(receipt, contracts, len(params))


async def cancel(sender: Sender, contracts: Contracts, request_id: int) -> Cancelled:
    """Shortens the request's deadline to now + the deployment's cancel delay.

    Raises RequestNotFound, NotYourRequest, RequestClosed and what `Sender.send` raises.
    """
    request = await read_request(sender.rpc, contracts, request_id)
    if request.requester != sender.address:
        raise NotYourRequest(
            f"request {request_id} belongs to {to_checksum_address(request.requester)}",
            help_text="use that account's key as `requester`",
        )
    _refuse_unless(request, request_id, ChainStatus.PENDING)
    data = calls.request_cancel(request_id, request.params_hash)
    receipt = await sender.send(contracts.requests, data)
    (event,) = expect_events(receipt, contracts, contracts.requests, CancelRequested)
    return Cancelled(request_id, event.deadline_s, receipt.tx_hash, receipt.block_number)


async def raise_fee(
    sender: Sender, contracts: Contracts, request_id: int, added_wei: Wei
) -> tuple[Wei, Hash32]:
    """Adds to a pending request's fee; anyone may. Returns the fee then held, and the transaction.

    Raises RequestNotFound, RequestClosed and what `Sender.send` raises.
    """
    request = await read_request(sender.rpc, contracts, request_id)
    _refuse_unless(request, request_id, ChainStatus.PENDING)
    receipt = await sender.send(
        contracts.requests, calls.raise_fee(request_id), value_wei=added_wei
    )
    (event,) = expect_events(receipt, contracts, contracts.requests, FeeRaised)
    return event.fee_wei, receipt.tx_hash


async def refund(sender: Sender, contracts: Contracts, request_id: int) -> tuple[Wei, Hash32]:
    """Credits an expired request's fee to its requester; anyone may.

    Raises RequestNotFound, RequestClosed and what `Sender.send` raises.
    """
    request = await read_request(sender.rpc, contracts, request_id)
    _refuse_unless(request, request_id, ChainStatus.EXPIRED)
    claim = (request_id, request.requester, request.params_hash)
    receipt = await sender.send(contracts.requests, calls.refund([claim]))
    (event,) = expect_events(receipt, contracts, contracts.requests, RequestRefunded)
    return event.amount_wei, receipt.tx_hash


def _refuse_unless(request: OnChainRequest, request_id: int, wanted: ChainStatus) -> None:
    if request.status is not wanted:
        raise RequestClosed(
            f"request {request_id} is {request.status.name.lower()}, not {wanted.name.lower()}",
            help_text=f"look at it with `inferd why {request_id}`",
        )


async def read_request(rpc: Rpc, contracts: Contracts, request_id: int) -> OnChainRequest:
    """A request from its event and the contract's storage. Raises RequestNotFound."""
    status = await read_status(rpc, contracts, request_id)
    found = None
    if status is not ChainStatus.UNKNOWN:
        found = await _newest(rpc, contracts, _REQUESTED, request_id, InferenceRequested)
    if found is None:
        raise _not_found(request_id)
    event, log = found
    params = _params(event)
    hashed = params_hash(params)
    expected = commitment(
        contracts.chain_id, contracts.requests, request_id, event.requester, hashed
    )
    if event.commitment != expected:
        raise RpcMalformed(
            f"{rpc.endpoint} gave an event of request {request_id} that contradicts itself",
            help_text="use another endpoint",
        )
    (record,) = await read_view(
        rpc, contracts.requests, "InferenceRequests", "recordOf", [request_id]
    )
    return OnChainRequest(
        requester=event.requester,
        params=params,
        commitment=expected,
        params_hash=hashed,
        tx_hash=log.tx_hash,
        block_number=log.block_number,
        status=status,
        fee_wei=Wei(record[0] * WEI_PER_GWEI),
        deadline_s=record[1],
    )


async def read_status(rpc: Rpc, contracts: Contracts, request_id: int) -> ChainStatus:
    """The contract's word on an id; ids that cannot be are UNKNOWN."""
    if not 0 <= request_id <= MAX_ID:
        return ChainStatus.UNKNOWN
    (status,) = await read_view(
        rpc, contracts.requests, "InferenceRequests", "statusOf", [request_id]
    )
    return ChainStatus(status)


async def check_result(
    rpc: Rpc, contracts: Contracts, request_id: int, output: bytes
) -> CheckedResult:
    """Compares keccak256 of `output` with the digest in the chain's own event.

    Raises DigestMismatch and what `require_result` raises.
    """
    event, log = await require_result(rpc, contracts, request_id)
    digest = digest_of(output)
    if digest != event.digest:
        raise DigestMismatch(
            f"the output of request {request_id} has the digest 0x{digest.hex()}, and the chain"
            f" says 0x{event.digest.hex()}",
            help_text="do not use it; ask another node, and tell this one's operator",
        )
    return CheckedResult(request_id, digest, event.worker, log.tx_hash, log.block_number)


async def require_result(
    rpc: Rpc, contracts: Contracts, request_id: int
) -> tuple[InferenceFulfilled, RawLog]:
    """The event of the request's result.

    Raises NotSettled, RequestClosed (refunded or expired), RequestNotFound.
    """
    status = await read_status(rpc, contracts, request_id)
    if status is ChainStatus.UNKNOWN:
        raise _not_found(request_id)
    if status is ChainStatus.PENDING:
        raise NotSettled(
            f"request {request_id} has no result on chain yet",
            help_text=f"wait for it with `inferd watch {request_id}`",
        )
    found = None
    if status is ChainStatus.SETTLED:
        found = await _newest(rpc, contracts, _FULFILLED, request_id, InferenceFulfilled)
    if found is None:
        what = "was refunded" if status is ChainStatus.SETTLED else "expired without a result"
        raise RequestClosed(
            f"request {request_id} {what}", help_text="ask again, with a later deadline"
        )
    return found


async def _newest(
    rpc: Rpc, contracts: Contracts, topic: bytes, request_id: int, kind: type[E]
) -> tuple[E, RawLog] | None:
    topics = (topic, id_topic(request_id))
    return await newest_event(rpc, contracts, contracts.requests, topics, kind)


def _params(event: InferenceRequested) -> RequestParams:
    """As submitted: a raised fee or a cancel request changes neither these nor the commitment."""
    return RequestParams(
        model_id=ModelId(event.model_id),
        max_tokens=event.max_tokens,
        deadline_s=event.deadline_s,
        memory_mb=event.memory_mb,
        input=event.input,
        callback_gas_limit=event.callback_gas_limit,
        quorum=event.quorum,
        batchable=event.batchable,
        delivery=Delivery(event.delivery),
        input_kind=InputKind(event.input_kind),
    )


def _submitted(receipt: Receipt, contracts: Contracts, count: int) -> tuple[Submitted, ...]:
    return tuple(
        Submitted(
            event.request_id, Commitment(event.commitment), receipt.tx_hash, receipt.block_number
        )
        for event in expect_events(
            receipt, contracts, contracts.requests, InferenceRequested, count
        )
    )


def _not_found(request_id: int) -> RequestNotFound:
    return RequestNotFound(
        f"there is no request {request_id}",
        help_text="look at the id, and at `deployment_file`: ids count anew in each deployment",
    )
