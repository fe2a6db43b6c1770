"""The state that logs alone give: what an indexer can know."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from tests.contracts.abi import NOBODY, Address, Event
from tests.contracts.books import Books, Record
from tests.contracts.cast import GWEI
from tests.contracts.model.values import (
    NO_TERMS,
    Delivery,
    HoldStatus,
    Stake,
    Terms,
    Worker,
)


class Replay:
    """Fed with every log in order. Constants of the deployment are all it has besides."""

    def __init__(self, disputes: Address) -> None:
        self._disputes = disputes
        self.next_id = 1
        self.paused = False
        self.owners: dict[str, tuple[Address, Address]] = {
            "requests": (NOBODY, NOBODY),
            "verifier": (NOBODY, NOBODY),
        }
        self.arbiter = NOBODY
        self.credits: Counter[Address] = Counter()
        self.workers: dict[Address, Worker] = {}
        self.stakes: dict[Address, Stake] = {}
        self.records: dict[int, Record] = {}
        self.settled: set[int] = set()
        self.stored: dict[int, bytes] = {}
        self.owed: dict[int, tuple[bytes, bytes]] = {}
        self.terms: dict[bytes, Terms] = {}
        self.terms_of_request: dict[int, Terms] = {}
        self.holds: dict[int, HoldStatus] = {}
        self.enclaves: dict[tuple[bytes, Address], bool] = {}

    def books(self) -> Books:
        return Books(
            self.next_id,
            self.paused,
            *self.owners["requests"],
            *self.owners["verifier"],
            self.arbiter,
            dict(self.credits),
            self.workers,
            self.stakes,
            self.records,
            self.settled,
            self.stored,
            self.owed,
            self.terms,
            self.terms_of_request,
            self.holds,
            self.enclaves,
        )

    def take(self, event: Event) -> None:
        """Events that change nothing have no method here."""
        method = getattr(self, f"_on_{event.name}", None)
        if event.name.startswith("Ownership"):
            self._ownership(event)
        elif method is not None:
            method(*event.args)

    def _ownership(self, event: Event) -> None:
        first, second = event.args
        taken = event.name == "OwnershipTaken"
        self.owners[event.contract] = (second, NOBODY) if taken else (first, second)

    # Requests

    def _on_InferenceRequested(  # noqa: N802
        self, id_: int, _who: Address, model_id: bytes, word: int, _limits: int, _input: bytes
    ) -> None:
        self.next_id = id_ + 1
        commitment = (word >> 88 & 2**160 - 1).to_bytes(20, "big")
        self.records[id_] = Record(
            *(word & 2**48 - 1, word >> 48 & 2**40 - 1, commitment, word >> 248 & 3),
            *(word >> 250 & 15, bool(word >> 254 & 1), bool(word >> 255)),
        )
        if word >> 255:
            self.terms_of_request[id_] = self.terms.get(model_id, NO_TERMS)

    def _on_FeeRaised(self, id_: int, fee: int) -> None:  # noqa: N802
        self.records[id_] = replace(self.records[id_], fee_gwei=fee // GWEI)

    def _on_CancelRequested(self, id_: int, deadline: int) -> None:  # noqa: N802
        self.records[id_] = replace(self.records[id_], deadline=deadline)

    def _on_InferenceFulfilled(self, id_: int, _worker: Address, digest: bytes) -> None:  # noqa: N802
        record = self.records.pop(id_)
        self.settled.add(id_)
        if record.delivery == Delivery.STORED:
            self.stored[id_] = digest
        elif record.delivery == Delivery.CALLBACK:
            self.owed[id_] = (record.commitment, digest)

    def _on_RequestRefunded(self, id_: int, who: Address, amount: int) -> None:  # noqa: N802
        del self.records[id_]
        self.settled.add(id_)
        self.credits[who] += amount

    def _on_CallbackDelivered(self, id_: int, _consumer: Address) -> None:  # noqa: N802
        del self.owed[id_]

    def _on_PausedSet(self, paused: bool) -> None:  # noqa: N802
        self.paused = paused

    def _on_ModelTermsSet(self, id_: int, *terms: Any) -> None:  # noqa: N802
        self.terms[terms[0]] = Terms(*terms) if id_ else NO_TERMS

    # Money

    def _on_WorkerPaid(self, _worker: Address, owner: Address, _n: int, amount: int) -> None:  # noqa: N802
        self.credits[owner] += amount

    def _on_PosterPaid(self, poster: Address, amount: int) -> None:  # noqa: N802
        self.credits[poster] += amount

    def _on_Credited(self, account: Address, _sender: Address, amount: int) -> None:  # noqa: N802
        self.credits[account] += amount

    def _on_CreditTransferred(self, sender: Address, to: Address, amount: int) -> None:  # noqa: N802
        self.credits[sender] -= amount
        self.credits[to] += amount

    def _on_Withdrawn(self, account: Address, _to: Address, amount: int) -> None:  # noqa: N802
        self.credits[account] -= amount

    # Workers

    def _on_WorkerRegistered(self, signer: Address, owner: Address, *offer: Any) -> None:  # noqa: N802
        self.workers[signer] = Worker(owner, *offer)

    def _on_WorkerUpdated(self, signer: Address, owner: Address, *offer: Any) -> None:  # noqa: N802
        before = self.workers[signer]
        updated = Worker(owner, *offer)
        self.workers[signer] = replace(updated, enabled=before.enabled, staked=before.staked)

    def _on_WorkerEnabled(self, signer: Address, enabled: bool) -> None:  # noqa: N802
        self.workers[signer] = replace(self.workers[signer], enabled=enabled)

    def _on_WorkerStaked(self, signer: Address, staked: bool) -> None:  # noqa: N802
        self.workers[signer] = replace(self.workers[signer], staked=staked)

    def _stake(self, signer: Address, **changes: Any) -> None:
        self.stakes[signer] = replace(self.stakes.get(signer, Stake()), **changes)

    def _on_Staked(self, signer: Address, _from: Address, _amount: int, staked: int) -> None:  # noqa: N802
        self._stake(signer, staked=staked)

    def _on_UnstakeStarted(  # noqa: N802
        self, signer: Address, _amount: int, staked: int, unbonding: int, withdrawable_at: int
    ) -> None:
        self._stake(signer, staked=staked, unbonding=unbonding, withdrawable_at=withdrawable_at)

    def _on_StakeWithdrawn(self, signer: Address, _to: Address, _amount: int) -> None:  # noqa: N802
        self._stake(signer, unbonding=0, withdrawable_at=0)

    def _on_Slashed(  # noqa: N802
        self, signer: Address, _reporter: Address, _amount: int, staked: int, unbonding: int
    ) -> None:
        self._stake(signer, staked=staked, unbonding=unbonding)

    def _on_Equivocated(self, signer: Address, *_: Any) -> None:  # noqa: N802
        self._stake(signer, barred=True)

    # Disputes

    def _on_PaymentHeld(self, id_: int, *rest: Any) -> None:  # noqa: N802
        self.holds[id_] = HoldStatus.HELD
        self.credits[self._disputes] += rest[4] + rest[6]

    def _on_PaymentReleased(self, id_: int) -> None:  # noqa: N802
        self.holds[id_] = HoldStatus.CLOSED

    def _on_DisputeOpened(self, id_: int, *_: Any) -> None:  # noqa: N802
        self.holds[id_] = HoldStatus.DISPUTED

    def _on_DisputeRuled(self, id_: int, *_: Any) -> None:  # noqa: N802
        self.holds[id_] = HoldStatus.CLOSED

    def _on_DisputeLapsed(self, id_: int) -> None:  # noqa: N802
        self.holds[id_] = HoldStatus.CLOSED

    def _on_ArbiterSet(self, arbiter: Address) -> None:  # noqa: N802
        self.arbiter = arbiter

    def _on_EnclaveSet(self, model_id: bytes, key: Address, trusted: bool) -> None:  # noqa: N802
        self.enclaves[model_id, key] = trusted
