"""Stakes: what workers stand to lose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indexer.types import Hash32
from inferd.protocol.typed_data import BadSignature, CompactSignature, recover
from tests.contracts.abi import Address
from tests.contracts.cast import MIN_STAKE, REPORTER_BPS, TREASURY, UNBONDING_DELAY
from tests.contracts.model.hashes import group_digest_of
from tests.contracts.model.outcome import Refused, Tx, refuse_if_any
from tests.contracts.model.results import ITEM, unpacked
from tests.contracts.model.values import Stake

if TYPE_CHECKING:
    from tests.contracts.model.world import Model

Errors = list[tuple[Any, ...]]
Signed = tuple[bytes, tuple[bytes, bytes], int]
_MOST = 2**96 - 1


class Stakes:
    def __init__(self, model: Model) -> None:
        self._model = model
        self.all: dict[Address, Stake] = {}

    def of(self, signer: Address) -> Stake:
        return self.all.get(signer, Stake())

    def stake(self, tx: Tx, signer: Address) -> None:
        now = self.of(signer)
        errors: Errors = [] if tx.value else [("AmountZero",)]
        if signer not in self._model.registry.all:
            errors.append(("NotRegistered", signer))
        if now.barred:
            errors.append(("Barred", signer))
        if now.staked + now.unbonding + tx.value > _MOST:
            errors.append(("StakeTooLarge", tx.value))
        refuse_if_any(errors)
        self._set(signer, replace(now, staked=now.staked + tx.value))
        self._model.emit("stakes", "Staked", signer, tx.sender, tx.value, now.staked + tx.value)

    def unstake(self, tx: Tx, signer: Address, amount: int) -> None:
        before = self.of(signer)
        errors = self._model.registry.not_owner(tx, signer)
        if not amount:
            errors.append(("AmountZero",))
        if amount > before.staked:
            errors.append(("InsufficientStake", before.staked, amount))
        refuse_if_any(errors)
        after = replace(
            before,
            staked=before.staked - amount,
            unbonding=before.unbonding + amount,
            withdrawable_at=tx.now + UNBONDING_DELAY,
        )
        self._set(signer, after)
        self._model.emit(
            *("stakes", "UnstakeStarted", signer, amount),
            *(after.staked, after.unbonding, after.withdrawable_at),
        )

    def withdraw(self, tx: Tx, signer: Address, to: Address) -> int:
        before = self.of(signer)
        errors = self._model.registry.not_owner(tx, signer)
        if not before.unbonding:
            errors.append(("AmountZero",))
        if tx.now < before.withdrawable_at:
            errors.append(("StillBonded", before.withdrawable_at, tx.now))
        if not errors and not self._model.accepts_money(to):
            errors.append(("TransferFailed", to, before.unbonding))
        refuse_if_any(errors)
        self._set(signer, replace(before, unbonding=0, withdrawable_at=0))
        self._model.pay("stakes", to, before.unbonding)
        self._model.emit("stakes", "StakeWithdrawn", signer, to, before.unbonding)
        self._model.react_to_money(tx.now, to)
        return before.unbonding

    def slash_equivocation(self, tx: Tx, one: Signed, other: Signed) -> int:
        errors: Errors = []
        signers = [self._signer(signed) for signed in (one, other)]
        if None in signers:
            errors.append(("BadSignature",))
        items = []
        for packed, _, index in (one, other):
            if index >= len(packed) // ITEM:
                errors.append(("NoSuchItem", index))
            else:
                items.append(unpacked(packed)[index])
        signer = signers[0]
        if signers[0] != signers[1]:
            errors += [("NoEquivocation",), ("BadSignature",)]
        if len(items) == 2:
            same = items[0][:2] == items[1][:2]
            if not same or items[0].digest == items[1].digest:
                errors.append(("NoEquivocation",))
        if signer is not None and signer not in self._model.registry.all:
            errors.append(("NotRegistered", signer))
        if signer is not None and self.of(signer).barred:
            errors.append(("Barred", signer))
        refuse_if_any(errors)
        if signer is None:
            raise Refused([("BadSignature",)])
        before = self.of(signer)
        amount = before.staked + before.unbonding
        self._set(signer, replace(before, staked=0, unbonding=0, barred=True))
        item = items[0]
        self._model.emit(
            *("stakes", "Equivocated", signer, item.id, item.commitment),
            *(item.digest, items[1].digest),
        )
        self._share_out(signer, tx.sender, amount)
        return amount

    def slash_loser(self, signer: Address, at_most: int, reporter: Address) -> int:
        """Takes what is staked first."""
        before = self.of(signer)
        amount = min(at_most, before.staked + before.unbonding)
        from_staked = min(amount, before.staked)
        after = replace(
            before,
            staked=before.staked - from_staked,
            unbonding=before.unbonding - (amount - from_staked),
        )
        self._set(signer, after)
        self._share_out(signer, reporter, amount)
        return amount

    def _share_out(self, signer: Address, reporter: Address, amount: int) -> None:
        after = self.of(signer)
        self._model.emit(
            "stakes", "Slashed", signer, reporter, amount, after.staked, after.unbonding
        )
        share = amount * REPORTER_BPS // 10_000
        stakes = self._model.at["stakes"]
        self._model.pay("stakes", self._model.at["requests"], amount)
        for who, part in ((reporter, share), (TREASURY, amount - share)):
            if part:
                self._model.credits.gift(who, stakes, part)

    def _set(self, signer: Address, stake: Stake) -> None:
        self.all[signer] = stake
        self._model.registry.set_staked(signer, stake.staked >= MIN_STAKE)

    def _signer(self, signed: Signed) -> Address | None:
        digest = group_digest_of(self._model.at["results"], signed[0])
        try:
            return Address(recover(Hash32(digest), CompactSignature(b"".join(signed[1]))))
        except BadSignature:
            return None
