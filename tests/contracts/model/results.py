"""Groups of signed results, and callbacks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from eth_utils.crypto import keccak

from indexer.types import Hash32
from inferd.protocol.typed_data import BadSignature, CompactSignature, recover
from tests.contracts.abi import NOBODY, Address, Event
from tests.contracts.cast import MAX_QUORUM
from tests.contracts.model.hashes import commitment_of, group_digest_of, params_hash
from tests.contracts.model.outcome import ANY_NUMBER, Between, EitherEvent, OneOf, Refused, Tx
from tests.contracts.model.values import (
    Behaviour,
    CallbackSkip,
    Delivery,
    GroupSkip,
    Item,
    Params,
    Request,
    Skip,
)

if TYPE_CHECKING:
    from tests.contracts.model.world import Model

ITEM = 60
ENOUGH_FOR_A_CALLBACK = 100_000
Signature = tuple[bytes, bytes]
Group = tuple[bytes, list[Signature]]
Claim = tuple[int, Address, Params, bytes]


class Results:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._gas = inf
        """What a call gets that is made now: within a consumer's, less than that one's."""

    def post(self, tx: Tx, groups: list[Group], root: bytes) -> int:
        settled = 0
        for index, (packed, signatures) in enumerate(groups):
            settled += self._post_group(tx, index, packed, signatures, None)
        return self._anchor(tx, root, settled)

    def post_proven(
        self, tx: Tx, groups: list[tuple[bytes, list[Signature], list[bytes]]], root: bytes
    ) -> int:
        settled = 0
        for index, (packed, signatures, proofs) in enumerate(groups):
            settled += self._post_group(tx, index, packed, signatures, proofs)
        return self._anchor(tx, root, settled)

    def _anchor(self, tx: Tx, root: bytes, settled: int) -> int:
        if root != bytes(32):
            self._model.emit("results", "DecisionsAnchored", root, tx.sender)
        return settled

    def _post_group(
        self,
        tx: Tx,
        index: int,
        packed: bytes,
        signatures: list[Signature],
        proofs: list[bytes] | None,
    ) -> int:
        signers, reasons = self._check_group(packed, signatures, proofs)
        if reasons:
            self._model.emit("results", "GroupSkipped", index, OneOf(tuple(reasons)))
            return 0
        settled: list[Item] = []
        for place, item in enumerate(unpacked(packed)):
            proof = None if proofs is None else proofs[place]
            if self._passes(tx.now, item, len(signers), proof, [i.id for i in settled]):
                settled.append(item)
        return self._model.settling.settle(tx.now, settled, signers, tx.sender)

    def _check_group(
        self, packed: bytes, signatures: list[Signature], proofs: list[bytes] | None
    ) -> tuple[tuple[Address, ...], set[GroupSkip]]:
        reasons = set()
        if len(packed) % ITEM or not packed:
            reasons.add(GroupSkip.BAD_LENGTH)
        if not 1 <= len(signatures) <= MAX_QUORUM:
            reasons.add(GroupSkip.BAD_SIGNER_COUNT)
        if proofs is not None and len(proofs) != len(packed) // ITEM:
            reasons.add(GroupSkip.BAD_PROOF_COUNT)
        digest = group_digest_of(self._model.at["results"], packed)
        signers: list[Address] = []
        for r, vs in signatures:
            try:
                signers.append(Address(recover(Hash32(digest), CompactSignature(r + vs))))
            except BadSignature:
                reasons.add(GroupSkip.BAD_SIGNATURE)
        if any(not self._model.registry.is_active(signer) for signer in signers):
            reasons.add(GroupSkip.INACTIVE_WORKER)
        if any(a >= b for a, b in pairwise(signers)):
            reasons.add(GroupSkip.SIGNERS_NOT_ASCENDING)
        return tuple(signers), reasons

    def _passes(
        self, now: int, item: Item, signers: int, proof: bytes | None, taken: list[int]
    ) -> bool:
        """Whether the item is to be settled; if not, the event that says why is noted."""
        reasons = self._model.settling.reasons_against(now, item, signers, proof is not None)
        if item.id in taken:
            reasons = {Skip.ALREADY_SETTLED} | reasons & {Skip.COMMITMENT_MISMATCH}
        events = []
        if reasons:
            events.append(Event("requests", "ResultSkipped", (item.id, OneOf(tuple(reasons)))))
        request = self._model.requests.all.get(item.id)
        if request is not None and proof is not None and self._rejects(request, item, proof):
            verifier = request.terms.verifier
            events.append(Event("results", "ProofRejected", (item.id, verifier)))
        if events:
            self._model.expect(EitherEvent(tuple(events)))
        return not events

    def _rejects(self, request: Request, item: Item, proof: bytes) -> bool:
        verifier = request.terms.verifier
        if verifier == NOBODY:
            return False
        return not self._model.verifies(verifier, request.params.model_id, item, proof)

    # Callbacks

    def deliver(self, tx: Tx, claims: list[Claim]) -> int:
        return sum(self._deliver(tx, *claim) for claim in claims)

    def _deliver(self, tx: Tx, id_: int, requester: Address, params: Params, output: bytes) -> bool:
        model = self._model
        digest = keccak(output)
        opens = commitment_of(model.at["requests"], id_, requester, params_hash(params))
        reasons = set()
        if params.delivery != Delivery.CALLBACK:
            reasons.add(CallbackSkip.NOT_CALLBACK)
        if not self.owes(id_, opens, digest):
            reasons.add(CallbackSkip.NOT_OWED)
        if reasons:
            model.emit("results", "CallbackSkipped", id_, OneOf(tuple(reasons)))
            return False
        given = params.callback_gas_limit
        if given >= self._gas:
            raise Refused([("InsufficientGas", ANY_NUMBER, ANY_NUMBER)])
        model.requests.all[id_] = replace(model.requests.all[id_], called=True)
        reaction = model.reactions[requester]
        failure = _failure(reaction.mode, given)
        if failure is not None:
            model.requests.all[id_] = replace(model.requests.all[id_], called=False)
            model.emit("results", "CallbackFailed", id_, requester, failure)
            return False
        outer_gas, self._gas = self._gas, given
        model.react(tx.now, requester)
        self._gas = outer_gas
        model.emit("consumer", "Called", id_, Between(given - 2_000, given), digest)
        model.emit("results", "CallbackDelivered", id_, requester)
        return True

    def owes(self, id_: int, commitment: bytes, digest: bytes) -> bool:
        request = self._model.requests.all.get(id_)
        return (
            request is not None
            and request.params.delivery == Delivery.CALLBACK
            and request.digest == digest
            and request.commitment == commitment
            and not request.called
        )


def unpacked(packed: bytes) -> list[Item]:
    return [
        Item(int.from_bytes(p[:8], "big"), p[8:28], p[28:])
        for p in (packed[at : at + ITEM] for at in range(0, len(packed) - ITEM + 1, ITEM))
    ]


def _failure(mode: Behaviour, gas: int) -> bytes | None:
    """What a failing consumer returns, as far as it is shown; None if it does not fail."""
    if gas < ENOUGH_FOR_A_CALLBACK or mode == Behaviour.BURN:
        return b""
    if mode == Behaviour.REFUSE_AT_LENGTH:
        return b"".join((32 * i + 1).to_bytes(32, "big") for i in range(4))
    if mode == Behaviour.REFUSE_SHORTLY:
        return keccak(text="No()")[:4]
    return None
