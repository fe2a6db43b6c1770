"""Requests until a result or a refund."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.contracts.abi import Address
from tests.contracts.cast import CANCEL_DELAY, GWEI, MAX_CALLBACK_GAS, MAX_FEE, MAX_ID, MAX_QUORUM
from tests.contracts.model.hashes import commitment_of, params_hash
from tests.contracts.model.outcome import ANY_NUMBER, OneOf, Refused, Tx, refuse_if_any
from tests.contracts.model.values import (
    Delivery,
    Params,
    Request,
    RequestStatus,
    Skip,
)

if TYPE_CHECKING:
    from tests.contracts.model.world import Model

Errors = list[tuple[Any, ...]]


class Requests:
    def __init__(self, model: Model, next_id: int) -> None:
        self._model = model
        self.next_id = next_id
        self.paused = False
        self.all: dict[int, Request] = {}

    def status(self, id_: int, now: int) -> RequestStatus:
        request = self.all.get(id_)
        if request is None:
            return RequestStatus.UNKNOWN
        if request.settled:
            return RequestStatus.SETTLED
        return RequestStatus.PENDING if now <= request.deadline else RequestStatus.EXPIRED

    def submit(self, tx: Tx, params: Params) -> int:
        return self.submit_many(tx, [params], [tx.value])

    def submit_many(self, tx: Tx, list_: list[Params], fees: list[int]) -> int:
        errors: Errors = [("RequestsPaused",)] if self.paused else []
        if len(list_) != len(fees):
            errors.append(("LengthMismatch", len(list_), len(fees)))
        if sum(fees) != tx.value:
            errors.append(("FeeSumMismatch", tx.value, sum(fees)))
        for params, fee in zip(list_, fees, strict=False):
            errors += _fee_errors(fee, fee) + self._params_errors(tx, params)
        if self.next_id + len(list_) - 1 > MAX_ID:
            errors.append(("Panic", ANY_NUMBER))
        refuse_if_any(errors)
        first = self.next_id
        for params, fee in zip(list_, fees, strict=True):
            self._add(tx.sender, params, fee)
        return first

    def _add(self, requester: Address, params: Params, fee: int) -> None:
        id_, hashed = self.next_id, params_hash(params)
        commitment = commitment_of(self._model.at["requests"], id_, requester, hashed)
        terms = self._model.terms.for_request(params.model_id)
        request = Request(id_, requester, params, hashed, commitment, fee, params.deadline, terms)
        self.all[id_] = request
        self.next_id += 1
        limits = (
            params.max_tokens
            | params.memory_mb << 32
            | params.callback_gas_limit << 64
            | params.input_kind << 96
        )
        self._model.emit(
            *("requests", "InferenceRequested", id_, requester, params.model_id),
            *(record_word(request), limits, params.input),
        )

    def _params_errors(self, tx: Tx, params: Params) -> Errors:
        errors: Errors = []
        if params.delivery > Delivery.CALLBACK or params.input_kind > 1:
            errors.append(("Empty",))
        if params.deadline <= tx.now:
            errors.append(("DeadlineNotInFuture", params.deadline, tx.now))
        least = max(1, self._model.terms.current(params.model_id).min_quorum)
        if not least <= params.quorum <= MAX_QUORUM:
            at_least = OneOf((1, least))
            errors.append(("QuorumOutOfRange", params.quorum, at_least, MAX_QUORUM))
        callback = params.delivery == Delivery.CALLBACK
        most = MAX_CALLBACK_GAS if callback else 0
        none = callback and not params.callback_gas_limit
        if none or params.callback_gas_limit > most:
            errors.append(("CallbackGasOutOfRange", params.callback_gas_limit, most))
        if callback and not self._model.has_code(tx.sender):
            errors.append(("CallbackNeedsCode", tx.sender))
        return errors

    def raise_fee(self, tx: Tx, id_: int) -> None:
        pending = self.status(id_, tx.now) == RequestStatus.PENDING
        errors: Errors = [] if pending else [("NotPending", id_)]
        errors += _fee_errors(tx.value, tx.value + (self.all[id_].fee if pending else 0))
        refuse_if_any(errors)
        request = self.all[id_]
        self.all[id_] = replace(request, fee=request.fee + tx.value)
        self._model.emit("requests", "FeeRaised", id_, request.fee + tx.value)

    def request_cancel(self, tx: Tx, id_: int, params: bytes) -> None:
        request = self.all.get(id_)
        if request is None or self.status(id_, tx.now) != RequestStatus.PENDING:
            raise Refused([("NotPending", id_)])
        opens = commitment_of(self._model.at["requests"], id_, tx.sender, params)
        refuse_if_any([] if opens == request.commitment else [("CommitmentMismatch", id_)])
        deadline = min(request.deadline, tx.now + CANCEL_DELAY)
        self.all[id_] = replace(request, deadline=deadline)
        self._model.emit("requests", "CancelRequested", id_, deadline)

    def refund(self, tx: Tx, claims: list[tuple[int, Address, bytes]]) -> int:
        refunded = 0
        for id_, requester, params in claims:
            reasons = self._not_refundable(tx.now, id_, requester, params)
            if reasons:
                self._model.emit("requests", "RefundSkipped", id_, OneOf(tuple(reasons)))
                continue
            request = self.all[id_]
            self.all[id_] = replace(request, refunded=True)
            self._model.credits.add(requester, request.fee)
            self._model.emit("requests", "RequestRefunded", id_, requester, request.fee)
            refunded += 1
        return refunded

    def _not_refundable(self, now: int, id_: int, requester: Address, params: bytes) -> set[Skip]:
        request = self.all.get(id_)
        if request is None:
            return {Skip.UNKNOWN_ID}
        reasons = set()
        if request.settled:
            reasons.add(Skip.ALREADY_SETTLED)
        elif now <= request.deadline:
            reasons.add(Skip.NOT_EXPIRED)
        opens = commitment_of(self._model.at["requests"], id_, requester, params)
        if opens != request.commitment:
            reasons.add(Skip.COMMITMENT_MISMATCH)
        return reasons

    def set_paused(self, tx: Tx, paused: bool) -> None:
        refuse_if_any(self._model.owned.not_owner(tx))
        self.paused = paused
        self._model.emit("requests", "PausedSet", paused)


def record_word(request: Request) -> int:
    """The word that holds a pending request."""
    params = request.params
    return (
        request.fee // GWEI
        | request.deadline << 48
        | int.from_bytes(request.commitment, "big") << 88
        | params.delivery << 248
        | params.quorum << 250
        | int(params.batchable) << 254
        | int(request.under_terms) << 255
    )


def _fee_errors(value: int, total: int) -> Errors:
    errors: Errors = []
    if value == 0:
        errors.append(("FeeZero",))
    if value % GWEI:
        errors.append(("FeeNotWholeGwei", value))
    if total > MAX_FEE:
        errors.append(("FeeTooLarge", OneOf((value, total))))
    return errors
