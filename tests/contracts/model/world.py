"""The whole protocol in plain Python, from the words of its interfaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from indexer.types import Hash32
from inferd.protocol.typed_data import BadSignature, CompactSignature, recover
from tests.contracts.abi import NOBODY, Address, Event
from tests.contracts.books import Books, holds_of, record_of
from tests.contracts.cast import ADMIN
from tests.contracts.model.credits import Credits, refuses_money
from tests.contracts.model.disputes import Disputes
from tests.contracts.model.hashes import attestation_digest_of
from tests.contracts.model.outcome import Expected, Refused, Tx, refuse_if_any
from tests.contracts.model.owned import Owned
from tests.contracts.model.requests import Requests
from tests.contracts.model.results import Results
from tests.contracts.model.settling import Settling
from tests.contracts.model.stakes import Stakes
from tests.contracts.model.terms import TermsBook
from tests.contracts.model.values import Behaviour, Item, Reaction
from tests.contracts.model.workers import Registry


class Model:
    def __init__(
        self,
        at: dict[str, Address],
        consumers: list[Address],
        odd: Address,
        poster_bps: int,
        now: int,
    ) -> None:
        self.at = at
        self.odd_verifier = odd
        self.poster_bps = poster_bps
        self.now = now
        self.reactions = {consumer: Reaction() for consumer in consumers}
        self.enclaves: dict[tuple[bytes, Address], bool] = {}
        self.credits = Credits(self)
        self.owned = Owned(self, "requests", ADMIN)
        self.owned_verifier = Owned(self, "verifier", ADMIN)
        self.terms = TermsBook(self)
        self.requests = Requests(self, 1)
        self.settling = Settling(self)
        self.results = Results(self)
        self.registry = Registry(self)
        self.stakes = Stakes(self)
        self.disputes = Disputes(self)
        self.received: Counter[Address] = Counter()
        """What each account got less what it gave."""
        self._events: list[Expected] = []

    def perform(
        self, role: str, function: str, arguments: tuple[Any, ...], tx: Tx
    ) -> tuple[Any, list[Expected]]:
        """What the call returns, and its events. Raises Refused, having changed only the time."""
        self.now = tx.now
        self._events = []
        if tx.value and function not in _PAYABLE:
            raise Refused([("Empty",)])
        returned = self._actions()[role, function](tx, *arguments)
        self._move(tx.sender, self.at[role], tx.value)
        return returned, self._events

    def books(self) -> Books:
        requests = self.requests.all
        answered = {id_: r for id_, r in requests.items() if r.digest is not None}
        return Books(
            self.requests.next_id,
            self.requests.paused,
            self.owned.owner,
            self.owned.pending,
            self.owned_verifier.owner,
            self.owned_verifier.pending,
            self.disputes.arbiter,
            dict(self.credits.of),
            self.registry.all,
            self.stakes.all,
            {id_: record_of(r) for id_, r in requests.items() if not r.settled},
            {id_ for id_, r in requests.items() if r.settled},
            {i: r.digest or b"" for i, r in answered.items() if r.params.delivery == 1},
            {
                id_: (r.commitment, r.digest or b"")
                for id_, r in answered.items()
                if r.params.delivery == 2 and not r.called
            },
            self.terms.of_model,
            {id_: r.terms for id_, r in requests.items()},
            holds_of(self.disputes.all),
            self.enclaves,
        )

    def emit(self, contract: str, name: str, *args: Any) -> None:
        self._events.append(Event(contract, name, args))

    def expect(self, expected: Expected) -> None:
        self._events.append(expected)

    def pay(self, role: str, to: Address, amount: int) -> None:
        self._move(self.at[role], to, amount)

    def _move(self, sender: Address, to: Address, amount: int) -> None:
        self.received[sender] -= amount
        self.received[to] += amount

    # Contracts outside the protocol

    def has_code(self, who: Address) -> bool:
        return who in self.reactions or who in self.at.values() or who == self.odd_verifier

    def accepts_money(self, to: Address) -> bool:
        """The protocol's own contracts take no plain transfers, and nobody's money is lost."""
        if to in self.reactions:
            return not refuses_money(self.reactions[to].mode)
        return to != NOBODY and to not in self.at.values() and to != self.odd_verifier

    def react_to_money(self, now: int, to: Address) -> None:
        if to in self.reactions:
            self.react(now, to)

    def react(self, now: int, consumer: Address) -> None:
        """What a consumer does when it is called or paid."""
        reaction = self.reactions[consumer]
        if reaction.mode != Behaviour.REENTER:
            return
        action = self._actions()[reaction.role, reaction.function]
        try:
            action(Tx(consumer, 0, now), *reaction.arguments)
            succeeded = True
        except Refused:
            succeeded = False
        self.emit("consumer", "Reentered", succeeded)

    def behave(self, tx: Tx, consumer: Address, reaction: Reaction) -> None:
        self.now = tx.now
        self.reactions[consumer] = reaction

    def verifies(self, verifier: Address, model_id: bytes, item: Item, proof: bytes) -> bool:
        if verifier == self.odd_verifier:
            return proof[:1] == b"\1"
        if verifier != self.at["verifier"]:
            return False
        digest = attestation_digest_of(verifier, item.id, model_id, item.commitment, item.digest)
        try:
            key = Address(recover(Hash32(digest), CompactSignature(proof)))
        except BadSignature:
            return False
        return self.enclaves.get((model_id, key), False)

    def _set_enclave(self, tx: Tx, model_id: bytes, key: Address, trusted: bool) -> None:
        errors = self.owned_verifier.not_owner(tx)
        if key == NOBODY:
            errors.append(("ZeroKey",))
        refuse_if_any(errors)
        self.enclaves[model_id, key] = trusted
        self.emit("verifier", "EnclaveSet", model_id, key, trusted)

    def _intrude(self, error: str) -> Callable[..., Any]:
        def refuse(tx: Tx, *_: Any) -> None:
            raise Refused([(error, tx.sender)])

        return refuse

    def _actions(self) -> dict[tuple[str, str], Callable[..., Any]]:
        return {
            ("requests", "submit"): self.requests.submit,
            ("requests", "submitMany"): self.requests.submit_many,
            ("requests", "raiseFee"): self.requests.raise_fee,
            ("requests", "requestCancel"): self.requests.request_cancel,
            ("requests", "refund"): self.requests.refund,
            ("requests", "setPaused"): self.requests.set_paused,
            ("requests", "withdraw"): self.credits.withdraw,
            ("requests", "withdrawTo"): self.credits.withdraw_to,
            ("requests", "credit"): self.credits.credit,
            ("requests", "transferCredit"): self.credits.transfer,
            ("requests", "setModelTerms"): self.terms.set,
            ("requests", "offerOwnership"): self.owned.offer,
            ("requests", "acceptOwnership"): self.owned.accept,
            ("requests", "settle"): self._intrude("NotResults"),
            ("requests", "settleJoint"): self._intrude("NotResults"),
            ("requests", "takeCallback"): self._intrude("NotResults"),
            ("requests", "returnCallback"): self._intrude("NotResults"),
            ("results", "post"): self.results.post,
            ("results", "postProven"): self.results.post_proven,
            ("results", "deliver"): self.results.deliver,
            ("registry", "register"): self.registry.register,
            ("registry", "update"): self.registry.update,
            ("registry", "setEnabled"): self.registry.set_enabled,
            ("registry", "setStaked"): self._intrude("NotStakeManager"),
            ("stakes", "stake"): self.stakes.stake,
            ("stakes", "unstake"): self.stakes.unstake,
            ("stakes", "withdrawStake"): self.stakes.withdraw,
            ("stakes", "slashEquivocation"): self.stakes.slash_equivocation,
            ("stakes", "slashLoser"): self._intrude("NotDisputes"),
            ("disputes", "hold"): self._intrude("NotRequests"),
            ("disputes", "release"): self.disputes.release,
            ("disputes", "open"): self.disputes.open,
            ("disputes", "rule"): self.disputes.rule,
            ("disputes", "close"): self.disputes.close,
            ("disputes", "setArbiter"): self.disputes.set_arbiter,
            ("verifier", "setEnclave"): self._set_enclave,
            ("verifier", "offerOwnership"): self.owned_verifier.offer,
            ("verifier", "acceptOwnership"): self.owned_verifier.accept,
        }


_PAYABLE = {"submit", "submitMany", "raiseFee", "credit", "stake", "open"}
