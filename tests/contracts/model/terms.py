"""What models ask for beyond one worker's signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contracts.abi import NOBODY
from tests.contracts.cast import MAX_QUORUM
from tests.contracts.model.outcome import Tx, refuse_if_any
from tests.contracts.model.values import NO_TERMS, Terms

if TYPE_CHECKING:
    from tests.contracts.model.world import Model


class TermsBook:
    def __init__(self, model: Model) -> None:
        self._model = model
        self.of_model: dict[bytes, Terms] = {}
        self.count = 0

    def current(self, model_id: bytes) -> Terms:
        return self.of_model.get(model_id, NO_TERMS)

    def for_request(self, model_id: bytes) -> Terms:
        terms = self.current(model_id)
        return terms if terms.verifier != NOBODY or terms.dispute_window else NO_TERMS

    def set(self, tx: Tx, raw: tuple[object, ...]) -> int:
        terms = Terms(*raw)  # type: ignore[arg-type]
        longest = self._model.disputes.max_window
        errors = self._model.owned.not_owner(tx)
        if terms.verifier != NOBODY and not self._model.has_code(terms.verifier):
            errors.append(("VerifierWithoutCode", terms.verifier))
        if terms.dispute_window > longest:
            errors.append(("WindowTooLong", terms.dispute_window, longest))
        if terms.dispute_window and not terms.bond_gwei:
            errors.append(("BondZero",))
        if terms.min_quorum > MAX_QUORUM:
            errors.append(("QuorumOutOfRange", terms.min_quorum, 0, MAX_QUORUM))
        refuse_if_any(errors)
        asks = terms.verifier != NOBODY or terms.dispute_window or terms.min_quorum > 1
        if not asks:
            self.of_model.pop(terms.model_id, None)
            terms_id = 0
        else:
            self.of_model[terms.model_id] = terms
            self.count += 1
            terms_id = self.count
        self._model.emit("requests", "ModelTermsSet", terms_id, *terms)
        return terms_id
