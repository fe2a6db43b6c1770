"""Which results share a transaction: each pays for what it adds, and together they fit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from scheduler.model import NO_DATA_FEE, DataFee, DeliveryKind, GasModel, RequestKey, WorkerId
from scheduler.posting_model import ReadyResult

Signers = tuple[WorkerId, ...]
_Valued = tuple[int, ReadyResult]
"""A result and its surplus."""


class Sorted(NamedTuple):
    """The ready results: those that may be posted, and how many may not and why."""

    together: list[ReadyResult]
    """May share a transaction and pay for what they add to it."""
    alone: list[ReadyResult]
    """Must travel alone and pay for a transaction of their own."""
    duplicates: int
    unprofitable: int


@dataclass(frozen=True, slots=True)
class Packing:
    """What a transaction may hold, and what gas costs. A group is what one worker has in it, or
    the same workers of a quorum; each of its signatures takes the gas of a group."""

    gas: GasModel
    price_wei: int
    """Of a unit of gas."""
    max_gas: int
    max_results: int
    data_fee: DataFee = NO_DATA_FEE

    def gas_of(self, results: Sequence[ReadyResult]) -> int:
        """Of a transaction that posts these."""
        return self.gas.of(
            signatures(results),
            len(results),
            stored=sum(r.delivery is DeliveryKind.STORED for r in results),
            callbacks=sum(r.delivery is DeliveryKind.CALLBACK for r in results),
        )

    def cost_wei(self, results: Sequence[ReadyResult]) -> int:
        """Of a transaction that posts these."""
        return self.gas_of(results) * self.price_wei + self.data_wei(results)

    def data_wei(self, results: Sequence[ReadyResult]) -> int:
        """What of that is not for gas."""
        return self.data_fee.of(signatures(results), len(results), self.gas_of(results))

    def later_wei(self, results: Iterable[ReadyResult]) -> int:
        """Of the calls of contracts that posting these leads to."""
        return sum(r.later_gas * self.price_wei + r.later_data_wei for r in results)

    def surplus_wei(self, result: ReadyResult) -> int:
        """What a result earns beyond the gas that it adds to a batch with its group in it."""
        own_gas = self.gas.of_result(result.delivery)
        data_wei = self.data_fee.per_result_wei + self.data_fee.per_gas_wei * own_gas
        return result.revenue_wei - own_gas * self.price_wei - data_wei - self.later_wei([result])

    def pays(self, results: Sequence[ReadyResult]) -> bool:
        """Whether a transaction that posts these earns its gas, and that of what follows."""
        revenue_wei = sum(result.revenue_wei for result in results)
        return bool(results) and revenue_wei >= self.cost_wei(results) + self.later_wei(results)

    def sort_out(self, results: Iterable[ReadyResult]) -> Sorted:
        """One result a request, and of these the ones that pay for what they add."""
        alive = [(self.surplus_wei(result), result) for result in results]
        alive.sort(key=lambda one: (-one[0], one[1].computed_at_s, one[1].worker))
        # The best of several results for one request: what leaves most, then what came first.
        best: dict[RequestKey, list[_Valued]] = {}
        for one in alive:
            best.setdefault(one[1].key, []).append(one)
        alone = [
            first
            for (_, first), *_ in best.values()
            if not first.batchable and self.pays([first]) and self.gas_of([first]) <= self.max_gas
        ]
        together = self._in_paying_groups(
            [one for one in several if one[0] >= 0 and one[1].batchable]
            for several in best.values()
        )
        return Sorted(
            together,
            alone,
            duplicates=len(alive) - len(best),
            unprofitable=len(best) - len(together) - len(alone),
        )

    def group_wei(self, signers: Signers) -> int:
        """What a group adds to a transaction beside its results."""
        data_fee, group_gas = self.data_fee, self.gas.per_group_gas
        each_wei = group_gas * (self.price_wei + data_fee.per_gas_wei) + data_fee.per_group_wei
        return each_wei * len(signers)

    def _in_paying_groups(self, requests: Iterable[Sequence[_Valued]]) -> list[ReadyResult]:
        """One result of each request, the first that is of a group which pays for itself.

        Groups that would lose with all that they could have go at once. The others depend on each
        other: the one that loses most goes, what it had goes to the next that has it, and so on.
        O(n log n): a result is given and taken once at most.
        """
        several = list(requests)
        could_have_wei: dict[Signers, int] = {}
        for results in several:
            for surplus_wei, one in results:
                so_far_wei = could_have_wei.get(one.signers, 0)
                could_have_wei[one.signers] = so_far_wei + surplus_wei
        left_wei = {signers: -self.group_wei(signers) for signers in could_have_wei}
        gone = {signers for signers, wei in could_have_wei.items() if wei + left_wei[signers] < 0}
        had: dict[Signers, list[deque[_Valued]]] = {}

        def give(choice: deque[_Valued]) -> Signers | None:
            while choice and choice[0][1].signers in gone:
                choice.popleft()
            if not choice:
                return None
            surplus_wei, one = choice[0]
            had.setdefault(one.signers, []).append(choice)
            left_wei[one.signers] += surplus_wei
            return one.signers

        for results in several:
            give(deque(results))
        losing = [(left_wei[signers], signers) for signers in had if left_wei[signers] < 0]
        heapify(losing)
        while losing:
            wei, signers = heappop(losing)
            if signers in gone or wei != left_wei[signers]:
                continue
            gone.add(signers)
            for choice in had.pop(signers):
                to = give(choice)
                if to is not None and left_wei[to] < 0:
                    heappush(losing, (left_wei[to], to))
        return [choice[0][1] for choices in had.values() for choice in choices]

    def by_group(self, results: Iterable[ReadyResult]) -> list[ReadyResult]:
        """The group first that leaves most where it has a transaction to itself, of each what
        leaves most first; of several results for one request, the first in that order."""
        groups: dict[Signers, list[ReadyResult]] = {}
        for result in sorted(results, key=lambda r: (-self.surplus_wei(r), r.key.id)):
            if result.batchable and self.surplus_wei(result) >= 0:
                groups.setdefault(result.signers, []).append(result)

        def left_wei(signers: Signers) -> int:
            own = self.fill(groups[signers])
            return sum(map(self.surplus_wei, own)) - self.group_wei(signers) if own else 0

        in_order = sorted(groups, key=lambda signers: (-left_wei(signers), signers))
        first: dict[RequestKey, ReadyResult] = {}
        for signers in in_order:
            for result in groups[signers]:
                first.setdefault(result.key, result)
        return list(first.values())

    def fill(self, ordered: Sequence[ReadyResult]) -> list[ReadyResult]:
        """A batch within the caps whose every group pays for itself, first come first served.

        The caps can cut a group to less than it costs; without it there is room for others. Each
        result is taken, and dropped again, at most once: O(n log n).
        """
        batch = _Batch(self)
        left_out: deque[int] = deque()
        place = 0
        while True:
            while left_out and batch.takes(left_out[0], ordered[left_out[0]]):
                left_out.popleft()
            while place < len(ordered) and batch.has_room():
                if not batch.takes(place, ordered[place]):
                    left_out.append(place)
                place += 1
            if not batch.drop_losing():
                break
        # The first that is left out may be large, and one behind it fit into a group that is there.
        for left in left_out:
            if batch.has_group(ordered[left].signers):
                batch.takes(left, ordered[left])
        return batch.results()

    def is_full(self, results: Sequence[ReadyResult]) -> bool:
        """Whether one more result would not fit beside these, in count or in gas."""
        one_more = self.gas_of(results) + self.gas.of_result(DeliveryKind.EVENT)
        return len(results) >= self.max_results or one_more > self.max_gas


def signatures(results: Iterable[ReadyResult]) -> int:
    """How many a transaction has that posts these."""
    return sum(len(signers) for signers in {result.signers for result in results})


class _Batch:
    """A transaction as it is filled: results by their place in the order, by group."""

    def __init__(self, packing: Packing) -> None:
        gas = packing.gas
        self._packing = packing
        self._gas = gas.of(0, 0)
        self._least_gas = min(gas.of_result(kind) for kind in DeliveryKind)
        self._groups: dict[Signers, dict[int, ReadyResult]] = {}
        self._surplus_wei: dict[Signers, int] = {}
        self._losing: set[Signers] = set()
        self._dropped: set[Signers] = set()
        self._count = 0

    def has_room(self) -> bool:
        """Whether any result might still fit."""
        packing = self._packing
        is_below = self._count < packing.max_results
        return is_below and self._gas + self._least_gas <= packing.max_gas

    def has_group(self, signers: Signers) -> bool:
        return signers in self._groups

    def takes(self, place: int, result: ReadyResult) -> bool:
        """Adds it if it fits; False = no room. One of a dropped group is passed over."""
        packing, signers = self._packing, result.signers
        if signers in self._dropped:
            return True
        added = packing.gas.of_result(result.delivery)
        if signers not in self._groups:
            added += packing.gas.per_group_gas * len(signers)
        if self._count >= packing.max_results or self._gas + added > packing.max_gas:
            return False
        self._gas += added
        self._count += 1
        self._groups.setdefault(signers, {})[place] = result
        surplus_wei = self._surplus_wei.get(signers, 0) + packing.surplus_wei(result)
        self._surplus_wei[signers] = surplus_wei
        if surplus_wei < packing.group_wei(signers):
            self._losing.add(signers)
        else:
            self._losing.discard(signers)
        return True

    def drop_losing(self) -> bool:
        """Drops the groups that do not pay for themselves, for good; whether there were any."""
        gas = self._packing.gas
        losing, self._losing = self._losing, set()
        for signers in losing:
            group = self._groups.pop(signers)
            self._count -= len(group)
            self._gas -= gas.per_group_gas * len(signers)
            self._gas -= sum(gas.of_result(r.delivery) for r in group.values())
        self._dropped |= losing
        return bool(losing)

    def results(self) -> list[ReadyResult]:
        """In order."""
        placed = [item for group in self._groups.values() for item in group.items()]
        return [result for _, result in sorted(placed, key=itemgetter(0))]
