"""Calls the consumers of fulfilled requests, one transaction at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from indexer.database import Pool
from indexer.types import Contracts
from inferd.settlement.callbacks import (
    Callback,
    count_too_large,
    deliver_calldata,
    fitting,
    load_callbacks,
    worst_gas,
)
from inferd.settlement.chain import Sight
from inferd.settlement.fees import Fees, first_fees
from inferd.settlement.holds import Holds
from inferd.settlement.launch import Call, Launcher, gas_cap, gas_limit
from inferd.settlement.records import Draft
from inferd.settlement.settings import PausedReason, SettlementSettings, SettlementStatus

_log = structlog.get_logger("settlement")
_MOST_CALLBACKS = 50
_LOOKED_AT = 4 * _MOST_CALLBACKS
"""More than one transaction takes, so that held ones do not hide the others."""


@dataclass(frozen=True, slots=True)
class _Batch:
    callbacks: Sequence[Callback]
    call: Call
    estimate: int
    """Gas, by the node."""


class Deliverer:
    def __init__(
        self,
        pool: Pool,
        launcher: Launcher,
        contracts: Contracts,
        settings: SettlementSettings,
        status: SettlementStatus,
    ) -> None:
        self._pool = pool
        self._launcher = launcher
        self._contracts = contracts
        self._settings = settings
        self._status = status
        self._holds = Holds()

    async def deliver(self, sight: Sight) -> bool:
        """At most one new transaction; whether there is one. Raises RPC_TROUBLE."""
        cap = gas_cap(self._settings.max_gas, sight)
        found = await load_callbacks(self._pool, cap, self._settings, _LOOKED_AT)
        too_large = await count_too_large(self._pool, cap)
        self._holds.keep_only(callback.outbox_item() for callback in found)
        self._status.callbacks_owed = len(found) + too_large
        self._status.callbacks_left = too_large
        fees = first_fees(sight.next_base_fee_wei, sight.tip_wei, self._settings.fee_caps())
        if not found or fees is None:
            if found:
                self._notice(PausedReason.GAS_PRICE_OVER_CAP)
            return False
        price_wei = sight.next_base_fee_wei + fees.priority_fee_wei
        paid = [callback for callback in found if callback.gas * price_wei <= callback.revenue_wei]
        self._status.callbacks_left += len(found) - len(paid)
        batch = await self._find(self._affordable(paid, cap, fees, sight), cap, sight)
        return batch is not None and await self._launch(batch, cap, fees, sight)

    def _affordable(
        self, callbacks: Sequence[Callback], cap: int, fees: Fees, sight: Sight
    ) -> list[Callback]:
        """What goes into the next transaction; less of it where the money is short."""
        number = sight.head.number
        fresh = [c for c in callbacks if not self._holds.holds(c.outbox_item(), number)]
        wanted = fitting(fresh[:_MOST_CALLBACKS], cap)
        affordable = fitting(wanted, min(cap, sight.free_wei // fees.max_fee_wei))
        if wanted and not affordable:
            self._notice(PausedReason.INSUFFICIENT_FUNDS)
        return affordable

    async def _find(self, chosen: Sequence[Callback], cap: int, sight: Sight) -> _Batch | None:
        """A batch that the contract would deliver; where the whole is none, the first half may be
        one. None holds its first one back.

        Only who is owed is asked of the contract: a consumer that would fail is called all the
        same, since that is what records its failure.
        """
        callbacks = await self._owed(chosen, sight)
        while callbacks:
            calldata = deliver_calldata(callbacks)
            call = Call("InferenceResults", "deliver", self._contracts.results, calldata)
            estimate = await self._launcher.estimate(call)
            if estimate is not None and estimate <= cap:
                return _Batch(callbacks, call, estimate)
            if len(callbacks) == 1:
                self._hold(callbacks[0], sight)
                _log.warning(
                    "callback_held_back",
                    estimated_gas=estimate,
                    trace_ids=[callbacks[0].outbox_item().trace_id],
                )
            callbacks = callbacks[: len(callbacks) // 2]
        return None

    async def _owed(self, callbacks: Sequence[Callback], sight: Sight) -> list[Callback]:
        owed = []
        for callback in callbacks:
            arguments = [callback.request_id, callback.commitment, callback.digest]
            if await self._launcher.owes_callback(arguments, sight):
                owed.append(callback)
            else:
                self._hold(callback, sight)
        return owed

    async def _launch(self, batch: _Batch, cap: int, fees: Fees, sight: Sight) -> bool:
        price_wei = sight.next_base_fee_wei + fees.priority_fee_wei
        draft = Draft(
            kind="deliver",
            target=batch.call.target,
            calldata=batch.call.calldata,
            gas_limit=gas_limit(batch.estimate, worst_gas(batch.callbacks), cap),
            items=tuple(callback.outbox_item() for callback in batch.callbacks),
            reason="owed",
            inputs={
                "callbacks": len(batch.callbacks),
                "estimated_gas": batch.estimate,
                "cost_wei": batch.estimate * price_wei,
                "revenue_wei": sum(callback.revenue_wei for callback in batch.callbacks),
            },
        )
        return await self._launcher.launch(draft, fees, sight)

    def _hold(self, callback: Callback, sight: Sight) -> None:
        self._holds.hold(callback.outbox_item(), sight.head.number)

    def _notice(self, reason: PausedReason) -> None:
        self._status.noticed = self._status.noticed or reason
