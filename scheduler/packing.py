"""Which results share a transaction: each pays for what it adds, and together they fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.model import (
    NO_DATA_FEE,
    DataFee,
    DeliveryKind,
    GasModel,
    ReadyResult,
    RequestKey,
    WorkerId,
)


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
    """What a transaction may hold, and what gas costs. A group is what one worker has in it."""

    gas: GasModel
    price_wei: int
    """Of a unit of gas."""
    max_gas: int
    max_results: int
    data_fee: DataFee = NO_DATA_FEE

    def gas_of(self, results: Sequence[ReadyResult]) -> int:
        """Of a transaction that posts these."""
        return self.gas.of(
            len({result.worker for result in results}),
            len(results),
            stored=sum(r.delivery is DeliveryKind.STORED for r in results),
            callbacks=sum(r.delivery is DeliveryKind.CALLBACK for r in results),
        )

    def cost_wei(self, results: Sequence[ReadyResult]) -> int:
        """Of a transaction that posts these."""
        return self.gas_of(results) * self.price_wei + self.data_wei(results)

    def data_wei(self, results: Sequence[ReadyResult]) -> int:
        """What of that is not for gas."""
        groups = len({result.worker for result in results})
        return self.data_fee.of(groups, len(results), self.gas_of(results))

    def later_wei(self, results: Iterable[ReadyResult]) -> int:
        """Of the calls of contracts that posting these leads to."""
        return sum(r.later_gas * self.price_wei + r.later_data_wei for r in results)

    def surplus_wei(self, result: ReadyResult) -> int:
        """What a result earns beyond the gas that it adds to a batch with its worker in it."""
        own_gas = self.gas.of_result(result.delivery)
        data_wei = self.data_fee.per_result_wei + self.data_fee.per_gas_wei * own_gas
        return result.revenue_wei - own_gas * self.price_wei - data_wei - self.later_wei([result])

    def pays(self, results: Sequence[ReadyResult]) -> bool:
        """Whether a transaction that posts these earns its gas, and that of what follows."""
        revenue_wei = sum(result.revenue_wei for result in results)
        return bool(results) and revenue_wei >= self.cost_wei(results) + self.later_wei(results)

    def sort_out(self, results: Iterable[ReadyResult]) -> Sorted:
        """One result a request, and of these the ones that pay for what they add."""
        alive = list(results)
        # The best of several results for one request: what earns most, then what came first.
        best: dict[RequestKey, ReadyResult] = {}
        for result in sorted(alive, key=lambda r: (-r.revenue_wei, r.computed_at_s, r.worker)):
            best.setdefault(result.key, result)
        alone = [
            r
            for r in best.values()
            if not r.batchable and self.pays([r]) and self.gas_of([r]) <= self.max_gas
        ]
        paying = [r for r in best.values() if r.batchable and self.surplus_wei(r) >= 0]
        losing = self.losing_workers(paying)
        together = [r for r in paying if r.worker not in losing]
        return Sorted(
            together,
            alone,
            duplicates=len(alive) - len(best),
            unprofitable=len(best) - len(together) - len(alone),
        )

    def losing_workers(self, results: Iterable[ReadyResult]) -> set[WorkerId]:
        """The workers whose results do not even pay for their own group in a batch."""
        data_fee, group_gas = self.data_fee, self.gas.per_group_gas
        group_wei = group_gas * (self.price_wei + data_fee.per_gas_wei) + data_fee.per_group_wei
        surplus_wei: dict[WorkerId, int] = {}
        for result in results:
            so_far_wei = surplus_wei.get(result.worker, 0)
            surplus_wei[result.worker] = so_far_wei + self.surplus_wei(result)
        return {worker for worker, earned_wei in surplus_wei.items() if earned_wei < group_wei}

    def fill(self, ordered: Sequence[ReadyResult]) -> list[ReadyResult]:
        """The longest batch in that order within the caps whose every group pays for itself."""
        candidates = list(ordered)
        while True:
            chosen: list[ReadyResult] = []
            workers: set[WorkerId] = set()
            gas = self.gas.of(0, 0)
            for result in candidates:
                if len(chosen) >= self.max_results:
                    break
                added = self._added_gas(result, workers)
                if gas + added <= self.max_gas:
                    gas += added
                    chosen.append(result)
                    workers.add(result.worker)
            # The caps can cut a group to less than it costs; without it there is room for others.
            losing = self.losing_workers(chosen)
            if not losing:
                return chosen
            candidates = [r for r in candidates if r.worker not in losing]

    def is_full(self, results: Sequence[ReadyResult]) -> bool:
        """Whether one more result would not fit beside these, in count or in gas."""
        one_more = self.gas_of(results) + self.gas.of_result(DeliveryKind.EVENT)
        return len(results) >= self.max_results or one_more > self.max_gas

    def _added_gas(self, result: ReadyResult, workers: Collection[WorkerId]) -> int:
        group_gas = 0 if result.worker in workers else self.gas.per_group_gas
        return group_gas + self.gas.of_result(result.delivery)
