"""Rules of workers' owners, and of those who show that a worker lied."""

from __future__ import annotations

from eth_utils.crypto import keccak

from tests.contracts import cast
from tests.contracts.abi import NOBODY, Address
from tests.contracts.arena import consent_of, signed_by
from tests.contracts.cast import MIN_STAKE
from tests.contracts.machine.base import DIGESTS, Base, Draw
from tests.contracts.model.values import Item

_OWNERS = [cast.OWNER_A, cast.OWNER_B]


class Staking(Base):
    def _info(self, draw: Draw, signer: Address) -> tuple[object, ...]:
        models, slots = draw.some(cast.MODELS, 1, 3), draw.one([1, 2**32 - 1])
        flaw = draw.flaw("models", "slots", "none", "none")
        if flaw == "models":
            models = []
        elif flaw == "slots":
            slots = 0
        endpoint = draw.one(["", "http://worker", "é" * 40])
        return signer, tuple(models), endpoint, slots, draw.one([0, 2**32 - 1])

    def _signer_and_owner(self, draw: Draw, *, registered: bool = True) -> tuple[Address, Address]:
        known = [k.address for k in cast.SIGNERS if k.address in self.model.registry.all]
        others = [k.address for k in cast.SIGNERS if k.address not in self.model.registry.all]
        if draw.flaw("other") and others:
            known = others
        signer = draw.one(known if registered else others or known)
        worker = self.model.registry.all.get(signer)
        stranger = draw.flaw("stranger") or worker is None
        return signer, draw.one([*_OWNERS, cast.BOB]) if stranger or not worker else worker.owner

    def register(self, draw: Draw) -> None:
        signer, owner = self._signer_and_owner(draw, registered=bool(draw.flaw("again")))
        key = next(k for k in cast.SIGNERS if k.address == signer)
        consent = consent_of(self.model, key, owner)
        flaw = draw.flaw("owner", "garbage", "key")
        if flaw == "owner":
            consent = consent_of(self.model, key, cast.BOB)
        elif flaw == "garbage":
            consent = (bytes(32), bytes(32))
        elif flaw == "key":
            consent = consent_of(self.model, cast.ENCLAVES[0], owner)
        self.act(
            "registry", "register", (self._info(draw, signer), consent), owner, self.when(draw)
        )

    def update(self, draw: Draw) -> None:
        signer, owner = self._signer_and_owner(draw)
        self.act("registry", "update", (self._info(draw, signer),), owner, self.when(draw))

    def set_enabled(self, draw: Draw) -> None:
        signer, owner = self._signer_and_owner(draw)
        enabled = draw.one([True, True, False])
        self.act("registry", "setEnabled", (signer, enabled), owner, self.when(draw))

    def stake(self, draw: Draw) -> None:
        signer, owner = self._signer_and_owner(draw)
        lacking_ones = [
            s
            for s, worker in self.model.registry.all.items()
            if not worker.staked and not self.model.stakes.of(s).barred
        ]
        if lacking_ones and draw.number(0, 3):
            signer = draw.one(lacking_ones)
        staked = self.model.stakes.of(signer).staked
        lacking = max(0, MIN_STAKE - staked)
        room = 2**96 - 1 - staked - self.model.stakes.of(signer).unbonding
        amount = draw.one([MIN_STAKE, MIN_STAKE, lacking, lacking - 1 if lacking else 1])
        if draw.flaw("amount"):
            amount = draw.one([0, 1, room, room + 1, 2**96])
        self.act("stakes", "stake", (signer,), owner, self.when(draw), amount)

    def unstake(self, draw: Draw) -> None:
        signer, owner = self._signer_and_owner(draw)
        stake = self.model.stakes.of(signer)
        staked, spare = stake.staked, max(0, stake.staked - MIN_STAKE)
        amount = draw.one([max(spare, 1), 1, spare + 1, staked])
        if draw.flaw("amount"):
            amount = draw.one([staked + 1, 0, 2**256 - 1])
        now = self.when(draw, stake.withdrawable_at)
        self.act("stakes", "unstake", (signer, amount), owner, now)

    def withdraw_stake(self, draw: Draw) -> None:
        leaving = [s for s, stake in self.model.stakes.all.items() if stake.unbonding]
        signer, owner = self._signer_and_owner(draw)
        if not leaving and not draw.flaw("none"):
            return
        if leaving and draw.number(0, 6):
            signer = draw.one(leaving)
            owner = self.model.registry.all[signer].owner
        to = draw.one([owner, cast.HEIR, *self.arena.setting.consumers])
        if draw.flaw("to"):
            to = draw.one([self.model.at["disputes"], NOBODY])
        at = self.model.stakes.of(signer).withdrawable_at
        now = self.when(draw, at, near_of_ten=8)
        if self.act("stakes", "withdrawStake", (signer, to), owner, now) and now == at:
            self.arena.seen["withdrawn at withdrawableAt"] += 1

    def slash_equivocation(self, draw: Draw) -> None:
        signer, _ = self._signer_and_owner(draw)
        key = next(k for k in cast.SIGNERS if k.address == signer)
        requests = self.all_requests()
        request = draw.one(requests) if requests else None
        item = Item(7, b"\7" * 20, DIGESTS[0])
        if request is not None:
            item = Item(request.id, request.commitment, request.digest or DIGESTS[0])
        one = self._evidence(draw, key, item)
        other = self._evidence(draw, key, item._replace(digest=keccak(item.digest)))
        flaw = draw.one(["", "same", "id", "commitment", "signer", "index", "garbage"])
        if flaw == "same":
            other = draw.one([one, self._evidence(draw, key, item)])
        elif flaw == "id":
            other = self._evidence(draw, key, item._replace(id=item.id ^ 1, digest=bytes(32)))
        elif flaw == "commitment":
            changed = item._replace(commitment=bytes(20), digest=bytes(32))
            other = self._evidence(draw, key, changed)
        elif flaw == "signer":
            different = draw.one([k for k in cast.SIGNERS if k != key])
            other = self._evidence(draw, different, item._replace(digest=bytes(32)))
        elif flaw == "index":
            count = len(other[0]) // 60
            other = (*other[:2], draw.one([count, 2**256 - 1, 2**256 // 60 + 1]))
        elif flaw == "garbage":
            one = (one[0], (bytes(32), bytes(32)), one[2])
        pair = draw.one([(one, other), (other, one)])
        self.act("stakes", "slashEquivocation", pair, self.anyone(draw), self.when(draw))

    def _evidence(
        self, draw: Draw, key: cast.Key, item: Item
    ) -> tuple[bytes, tuple[bytes, bytes], int]:
        count = draw.number(1, 3)
        place = draw.number(0, count - 1)
        others = [Item(1000 + i, bytes(20), bytes(32)) for i in range(count)]
        others[place] = item
        packed = b"".join(other.packed() for other in others)
        return packed, signed_by(self.model, key, packed), place
