"""Rules of workers who sign, posters, and who delivers."""

from __future__ import annotations

from collections.abc import Sequence

from eth_utils.crypto import keccak

from tests.contracts import cast
from tests.contracts.arena import signed_by
from tests.contracts.machine.base import DIGESTS, OUTPUTS, Base, Draw
from tests.contracts.model.hashes import attestation_digest_of
from tests.contracts.model.outcome import ANY_NUMBER
from tests.contracts.model.results import Claim, Signature
from tests.contracts.model.values import (
    Behaviour,
    Delivery,
    Item,
    Reaction,
    Request,
    RequestStatus,
)

_HIGH_S = 2**255 - 1
_BEYOND_THE_LIMIT = [-(10**6), *range(50_000, 220_000, 20_000)]
"""A call leaves a 64th of the gas behind: most of these seem to be enough and are not."""
_ROOTS = [bytes(32), keccak(b"root")]


class Answering(Base):
    def draw_group(
        self, draw: Draw, pool: list[Request]
    ) -> tuple[bytes, list[Signature], list[Item]]:
        target = draw.one(pool)
        alike = [r for r in pool if r.params.quorum == target.params.quorum]
        chosen = [target, *draw.several(alike if draw.number(0, 4) else pool, 0, 4)]
        if not draw.flaw("twice"):
            chosen = list(dict.fromkeys(chosen))
        items = [self._item(draw, request) for request in chosen]
        packed = b"".join(item.packed() for item in items)
        keys = self._signers(draw, target.params.quorum)
        flaw = draw.flaw("length", "empty", "signature", "other", "unsigned", "many", "order")
        if flaw == "length":
            packed = draw.one([packed[:-1], packed + b"\0"])
        elif flaw == "empty":
            packed = b""
        signatures = [signed_by(self.model, key, packed) for key in keys]
        if flaw == "signature":
            signatures[-1] = draw.one([(bytes(32), bytes(32)), self._high(signatures[-1])])
        elif flaw == "other":
            signatures[0] = signed_by(self.model, keys[0], packed + b"\0")
        elif flaw == "unsigned":
            signatures = []
        elif flaw == "many":
            signatures = signatures[:1] * 16
        elif flaw == "order":
            signatures = draw.one([signatures[::-1], [*signatures, signatures[-1]]])
        return packed, signatures, items

    @staticmethod
    def _high(signature: Signature) -> Signature:
        return signature[0], _HIGH_S.to_bytes(32, "big")

    def _signers(self, draw: Draw, quorum: int) -> list[cast.Key]:
        active = [k for k in cast.SIGNERS if self.model.registry.is_active(k.address)]
        keys = active if len(active) >= quorum and not draw.flaw("inactive") else cast.SIGNERS
        start = draw.number(0, max(0, len(keys) - quorum))
        count = draw.number(1, 3) if draw.flaw("count") else quorum
        return keys[start : start + count] or keys[:1]

    def _item(self, draw: Draw, request: Request) -> Item:
        item = Item(request.id, request.commitment, draw.one(DIGESTS))
        flaw = draw.flaw("commitment", "id", "none", "none")
        if flaw == "commitment":
            return item._replace(commitment=draw.one([bytes(20), b"\1" * 20]))
        if flaw == "id":
            next_id = self.model.requests.next_id
            return item._replace(id=draw.one([0, next_id, 2**64 - 1, request.id | 2**63]))
        return item

    def _pool(self, draw: Draw) -> list[Request]:
        if draw.flaw("any"):
            return self.all_requests()
        active = sum(map(self.model.registry.is_active, self.model.registry.all))
        pending = self.requests(RequestStatus.PENDING)
        return [r for r in pending if r.params.quorum <= active]

    def _moment(self, draw: Draw, items: Sequence[Item]) -> int:
        named = {item.id for item in items}
        return self.when(draw, *(r.deadline for r in self.all_requests() if r.id in named))

    def post(self, draw: Draw) -> None:
        pool = [r for r in self._pool(draw) if not r.under_terms or draw.flaw("terms")]
        if not pool:
            return
        drawn = [self.draw_group(draw, pool) for _ in range(draw.one([1, 1, 2, 3]))]
        now = self._moment(draw, [item for group in drawn for item in group[2]])
        groups = [group[:2] for group in drawn]
        self.act(
            "results", "post", (groups, draw.one(_ROOTS)), draw.one([cast.POSTER, cast.ALICE]), now
        )

    def post_again(self, draw: Draw) -> None:
        """Answers once more what is answered, in time and with all signatures."""
        done = [r for r in self.all_requests() if r.settled and r.deadline > self.model.now]
        done = [r for r in done if r.params.quorum == 1]
        active = [k for k in cast.SIGNERS if self.model.registry.is_active(k.address)]
        if not done or not active:
            return
        items = [Item(r.id, r.commitment, draw.one(DIGESTS)) for r in draw.several(done, 1, 8)]
        packed = b"".join(item.packed() for item in items)
        group = (packed, [signed_by(self.model, draw.one(active), packed)])
        self.act("results", "post", ([group], bytes(32)), cast.ALICE, self.when(draw))

    def post_proven(self, draw: Draw) -> None:
        pool = self._pool(draw)
        under_terms = [r for r in pool if r.under_terms]
        self._post_proven(draw, under_terms if under_terms and draw.number(0, 2) else pool)

    def post_callable(self, draw: Draw) -> None:
        pending = self.requests(RequestStatus.PENDING)
        callable_ = [r for r in pending if r.params.delivery == Delivery.CALLBACK]
        active = [k for k in cast.SIGNERS if self.model.registry.is_active(k.address)]
        plain = [r for r in callable_ if not r.under_terms and r.params.quorum == 1]
        if not plain or not active:
            return
        items = [Item(r.id, r.commitment, draw.one(DIGESTS[:2])) for r in plain]
        packed = b"".join(item.packed() for item in items)
        group = (packed, [signed_by(self.model, draw.one(active), packed)])
        self.act("results", "post", ([group], bytes(32)), cast.ALICE, self.when(draw))

    def post_disputable(self, draw: Draw) -> None:
        self._post_proven(draw, [r for r in self._pool(draw) if r.terms.dispute_window])

    def _post_proven(self, draw: Draw, pool: list[Request]) -> None:
        if not pool:
            return
        groups, items = [], []
        for _ in range(draw.one([1, 1, 2])):
            packed, signatures, named = self.draw_group(draw, pool)
            proofs = [self._proof(draw, item) for item in named]
            if draw.flaw("count"):
                proofs = draw.one([proofs[1:], [*proofs, b""]])
            groups.append((packed, signatures, proofs))
            items += named
        now = self._moment(draw, items)
        self.act(
            "results",
            "postProven",
            (groups, draw.one(_ROOTS)),
            draw.one([cast.POSTER, cast.ALICE]),
            now,
        )

    def _proof(self, draw: Draw, item: Item) -> bytes:
        request = self.model.requests.all.get(item.id)
        if request is None or request.terms.verifier == bytes(20):
            return draw.one([b"", b"", b"\1"])
        if request.terms.verifier == self.arena.setting.odd_verifier:
            return draw.one([b"\1", b"\1", b"", b"\0", b"\2", b"\3", b"\4", b"\5", b"\6", b"\7"])
        flaw = draw.flaw("key", "digest", "model", "short", "garbage", "empty", "long")
        model_id, digest = request.params.model_id, item.digest
        verifier = request.terms.verifier
        if flaw == "digest":
            digest = keccak(digest)
        elif flaw == "model":
            model_id = keccak(model_id)
        key = cast.ENCLAVES[1 if flaw == "key" else 0]
        signed = key.sign(
            attestation_digest_of(verifier, item.id, model_id, item.commitment, digest)
        )
        spoilt = {"short": signed[:-1], "garbage": bytes(64), "empty": b"", "long": signed + b"\0"}
        return spoilt.get(flaw, bytes(signed))

    # Callbacks

    def _owed(self) -> list[Request]:
        return [
            r
            for r in self.all_requests()
            if r.params.delivery == Delivery.CALLBACK and r.digest in OUTPUTS and not r.called
        ]

    @staticmethod
    def _claim(request: Request) -> Claim:
        return (
            request.id,
            request.requester,
            request.params,
            OUTPUTS.get(request.digest or b"", b"no"),
        )

    def deliver(self, draw: Draw) -> None:
        owed = self._owed()
        pool = self.all_requests() if draw.flaw("any") else owed
        if not pool:
            return
        claims = [self._spoilt(draw, self._claim(r)) for r in draw.some(pool, 1, 2)]
        if sum(len(c[3]) + len(c[2].input) for c in claims) > 140_000:
            claims = claims[:1]
        if sum(c[2].callback_gas_limit for c in claims) > 10**7:
            claims = claims[:1]
        self.act("results", "deliver", (claims,), self.anyone(draw), self.when(draw))

    def _spoilt(self, draw: Draw, claim: Claim) -> Claim:
        id_, requester, params, output = claim
        flaw = draw.flaw("id", "requester", "params", "output", "delivery")
        if flaw == "id":
            return self.strange_id(draw), requester, params, output
        if flaw == "requester":
            return id_, draw.one([cast.ALICE, *self.arena.setting.consumers]), params, output
        if flaw == "params":
            return id_, requester, params._replace(callback_gas_limit=500_000), output
        if flaw == "output":
            return id_, requester, params, output + b"\0"
        if flaw == "delivery":
            return id_, requester, params._replace(delivery=Delivery.STORED), output
        return claim

    def deliver_with_little_gas(self, draw: Draw) -> None:
        """Either the consumer gets what its request named, or nobody is called."""
        owed = [r for r in self._owed() if r.params.callback_gas_limit == cast.MAX_CALLBACK_GAS]
        owed = [r for r in owed if r.params.input == b"ask" and len(OUTPUTS[r.digest or b""]) < 9]
        if not owed:
            return
        gas = cast.MAX_CALLBACK_GAS + draw.one(_BEYOND_THE_LIMIT)
        delivered = self.act(
            *("results", "deliver", ([self._claim(draw.one(owed))],), cast.BOB, self.when(draw)),
            gas=gas,
            or_error=("InsufficientGas", ANY_NUMBER, ANY_NUMBER),
        )
        self.arena.seen["delivered with little gas"] += delivered

    def behave(self, draw: Draw) -> None:
        consumer = draw.one(self.arena.setting.consumers)
        mode = draw.one([Behaviour.ACCEPT] * 3 + [*Behaviour, Behaviour.REENTER])
        owed = [
            r for r in self._owed() if len(r.params.input) < 9 and len(OUTPUTS[r.digest or b""]) < 9
        ]
        owed = [r for r in owed if r.requester == consumer]
        reaction = Reaction(mode)
        if mode == Behaviour.REENTER and owed and draw.number(0, 2):
            claim = self._claim(draw.one(owed))
            reaction = Reaction(mode, "results", "deliver", ([claim],))
        self.arena.behave(consumer, reaction)
