"""Rules of owners and of money, and of those who try what is not theirs."""

from __future__ import annotations

from tests.contracts import cast
from tests.contracts.abi import NOBODY, Address, words
from tests.contracts.cast import RULING_PERIOD, UNBONDING_DELAY
from tests.contracts.machine.base import Base, Draw
from tests.contracts.model.owned import Owned
from tests.contracts.model.values import Terms

_LONGEST = UNBONDING_DELAY - RULING_PERIOD
_STAKE_AND_MORE = 3 * cast.MIN_STAKE // cast.GWEI


class Governing(Base):
    def _owner(self, draw: Draw, owned: Owned) -> Address:
        return self.anyone(draw) if draw.flaw("stranger") else owned.owner

    def set_model_terms(self, draw: Draw) -> None:
        setting = self.arena.setting
        verifiers = [NOBODY, self.model.at["verifier"], setting.odd_verifier, cast.BOB]
        window = draw.one([0, 40, 0, 5, _LONGEST - 1, _LONGEST, _LONGEST + 1, 2**32 - 1])
        terms = Terms(
            draw.one(cast.MODELS),
            draw.one(verifiers[:3] * 3 + verifiers[3:]),
            window,
            draw.one([7, _STAKE_AND_MORE, 0, 1, 10**9 + 1]),
            draw.one([0, 0, 1, 2, 3, 15, 16, 255]),
        )
        if not draw.number(0, 5):
            terms = Terms(terms.model_id, NOBODY, 0, 0, 0)
        sender = self._owner(draw, self.model.owned)
        self.act("requests", "setModelTerms", (tuple(terms),), sender, self.when(draw))

    def set_paused(self, draw: Draw) -> None:
        paused = not self.model.requests.paused and bool(draw.flaw("pause"))
        sender = self._owner(draw, self.model.owned)
        self.act("requests", "setPaused", (paused,), sender, self.when(draw))

    def offer_ownership(self, draw: Draw) -> None:
        role = draw.one(["requests", "verifier"])
        owned = self._owned(role)
        sender = self._owner(draw, owned)
        to = draw.one([cast.HEIR, cast.ADMIN, NOBODY])
        self.act(role, "offerOwnership", (to,), sender, self.when(draw))

    def accept_ownership(self, draw: Draw) -> None:
        role = draw.one(["requests", "verifier"])
        owned = self._owned(role)
        sender = self.anyone(draw) if draw.flaw("stranger") else owned.pending
        if sender == NOBODY:
            self.act(role, "offerOwnership", (cast.HEIR,), owned.owner, self.when(draw))
            sender = cast.HEIR
        self.act(role, "acceptOwnership", (), sender, self.when(draw))

    def _owned(self, role: str) -> Owned:
        return self.model.owned if role == "requests" else self.model.owned_verifier

    def set_arbiter(self, draw: Draw) -> None:
        sender = self._owner(draw, self.model.owned)
        to = draw.one([cast.ARBITER, cast.BOB])
        self.act("disputes", "setArbiter", (to,), sender, self.when(draw))

    def set_enclave(self, draw: Draw) -> None:
        key = draw.one([*(key.address for key in cast.ENCLAVES), NOBODY])
        enclave = (draw.one(cast.MODELS), key, draw.one([True, True, False]))
        sender = self._owner(draw, self.model.owned_verifier)
        self.act("verifier", "setEnclave", enclave, sender, self.when(draw))

    # Money

    def _creditor(self, draw: Draw) -> Address:
        rich = sorted(who for who, amount in self.model.credits.of.items() if amount)
        able = [w for w in rich if w in cast.PEOPLE or w in self.model.reactions]
        return draw.one(able) if able and not draw.flaw("poor") else self.anyone(draw)

    def withdraw(self, draw: Draw) -> None:
        self.act("requests", "withdraw", (), self._creditor(draw), self.when(draw))

    def withdraw_to(self, draw: Draw) -> None:
        to = draw.one([cast.HEIR, *self.arena.setting.consumers])
        if draw.flaw("to"):
            to = draw.one([self.model.at["disputes"], NOBODY])
        self.act("requests", "withdrawTo", (to,), self._creditor(draw), self.when(draw))

    def credit(self, draw: Draw) -> None:
        to = NOBODY if draw.flaw("nobody") else self.anyone(draw)
        amount = draw.one([1, cast.ETHER, 0])
        self.act("requests", "credit", (to,), self.anyone(draw), self.when(draw), amount)

    def transfer_credit(self, draw: Draw) -> None:
        sender = self._creditor(draw)
        has = self.model.credits.of[sender]
        amount = draw.one([has, has // 2, 1, has + 1, 0, 2**256 - 1])
        to = NOBODY if draw.flaw("nobody") else draw.one([self.anyone(draw), sender])
        self.act("requests", "transferCredit", (to, amount), sender, self.when(draw))

    def intrude(self, draw: Draw) -> None:
        """What only another contract may call."""
        signer, workers = cast.SIGNERS[0].address, [cast.SIGNERS[0].address]
        requests = self.all_requests()
        id_ = requests[0].id if requests else 1
        commitment = requests[0].commitment if requests else bytes(20)
        item = id_.to_bytes(8, "big") + commitment + bytes(32)
        group = words(Address(signer), cast.BOB, len(item)) + item
        hold = (id_, commitment, bytes(32), workers, workers, 1, cast.BOB, 1, 1, self.model.now)
        role, function, arguments = draw.one(
            [
                ("requests", "settle", (group, cast.BOB)),
                ("requests", "settleJoint", (item, workers, [cast.BOB], cast.BOB, True)),
                ("requests", "takeCallback", (id_, commitment, bytes(32))),
                ("requests", "returnCallback", (id_, commitment, bytes(32))),
                ("registry", "setStaked", (signer, True)),
                ("stakes", "slashLoser", (signer, 1, cast.BOB)),
                ("disputes", "hold", (hold,)),
            ]
        )
        self.act(role, function, arguments, self.anyone(draw), self.when(draw))
