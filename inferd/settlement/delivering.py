"""Calls the consumers of fulfilled requests, one transaction at a time."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from indexer.database import Pool
from indexer.types import Contracts
from inferd.settlement.callbacks import (
    Callback,
    Choice,
    Limits,
    choose,
    deliver_calldata,
    load_callbacks,
    load_owed,
)
from inferd.settlement.chain import Sight
from inferd.settlement.delivery_gas import DELIVER_GAS
from inferd.settlement.fees import Fees, first_fees
from inferd.settlement.holds import Holds
from inferd.settlement.launch import Call, Launcher, gas_cap
from inferd.settlement.records import Draft
from inferd.settlement.settings import PausedReason, SettlementSettings, SettlementStatus
from scheduler.words import count

_log = structlog.get_logger("settlement")
_MOST_CALLBACKS = 50
_LOOKED_AT = 100 * _MOST_CALLBACKS
"""More than one transaction takes, so that those that wait do not hide the others."""


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
        found = await load_owed(self._pool, _LOOKED_AT, self._settings)
        self._status.callbacks_owed = len(found)
        self._status.delivering = ""
        if not found:
            self._holds.keep_only(())
            return False
        fees = first_fees(sight.next_base_fee_wei, sight.tip_wei, self._settings.fee_caps())
        if fees is None:
            self._status.noticed = self._status.noticed or PausedReason.GAS_PRICE_OVER_CAP
            self._status.delivering = "Callbacks wait: gas costs more than the cap."
            return False
        self._holds.keep_only(one.outbox_item() for one in found)
        fresh = [one for one in found if not self._holds.holds(one.outbox_item(), number)]
        choice = choose(
            fresh,
            Limits(
                max_gas=gas_cap(self._settings.max_gas, sight),
                free_gas=sight.free_wei // fees.max_fee_wei,
                price_wei=sight.next_base_fee_wei + fees.priority_fee_wei,
                max_callbacks=_MOST_CALLBACKS,
            ),
        )
        self._tell(choice)
        owed = await self._owed(await load_callbacks(self._pool, choice.batch), sight)
        return await self._launch(owed, fees, sight)

    def _tell(self, choice: Choice) -> None:
        if choice.unfunded:
            self._status.noticed = self._status.noticed or PausedReason.INSUFFICIENT_FUNDS
        waiting = (
            (choice.too_dear, "gas costs more than their fees earned"),
            (choice.too_large, "they fit in no transaction of this node"),
            (choice.unfunded, "the poster's balance does not pay for them"),
        )
        self._status.delivering = " ".join(
            f"{count(number, 'callback')} not made: {why}." for number, why in waiting if number
        )

    async def _owed(self, callbacks: Sequence[Callback], sight: Sight) -> list[Callback]:
        """Those that the contract would call at the head; the others are held back.

        A consumer that would fail is called all the same: that is what records its failure.
        """
        owed = []
        for callback in callbacks:
            if await self._launcher.owes_callback(callback.owes_arguments(), sight):
                owed.append(callback)
            else:
                self._holds.hold(callback.owed.outbox_item(), sight.head.number)
        return owed

    async def _launch(self, callbacks: Sequence[Callback], fees: Fees, sight: Sight) -> bool:
        """Half of those that a node refuses go alone, down to one, which is held back."""
        while callbacks:
            gas = DELIVER_GAS + sum(callback.owed.gas for callback in callbacks)
            calldata = deliver_calldata(callbacks)
            call = Call("InferenceResults", "deliver", self._contracts.results, calldata)
            estimate = await self._launcher.estimate(call)
            if estimate is not None and estimate <= gas:
                return await self._launcher.launch(
                    self._draft(callbacks, call, gas, estimate, fees, sight), fees, sight
                )
            _log.warning(
                "delivery_refused",
                estimated_gas=estimate,
                most_gas=gas,
                trace_ids=[callback.owed.outbox_item().trace_id for callback in callbacks],
            )
            if len(callbacks) == 1:
                self._holds.hold(callbacks[0].owed.outbox_item(), sight.head.number)
            callbacks = callbacks[: len(callbacks) // 2]
        return False

    def _draft(
        self,
        callbacks: Sequence[Callback],
        call: Call,
        gas: int,
        estimate: int,
        fees: Fees,
        sight: Sight,
    ) -> Draft:
        return Draft(
            kind="deliver",
            target=call.target,
            calldata=call.calldata,
            gas_limit=gas,
            items=tuple(callback.owed.outbox_item() for callback in callbacks),
            reason="owed",
            inputs={
                "callbacks": len(callbacks),
                "estimated_gas": estimate,
                "cost_wei": gas * (sight.next_base_fee_wei + fees.priority_fee_wei),
                "earned_wei": sum(callback.owed.earned_wei for callback in callbacks),
            },
        )
