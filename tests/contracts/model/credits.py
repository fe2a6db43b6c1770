"""The purse: who has how much credit, and how it leaves."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.contracts.abi import NOBODY, Address
from tests.contracts.model.outcome import Tx, refuse_if_any
from tests.contracts.model.values import Behaviour

if TYPE_CHECKING:
    from tests.contracts.model.world import Model


class Credits:
    def __init__(self, model: Model) -> None:
        self._model = model
        self.of: Counter[Address] = Counter()

    def add(self, account: Address, amount: int) -> None:
        """Without an event of its own: what caused it says so."""
        self.of[account] += amount

    def gift(self, account: Address, sender: Address, amount: int) -> None:
        self.of[account] += amount
        self._model.emit("requests", "Credited", account, sender, amount)

    def move(self, sender: Address, to: Address, amount: int) -> None:
        self.of[sender] -= amount
        self.of[to] += amount
        self._model.emit("requests", "CreditTransferred", sender, to, amount)

    def withdraw(self, tx: Tx) -> int:
        return self.withdraw_to(tx, tx.sender)

    def withdraw_to(self, tx: Tx, to: Address) -> int:
        amount = self.of[tx.sender]
        errors: list[tuple[object, ...]] = []
        if not amount:
            errors.append(("NothingToWithdraw", tx.sender))
        elif not self._model.accepts_money(to):
            errors.append(("TransferFailed", to, amount))
        refuse_if_any(errors)
        self.of[tx.sender] = 0
        self._model.pay("requests", to, amount)
        self._model.emit("requests", "Withdrawn", tx.sender, to, amount)
        self._model.react_to_money(tx.now, to)
        return amount

    def credit(self, tx: Tx, account: Address) -> None:
        refuse_if_any([("CreditToNobody",)] if account == NOBODY else [])
        self.gift(account, tx.sender, tx.value)

    def transfer(self, tx: Tx, to: Address, amount: int) -> None:
        errors: list[tuple[object, ...]] = []
        if to == NOBODY:
            errors.append(("CreditToNobody",))
        if amount > self.of[tx.sender]:
            errors.append(("InsufficientCredit", self.of[tx.sender], amount))
        refuse_if_any(errors)
        self.move(tx.sender, to, amount)


def refuses_money(mode: Behaviour) -> bool:
    return mode in (Behaviour.REFUSE_AT_LENGTH, Behaviour.REFUSE_SHORTLY, Behaviour.BURN)
