"""An owner who changes in two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contracts.abi import NOBODY, Address
from tests.contracts.model.outcome import Tx, refuse_if_any

if TYPE_CHECKING:
    from tests.contracts.model.world import Model


class Owned:
    def __init__(self, model: Model, role: str, owner: Address) -> None:
        self._model = model
        self._role = role
        self.owner = owner
        self.pending = NOBODY

    def not_owner(self, tx: Tx) -> list[tuple[object, ...]]:
        return [] if tx.sender == self.owner else [("NotContractOwner", tx.sender)]

    def offer(self, tx: Tx, pending: Address) -> None:
        refuse_if_any(self.not_owner(tx))
        self.pending = pending
        self._model.emit(self._role, "OwnershipOffered", self.owner, pending)

    def accept(self, tx: Tx) -> None:
        refuse_if_any([] if tx.sender == self.pending else [("NotPendingOwner", tx.sender)])
        self._model.emit(self._role, "OwnershipTaken", self.owner, tx.sender)
        self.owner, self.pending = tx.sender, NOBODY
