"""Calls the consumers of fulfilled requests, one transaction at a time."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from indexer.database import Pool
from indexer.types import Contracts
from inferd.settlement.callbacks import (
    Callback,
    Limits,
    Waiting,
    choose,
    deliver_calldata,
    load_callbacks,
    load_owed,
)
from inferd.settlement.chain import Sight
from inferd.settlement.delivery_gas import DELIVER_GAS
from inferd.settlement.fees import Fees, first_fees, within
from inferd.settlement.holds import Holds
from inferd.settlement.lanes import Lane, Lanes
from inferd.settlement.launch import Call, gas_cap
from inferd.settlement.records import Draft
from inferd.settlement.settings import SettlementSettings, SettlementStatus
from scheduler.words import count

_log = structlog.get_logger("settlement")
_MOST_CALLBACKS = 50
_LOOKED_AT = 10 * _MOST_CALLBACKS
"""More than one transaction takes, so that held ones do not hide the others."""


class Deliverer:
    def __init__(
        self,
        pool: Pool,
        contracts: Contracts,
        settings: SettlementSettings,
        status: SettlementStatus,
    ) -> None:
        self._pool = pool
        self._contracts = contracts
        self._settings = settings
        self._status = status
        self._holds = Holds()

    async def deliver(self, lanes: Lanes) -> None:
        """At most one new transaction. Raises RPC_TROUBLE."""
        lane = lanes.richest()
        if lane is None:
            return
        sight = lane.sight
        settings, number = self._settings, sight.head.number
        fees = first_fees(sight.market, settings.fee_caps())
        max_gas = gas_cap(settings.max_gas, sight)
        limits = Limits(
            max_gas=max_gas,
            free_gas=sight.free_wei // fees.max_fee_wei if fees and fees.max_fee_wei else max_gas,
            price_wei=sight.next_base_fee_wei + (fees.priority_fee_wei if fees else 0),
            max_callbacks=_MOST_CALLBACKS,
            data=sight.data,
        )
        found, waiting = await load_owed(self._pool, limits, settings, _LOOKED_AT)
        self._status.callbacks_owed = waiting.owed
        self._holds.keep_only(one.outbox_item() for one in found)
        fresh = [one for one in found if not self._holds.holds(one.outbox_item(), number)]
        chosen = choose(fresh, limits) if fees is not None else ()
        self._status.delivering = _said(
            waiting,
            capped=len(fresh) if fees is None else 0,
            held=len(found) - len(fresh),
            unfunded=len(fresh) if fees is not None and not chosen else 0,
        )
        if fees is None or not chosen:
            return
        owed = await self._owed(await load_callbacks(self._pool, chosen), lane)
        await self._launch(owed, fees, lanes, lane)

    async def _owed(self, callbacks: Sequence[Callback], lane: Lane) -> list[Callback]:
        """Those that the contract would call at the head; the others are held back.

        A consumer that would fail is called all the same: that is what records its failure.
        """
        owed, sight = [], lane.sight
        for callback in callbacks:
            if await lane.launcher.owes_callback(callback.owes_arguments(), sight):
                owed.append(callback)
            else:
                self._holds.hold(callback.owed.outbox_item(), sight.head.number)
        return owed

    async def _launch(
        self, callbacks: Sequence[Callback], fees: Fees, lanes: Lanes, lane: Lane
    ) -> None:
        """Half of those that a node refuses, or whose bytes take more gas than they earned, go
        alone, down to one, which is held back."""
        sight = lane.sight
        price_wei = sight.next_base_fee_wei + fees.priority_fee_wei
        max_gas = gas_cap(self._settings.max_gas, sight)
        while callbacks:
            gas = DELIVER_GAS + sum(callback.owed.gas for callback in callbacks)
            calldata = deliver_calldata(callbacks)
            call = Call("InferenceResults", "deliver", self._contracts.results, calldata)
            gas += await lane.launcher.unestimated_gas(call, sight)
            earned_wei = sum(callback.owed.earned_wei for callback in callbacks)
            break_even_wei = _break_even_wei(call, gas, sight, earned_wei)
            too_dear = gas > max_gas or break_even_wei < price_wei
            if not too_dear and await lane.launcher.passes(call, gas, sight):
                fees = within(fees, break_even_wei)
                draft = _draft(callbacks, call, gas, fees, sight, earned_wei)
                await lanes.launch(lane, draft, fees)
                return
            _log.warning(
                "delivery_too_dear" if too_dear else "delivery_refused",
                gas_limit=gas,
                trace_ids=[callback.owed.outbox_item().trace_id for callback in callbacks],
            )
            if len(callbacks) == 1:
                self._holds.hold(callbacks[0].owed.outbox_item(), sight.head.number)
            callbacks = callbacks[: len(callbacks) // 2]


def _break_even_wei(call: Call, gas: int, sight: Sight, earned_wei: int) -> int:
    """The price of a gas at which a delivery costs what its callbacks earned."""
    return max(earned_wei - sight.data.of(len(call.calldata), gas), 0) // gas


def _said(waiting: Waiting, *, capped: int, held: int, unfunded: int) -> str:
    """Why callbacks are not made now, a clause for each reason; empty where all are."""
    reasons = (
        (waiting.too_dear, "cost more gas than their fees earned"),
        (waiting.too_large, "fit in no transaction of this node"),
        (capped, "wait for gas below the cap"),
        (held, "were refused or too dear and are tried again"),
        (unfunded, "wait for the poster's balance"),
    )
    clauses = [f"{number} {why}" for number, why in reasons if number]
    return f"Of {count(waiting.owed, 'callback')} owed: {', '.join(clauses)}." if clauses else ""


def _draft(
    callbacks: Sequence[Callback],
    call: Call,
    gas: int,
    fees: Fees,
    sight: Sight,
    earned_wei: int,
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
            "cost_wei": gas * (sight.next_base_fee_wei + fees.priority_fee_wei)
            + sight.data.of(len(call.calldata), gas),
            "earned_wei": earned_wei,
            "break_even_wei": _break_even_wei(call, gas, sight, earned_wei),
        },
    )
