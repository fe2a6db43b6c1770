"""Payments held back, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.contracts.abi import Address
from tests.contracts.cast import ARBITER, RULING_PERIOD, UNBONDING_DELAY
from tests.contracts.model.hashes import commitment_of
from tests.contracts.model.outcome import OneOf, Refused, Tx, refuse_if_any
from tests.contracts.model.settling import shared
from tests.contracts.model.values import Case, Hold, HoldSkip, HoldStatus

if TYPE_CHECKING:
    from tests.contracts.model.world import Model

Errors = list[tuple[Any, ...]]


class Disputes:
    max_window = UNBONDING_DELAY - RULING_PERIOD - 1
    """A ruling in the second in which the stake can leave may come after it has left."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.arbiter = ARBITER
        self.all: dict[int, Case] = {}

    def status(self, id_: int) -> HoldStatus:
        case = self.all.get(id_)
        return case.status if case else HoldStatus.NONE

    def hold(self, hold: Hold) -> None:
        self.all[hold.id] = Case(hold, HoldStatus.HELD)
        self._model.credits.add(self._here, hold.payment + hold.poster_cut)
        self._model.emit("disputes", "PaymentHeld", *hold)

    def release(self, tx: Tx, holds: list[Hold]) -> int:
        released = 0
        for hold in holds:
            reasons = set()
            if not self._is(hold, HoldStatus.HELD):
                reasons.add(HoldSkip.NOT_HELD)
            if tx.now <= hold.disputable_until:
                reasons.add(HoldSkip.STILL_DISPUTABLE)
            if reasons:
                self._model.emit("disputes", "ReleaseSkipped", hold.id, OneOf(tuple(reasons)))
                continue
            self._close(hold)
            self._pay(hold, hold.payment)
            self._model.emit("disputes", "PaymentReleased", hold.id)
            released += 1
        return released

    def open(self, tx: Tx, hold: Hold) -> None:
        errors: Errors = [] if self._is(hold, HoldStatus.HELD) else [("NotHeld", hold.id)]
        if tx.now > hold.disputable_until:
            errors.append(("WindowClosed", hold.disputable_until, tx.now))
        if tx.value != hold.bond:
            errors.append(("WrongBond", tx.value, hold.bond))
        refuse_if_any(errors)
        until = tx.now + RULING_PERIOD
        self.all[hold.id] = Case(hold, HoldStatus.DISPUTED, tx.sender, until)
        self._model.pay("disputes", self._model.at["requests"], hold.bond)
        self._model.credits.gift(self._here, self._here, hold.bond)
        self._model.emit("disputes", "DisputeOpened", hold.id, tx.sender, until)

    def rule(self, tx: Tx, hold: Hold, upheld: bool, requester: Address, params: bytes) -> None:
        errors: Errors = [] if tx.sender == self.arbiter else [("NotArbiter", tx.sender)]
        errors += self._not_disputed(hold)
        case = self.all.get(hold.id)
        if case and case.status == HoldStatus.DISPUTED and tx.now > case.ruling_until:
            errors.append(("RulingTooLate", case.ruling_until, tx.now))
        opens = commitment_of(self._model.at["requests"], hold.id, requester, params)
        if upheld and opens != hold.commitment:
            errors.append(("CommitmentMismatch", hold.id))
        refuse_if_any(errors)
        disputer = self.all[hold.id].disputer
        self._close(hold)
        slashed = 0
        if upheld:
            self._model.credits.move(self._here, requester, hold.payment + hold.poster_cut)
            self._model.credits.move(self._here, disputer, hold.bond)
            for worker in hold.workers:
                slashed += self._model.stakes.slash_loser(worker, hold.bond, disputer)
        else:
            self._pay(hold, hold.payment + hold.bond)
        self._model.emit("disputes", "DisputeRuled", hold.id, upheld, disputer, slashed)

    def close(self, tx: Tx, hold: Hold) -> None:
        errors = self._not_disputed(hold)
        case = self.all.get(hold.id)
        if case and case.status == HoldStatus.DISPUTED and tx.now <= case.ruling_until:
            errors.append(("RulingStillPossible", case.ruling_until, tx.now))
        refuse_if_any(errors)
        disputer = self.all[hold.id].disputer
        self._close(hold)
        self._pay(hold, hold.payment)
        self._model.credits.move(self._here, disputer, hold.bond)
        self._model.emit("disputes", "DisputeLapsed", hold.id)

    def set_arbiter(self, tx: Tx, arbiter: Address) -> None:
        refuse_if_any(self._model.owned.not_owner(tx))
        self.arbiter = arbiter
        self._model.emit("disputes", "ArbiterSet", arbiter)

    @property
    def _here(self) -> Address:
        return self._model.at["disputes"]

    def _is(self, hold: Hold, status: HoldStatus) -> bool:
        case = self.all.get(hold.id)
        return case is not None and case.status == status and case.hold == hold

    def _not_disputed(self, hold: Hold) -> Errors:
        return [] if self._is(hold, HoldStatus.DISPUTED) else [("NotDisputed", hold.id)]

    def _close(self, hold: Hold) -> None:
        if hold.id not in self.all:
            raise Refused([("NotHeld", hold.id)])
        self.all[hold.id] = replace(self.all[hold.id], status=HoldStatus.CLOSED)

    def _pay(self, hold: Hold, for_owners: int) -> None:
        for owner, share in zip(hold.owners, shared(for_owners, len(hold.owners)), strict=True):
            self._model.credits.move(self._here, owner, share)
        self._model.credits.move(self._here, hold.poster, hold.poster_cut)
