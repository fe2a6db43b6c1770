"""Workers: who may sign."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indexer.types import Address as PlainAddress
from indexer.types import Hash32
from inferd.protocol.typed_data import (
    BadSignature,
    CompactSignature,
    consent_digest,
    domain_separator,
    recover,
)
from tests.contracts.abi import Address
from tests.contracts.cast import CHAIN_ID
from tests.contracts.model.outcome import Tx, refuse_if_any
from tests.contracts.model.values import Worker

if TYPE_CHECKING:
    from tests.contracts.model.world import Model

Info = tuple[Address, tuple[bytes, ...], str, int, int]
Errors = list[tuple[Any, ...]]


class Registry:
    def __init__(self, model: Model) -> None:
        self._model = model
        self.all: dict[Address, Worker] = {}

    def is_active(self, signer: Address) -> bool:
        worker = self.all.get(signer)
        return worker is not None and worker.enabled and worker.staked

    def not_owner(self, tx: Tx, signer: Address) -> Errors:
        worker = self.all.get(signer)
        errors: Errors = [] if worker else [("NotRegistered", signer)]
        if worker is None or worker.owner != tx.sender:
            errors.append(("NotOwner", tx.sender))
        return errors

    def register(self, tx: Tx, info: Info, consent: tuple[bytes, bytes]) -> None:
        signer, models, endpoint, slots, memory_mb = info
        errors = _offer_errors(info)
        if signer in self.all:
            errors.append(("AlreadyRegistered", signer))
        domain = domain_separator(CHAIN_ID, PlainAddress(self._model.at["registry"]))
        digest = consent_digest(domain, PlainAddress(tx.sender), PlainAddress(signer))
        try:
            recovered = recover(Hash32(digest), CompactSignature(consent[0] + consent[1]))
        except BadSignature:
            recovered = None
        if recovered != PlainAddress(signer):
            errors.append(("BadConsent", signer))
        refuse_if_any(errors)
        self.all[signer] = Worker(tx.sender, models, endpoint, slots, memory_mb)
        self._model.emit("registry", "WorkerRegistered", signer, tx.sender, *info[1:])

    def update(self, tx: Tx, info: Info) -> None:
        signer, models, endpoint, slots, memory_mb = info
        refuse_if_any(self.not_owner(tx, signer) + _offer_errors(info))
        self.all[signer] = replace(
            self.all[signer], models=models, endpoint=endpoint, slots=slots, memory_mb=memory_mb
        )
        self._model.emit("registry", "WorkerUpdated", signer, tx.sender, *info[1:])

    def set_enabled(self, tx: Tx, signer: Address, enabled: bool) -> None:
        refuse_if_any(self.not_owner(tx, signer))
        self.all[signer] = replace(self.all[signer], enabled=enabled)
        self._model.emit("registry", "WorkerEnabled", signer, enabled)

    def set_staked(self, signer: Address, staked: bool) -> None:
        if self.all[signer].staked != staked:
            self.all[signer] = replace(self.all[signer], staked=staked)
            self._model.emit("registry", "WorkerStaked", signer, staked)


def _offer_errors(info: Info) -> Errors:
    errors: Errors = [] if info[1] else [("NoModels",)]
    return errors if info[3] else [*errors, ("NoSlots",)]
