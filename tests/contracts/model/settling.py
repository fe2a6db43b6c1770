"""How results end requests, and who is paid for them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.contracts.abi import Address
from tests.contracts.cast import GWEI
from tests.contracts.model.values import Hold, Item, Skip

if TYPE_CHECKING:
    from tests.contracts.model.world import Model


class Settling:
    def __init__(self, model: Model) -> None:
        self._model = model

    def reasons_against(self, now: int, item: Item, signers: int, proven: bool) -> set[Skip]:
        """Every reason for which the item is not settled; which of them shows is left open."""
        request = self._model.requests.all.get(item.id)
        if request is None:
            return {Skip.UNKNOWN_ID}
        reasons = set()
        if item.commitment != request.commitment:
            reasons.add(Skip.COMMITMENT_MISMATCH)
        if request.settled:
            return reasons | {Skip.ALREADY_SETTLED}
        if now > request.deadline:
            reasons.add(Skip.EXPIRED)
        if request.params.quorum != signers:
            reasons.add(Skip.QUORUM_MISMATCH)
        if request.under_terms and not proven:
            reasons.add(Skip.TERMS_APPLY)
        return reasons

    def settle(
        self, now: int, items: list[Item], workers: tuple[Address, ...], poster: Address
    ) -> int:
        """Settles items against which there is nothing, as one group of these workers."""
        model = self._model
        owners = tuple(model.registry.all[worker].owner for worker in workers)
        shares: dict[Address, int] = defaultdict(int)
        paid_results = for_poster = 0
        for item in items:
            request = model.requests.all[item.id]
            model.requests.all[item.id] = replace(request, digest=item.digest)
            model.emit("requests", "InferenceFulfilled", item.id, workers[0], item.digest)
            cut = request.fee * model.poster_bps // 10_000
            payment = request.fee - cut
            if request.terms.dispute_window:
                until = now + request.terms.dispute_window
                bond = request.terms.bond_gwei * GWEI
                model.disputes.hold(Hold(*item, workers, owners, payment, poster, cut, bond, until))
                continue
            paid_results += 1
            for_poster += cut
            for place, share in enumerate(shared(payment, len(workers))):
                shares[workers[place]] += share
        for worker, owner in zip(workers, owners, strict=True):
            if paid_results:
                model.credits.add(owner, shares[worker])
                model.emit("requests", "WorkerPaid", worker, owner, paid_results, shares[worker])
        if for_poster:
            model.credits.add(poster, for_poster)
            model.emit("requests", "PosterPaid", poster, for_poster)
        return len(items)


def shared(amount: int, among: int) -> list[int]:
    """Equal shares; what does not divide goes to the first."""
    share, rest = divmod(amount, among)
    return [share + rest] + [share] * (among - 1)
