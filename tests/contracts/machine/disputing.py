"""Rules about payments that are held back."""

from __future__ import annotations

from tests.contracts import cast
from tests.contracts.abi import Address
from tests.contracts.machine.base import Base, Draw
from tests.contracts.model.values import Case, Hold, HoldStatus


class Disputing(Base):
    def _case(self, draw: Draw, status: HoldStatus, *, in_time: bool = False) -> Case | None:
        cases = list(self.model.disputes.all.values())[::-1]
        wanted = [case for case in cases if case.status == status]
        if in_time:
            wanted = [case for case in wanted if self.model.now < _until(case)]
        found = cases if draw.flaw("any") else wanted
        return draw.one(found) if found else None

    def _altered(self, draw: Draw, hold: Hold) -> Hold:
        if not draw.flaw("altered"):
            return hold
        return draw.one(
            [
                hold._replace(id=hold.id + 2**64),
                hold._replace(commitment=bytes(20)),
                hold._replace(digest=bytes(32)),
                hold._replace(workers=(*hold.workers[::-1], cast.BOB)),
                hold._replace(owners=(cast.BOB, *hold.owners[1:])),
                hold._replace(payment=hold.payment + 1),
                hold._replace(poster=cast.ALICE if hold.poster == cast.BOB else cast.BOB),
                hold._replace(poster_cut=hold.poster_cut + 1),
                hold._replace(bond=hold.bond + 1),
                hold._replace(disputable_until=hold.disputable_until - 1),
                hold._replace(disputable_until=0),
            ]
        )

    def release(self, draw: Draw) -> None:
        cases = [
            c for c in (self._case(draw, HoldStatus.HELD) for _ in range(draw.number(1, 3))) if c
        ]
        if not cases:
            return
        moments = [case.hold.disputable_until for case in cases]
        now = self.when(draw, *moments, near_of_ten=7)
        holds = [self._altered(draw, case.hold) for case in cases]
        self.act("disputes", "release", (holds,), self.anyone(draw), now)

    def open(self, draw: Draw) -> None:
        case = self._case(draw, HoldStatus.HELD, in_time=True)
        if case is None:
            return
        hold = self._altered(draw, case.hold)
        value = hold.bond
        if draw.flaw("bond"):
            value = draw.one([0, hold.bond - 1, hold.bond + 1])
        now = self.when(draw, case.hold.disputable_until, near_of_ten=5)
        self.act("disputes", "open", (hold,), self.anyone(draw), now, value)

    def rule_on(self, draw: Draw) -> None:
        case = self._case(draw, HoldStatus.DISPUTED, in_time=True)
        if case is None:
            return
        request = self.model.requests.all[case.hold.id]
        requester, hashed = request.requester, request.params_hash
        sender = self.model.disputes.arbiter
        flaw = draw.flaw("sender", "requester", "hash") or draw.flaw("requester", "hash")
        if flaw == "sender":
            sender = self.anyone(draw)
        elif flaw == "requester":
            requester = case.disputer
        elif flaw == "hash":
            hashed = bytes(32)
        upheld = draw.one([True, False])
        if not upheld:
            requester, hashed = draw.one([(requester, hashed), (Address(20), bytes(32))])
        hold = self._altered(draw, case.hold)
        now = self.when(draw, case.ruling_until, near_of_ten=6)
        self.act("disputes", "rule", (hold, upheld, requester, hashed), sender, now)

    def close(self, draw: Draw) -> None:
        case = self._case(draw, HoldStatus.DISPUTED)
        if case is None:
            return
        hold = self._altered(draw, case.hold)
        now = self.when(draw, case.ruling_until, near_of_ten=8)
        self.act("disputes", "close", (hold,), self.anyone(draw), now)


def _until(case: Case) -> int:
    disputed = case.status == HoldStatus.DISPUTED
    return case.ruling_until if disputed else case.hold.disputable_until
