"""Calls the consumers of fulfilled requests, one transaction at a time."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from indexer.database import Pool
from indexer.types import Contracts
from inferd.settlement.callbacks import Callback, deliver_calldata, fitting, load_callbacks
from inferd.settlement.chain import Sight
from inferd.settlement.fees import first_fees
from inferd.settlement.holds import Holds
from inferd.settlement.launch import Call, Launcher, gas_cap, gas_limit
from inferd.settlement.records import Draft
from inferd.settlement.settings import PausedReason, SettlementSettings, SettlementStatus

_log = structlog.get_logger("settlement")
_MOST_CALLBACKS = 50
_LOOKED_AT = 4 * _MOST_CALLBACKS
"""More than one transaction takes, so that held ones do not hide the others."""


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
        number = sight.head.number
        found = await load_callbacks(self._pool, _LOOKED_AT)
        self._status.callbacks_owed = len(found)
        self._holds.keep_only(callback.outbox_item() for callback in found)
        fresh = [c for c in found if not self._holds.holds(c.outbox_item(), number)]
        cap = gas_cap(self._settings.max_gas, sight)
        owed = await self._owed(fitting(fresh[:_MOST_CALLBACKS], cap), sight)
        return bool(owed) and await self._launch(owed, cap, sight)

    async def _owed(self, callbacks: Sequence[Callback], sight: Sight) -> list[Callback]:
        """Those that the contract would call at the head; the others are held back.

        A consumer that would fail is called all the same: that is what records its failure.
        """
        owed = []
        for callback in callbacks:
            arguments = [callback.request_id, callback.commitment, callback.digest]
            if await self._launcher.owes_callback(arguments, sight):
                owed.append(callback)
            else:
                self._holds.hold(callback.outbox_item(), sight.head.number)
        return owed

    async def _launch(self, callbacks: Sequence[Callback], cap: int, sight: Sight) -> bool:
        fees = first_fees(sight.next_base_fee_wei, sight.tip_wei, self._settings.fee_caps())
        if fees is None:
            self._status.noticed = self._status.noticed or PausedReason.GAS_PRICE_OVER_CAP
            return False
        calldata = deliver_calldata(callbacks)
        call = Call("InferenceResults", "deliver", self._contracts.results, calldata)
        estimate = await self._launcher.estimate(call)
        if estimate is None or estimate > cap:
            for callback in callbacks:
                self._holds.hold(callback.outbox_item(), sight.head.number)
            _log.warning(
                "callbacks_held_back",
                estimated_gas=estimate,
                trace_ids=[callback.outbox_item().trace_id for callback in callbacks],
            )
            return False
        draft = Draft(
            kind="deliver",
            target=call.target,
            calldata=calldata,
            gas_limit=gas_limit(estimate, estimate, cap),
            items=tuple(callback.outbox_item() for callback in callbacks),
            reason="owed",
            inputs={
                "callbacks": len(callbacks),
                "estimated_gas": estimate,
                "cost_wei": estimate * (sight.next_base_fee_wei + fees.priority_fee_wei),
            },
        )
        return await self._launcher.launch(draft, fees, sight)
