"""Rules of requesters."""

from __future__ import annotations

from tests.contracts import cast
from tests.contracts.abi import Address
from tests.contracts.cast import GWEI, MAX_CALLBACK_GAS, MAX_FEE, MAX_ID
from tests.contracts.machine.base import Base, Draw
from tests.contracts.model.values import Delivery, Params, RequestStatus

_FAR_DEADLINE = 2**40 - 1
_LONG = bytes(range(256)) * 256
_FEES = [10**7 * GWEI + GWEI, 7 * GWEI, GWEI, MAX_FEE, 3 * 10**9 * GWEI]
_BAD_FEES = [0, 1, GWEI + 1, MAX_FEE + GWEI, MAX_FEE + 1]


class Asking(Base):
    def draw_params(self, draw: Draw, sender: Address, now: int) -> Params:
        model_id = draw.one([*cast.MODELS, cast.MODELS[2]])
        may_call = sender in self.arena.setting.consumers
        delivery = draw.one([Delivery.CALLBACK] * 2 + list(Delivery) if may_call else [0, 1])
        callback = delivery == Delivery.CALLBACK
        least = max(1, self.model.terms.current(model_id).min_quorum)
        params = Params(
            model_id=model_id,
            max_tokens=draw.one([16, 0, 2**32 - 1]),
            deadline=now + draw.one([30, 300, 2, 500, 5_000, _FAR_DEADLINE - now]),
            memory_mb=draw.one([0, 512, 2**32 - 1]),
            callback_gas_limit=draw.one([400_000, MAX_CALLBACK_GAS, 1]) if callback else 0,
            quorum=draw.one([least, least, min(least + 1, 15), 3, 2, max(least - 1, 1)]),
            batchable=draw.one([True, False]),
            delivery=delivery,
            input_kind=draw.one([0, 0, 1]),
            input=draw.one([b"ask", b"ask", b"ask", b"", _LONG]),
        )
        return self._spoil(draw, params, now, callback, least)

    def _spoil(self, draw: Draw, params: Params, now: int, callback: bool, least: int) -> Params:
        flaw = draw.flaw("deadline", "quorum", "gas", "code", "enum", "none", "none")
        if flaw == "deadline":
            return params._replace(deadline=draw.one([now, now - 1, 0]))
        if flaw == "quorum":
            return params._replace(quorum=draw.one([0, least - 1, 15, 16, 255]))
        if flaw == "gas":
            gas = MAX_CALLBACK_GAS + 1 if callback else 1
            return params._replace(callback_gas_limit=draw.one([gas, 2**32 - 1, 0]))
        if flaw == "code":
            return params._replace(delivery=Delivery.CALLBACK, callback_gas_limit=1)
        if flaw == "enum":
            return draw.one([params._replace(delivery=3), params._replace(input_kind=2)])
        return params

    def asker(self, draw: Draw) -> Address:
        return draw.one([cast.ALICE, cast.BOB, *self.arena.setting.consumers])

    def submit(self, draw: Draw) -> None:
        if self.model.requests.next_id > MAX_ID and not draw.flaw("no more ids"):
            return
        sender, now = self.asker(draw), self.when(draw)
        params = self.draw_params(draw, sender, now)
        fee = draw.one(_BAD_FEES if draw.flaw("fee") else _FEES)
        self.act("requests", "submit", (params,), sender, now, fee)

    def submit_disputable(self, draw: Draw) -> None:
        """Nothing is wrong with it, so that something comes of it."""
        terms = self.model.terms.of_model.values()
        models = [t.model_id for t in terms if t.dispute_window and t.min_quorum < 4]
        if not models or self.model.requests.next_id > MAX_ID:
            return
        now, model_id = self.when(draw), draw.one(models)
        quorum = draw.one([max(2, self.model.terms.current(model_id).min_quorum), 3])
        params = Params(model_id, 1, now + 500, 0, 0, quorum, True, Delivery.EVENT, 0, b"ask")
        self.act("requests", "submit", (params,), cast.ALICE, now, 10**7 * GWEI + GWEI)

    def submit_callable(self, draw: Draw) -> None:
        """Of a model without terms, with the most gas there is."""
        models = [m for m in cast.MODELS if m not in self.model.terms.of_model]
        if not models or self.model.requests.next_id > MAX_ID:
            return
        now = self.when(draw)
        delivery, gas = Delivery.CALLBACK, MAX_CALLBACK_GAS
        params = Params(draw.one(models), 1, now + 500, 0, gas, 1, True, delivery, 0, b"ask")
        sender = draw.one(self.arena.setting.consumers)
        self.act("requests", "submit", (params,), sender, now, 7 * GWEI)

    def submit_many(self, draw: Draw) -> None:
        sender, now = self.asker(draw), self.when(draw)
        count = draw.number(0, 4)
        first = [self.draw_params(draw, sender, now) for _ in range(min(count, 1))]
        params = first + [p._replace(input=b"ask") for p in first] * (count - 1)
        fees = [draw.one(_FEES) for _ in range(count)]
        value = sum(fees)
        flaw = draw.flaw("length", "sum", "fee", "overflow")
        if flaw == "length":
            fees = draw.one([fees[1:], [*fees, GWEI]])
            value = sum(fees)
        elif flaw == "sum":
            value = draw.one([value + GWEI, max(0, value - GWEI), 0])
        elif flaw == "fee" and fees:
            fees[0] = draw.one(_BAD_FEES)
            value = sum(fees)
        elif flaw == "overflow" and len(fees) > 1:
            fees[0] = 2**256 // GWEI * GWEI
            value = sum(fees) % 2**256
        self.act("requests", "submitMany", (params, fees), sender, now, value)

    def raise_fee(self, draw: Draw) -> None:
        pending = self.requests(RequestStatus.PENDING)
        found = pending if draw.number(0, 3) else self.all_requests()
        request = draw.one(found) if found and not draw.flaw("strange") else None
        id_ = request.id if request else self.strange_id(draw)
        room = MAX_FEE - (request.fee if request else 0)
        value = draw.one([GWEI, 10**7 * GWEI, room, room + GWEI, 0, 1, MAX_FEE + GWEI])
        now = self.when(draw, *([request.deadline] if request else []))
        value = value if draw.flaw("value") else draw.one([GWEI, 10**7 * GWEI])
        self.act("requests", "raiseFee", (id_,), self.anyone(draw), now, value)

    def request_cancel(self, draw: Draw) -> None:
        found = self.requests(RequestStatus.PENDING) or self.all_requests()
        if draw.flaw("any"):
            found = self.all_requests()
        if not found:
            return
        request = draw.one(found)
        id_, sender, hashed = request.id, request.requester, request.params_hash
        flaw = draw.flaw("id", "sender", "hash")
        if flaw == "id":
            id_ = self.strange_id(draw)
        elif flaw == "sender":
            sender = self.anyone(draw)
        elif flaw == "hash":
            hashed = bytes(32)
        now = self.when(draw, request.deadline, request.deadline - cast.CANCEL_DELAY)
        self.act("requests", "requestCancel", (id_, hashed), sender, now)

    def refund(self, draw: Draw) -> None:
        expired = self.requests(RequestStatus.EXPIRED)
        found = expired or self.requests(RequestStatus.PENDING)
        found = self.all_requests() if draw.flaw("settled") else found
        if not found:
            return
        claims = []
        for request in draw.some(found, 1, 3):
            claim = (request.id, request.requester, request.params_hash)
            flaw = draw.flaw("id", "requester", "hash")
            if flaw == "id":
                claim = (self.strange_id(draw), *claim[1:])
            elif flaw == "requester":
                claim = (claim[0], cast.POSTER, claim[2])
            elif flaw == "hash":
                claim = (*claim[:2], bytes(32))
            claims.append(claim)
        moments = [r.deadline for r in found if r.id in {claim[0] for claim in claims}]
        now = self.when(draw, *moments, near_of_ten=6)
        self.act("requests", "refund", (claims,), self.anyone(draw), now)
