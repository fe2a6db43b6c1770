"""Calls the consumers of fulfilled requests, one transaction at a time."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from indexer.database import Pool
from indexer.types import Contracts
from inferd.settlement.callbacks import (
    Callback,
    Limits,
    Owed,
    Waiting,
    choose,
    deliver_calldata,
    load_callbacks,
    load_owed,
)
from inferd.settlement.chain import RPC_TROUBLE, Sight
from inferd.settlement.delivery_gas import DELIVER_GAS
from inferd.settlement.earning import Earning
from inferd.settlement.fees import Fees, first_fees, within
from inferd.settlement.holds import Holds
from inferd.settlement.lanes import Lane, Lanes
from inferd.settlement.launch import Call, gas_cap
from inferd.settlement.records import Draft
from inferd.settlement.settings import SettlementSettings, SettlementStatus
from inferd.settlement.turns import Turns
from scheduler.words import count

_log = structlog.get_logger("settlement")
_MOST_CALLBACKS = 50
_LOOKED_AT = 10 * _MOST_CALLBACKS
"""More than one transaction takes, so that held ones do not hide the others."""
_NOTHING_OWED = (0, bytes(20), bytes(32))
"""Arguments of `owesCallback` that every node has an answer for."""


class Deliverer:
    def __init__(
        self,
        pool: Pool,
        contracts: Contracts,
        settings: SettlementSettings,
        status: SettlementStatus,
        turns: Turns,
    ) -> None:
        self._pool = pool
        self._contracts = contracts
        self._settings = settings
        self._status = status
        self._holds = Holds()
        self._turns = turns

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
        self._status.set_apart["deliver"] = self._holds.told("callback")
        fresh = [one for one in found if not self._holds.holds(one.outbox_item(), number)]
        come = await self._come(fresh, lanes, sight)
        chosen = choose(come, limits) if fees is not None else ()
        self._status.delivering = _said(
            waiting,
            capped=len(come) if fees is None else 0,
            held=len(found) - len(fresh),
            unfunded=len(come) if fees is not None and not chosen else 0,
            waiting_for_a_turn=len(fresh) - len(come),
        )
        if fees is None or not chosen:
            return
        owed = await self._owed(await load_callbacks(self._pool, chosen), lane)
        await self._launch(owed, fees, lanes, lane)
        self._status.set_apart["deliver"] = self._holds.told("callback")

    async def _come(self, fresh: Sequence[Owed], lanes: Lanes, sight: Sight) -> list[Owed]:
        """Those whose turn has come: who posted a result and who owns its worker have both earned
        its delivery, and may be two."""
        await self._turns.look(sight.head)
        self._turns.see((one.outbox_item() for one in fresh), sight.head)
        if self._turns.has_rivals and self._settings.pool_visible:
            lanes.expect_others()
        return [one for one in fresh if self._turns.is_up(one.outbox_item(), sight.head)]

    async def _owed(self, callbacks: Sequence[Callback], lane: Lane) -> list[Callback]:
        """Those that the contract would call at the head; the others are held back.

        A consumer that would fail is called all the same: that is what records its failure.
        """
        owed, sight = [], lane.sight
        for callback in callbacks:
            try:
                is_owed = await lane.launcher.owes_callback(callback.owes_arguments(), sight)
            except RPC_TROUBLE as error:
                await lane.launcher.owes_callback(_NOTHING_OWED, sight)
                self._hold(callback, sight, str(error))
                continue
            if is_owed:
                owed.append(callback)
            else:
                self._hold(callback, sight)
        return owed

    async def _passes(self, call: Call, gas: int, lane: Lane) -> tuple[bool, str | None]:
        """Whether a delivery goes through, and the node's words where it fails on this one and not
        on an empty one. Raises RPC_TROUBLE."""
        try:
            return await lane.launcher.passes(call, gas, lane.sight), None
        except RPC_TROUBLE as error:
            await lane.launcher.passes(self._call(()), gas, lane.sight)
            return False, str(error)

    def _hold(self, callback: Callback, sight: Sight, words: str | None = None) -> None:
        item = callback.owed.outbox_item()
        if words is None:
            self._holds.hold(item, sight.head.number)
        else:
            self._holds.set_apart(item, sight.head.number, words)

    def _call(self, callbacks: Sequence[Callback]) -> Call:
        return Call(
            "InferenceResults", "deliver", self._contracts.results, deliver_calldata(callbacks)
        )

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
            call = self._call(callbacks)
            gas += await lane.launcher.unestimated_gas(call, sight)
            earned_wei = sum(callback.owed.earned_wei for callback in callbacks)
            earning = Earning(earned_wei, gas)
            break_even_wei = earning.break_even_wei(len(call.calldata), sight.data)
            too_dear = gas > max_gas or break_even_wei < price_wei
            passes, words = (False, None) if too_dear else await self._passes(call, gas, lane)
            if passes:
                fees = within(fees, break_even_wei)
                draft = _draft(callbacks, call, fees, sight, earning, break_even_wei)
                await lanes.launch(lane, draft, fees)
                return
            _log.warning(
                "delivery_too_dear" if too_dear else "delivery_refused",
                gas_limit=gas,
                trace_ids=[callback.owed.outbox_item().trace_id for callback in callbacks],
            )
            if len(callbacks) == 1:
                self._hold(callbacks[0], sight, words)
            callbacks = callbacks[: len(callbacks) // 2]


def _said(
    waiting: Waiting, *, capped: int, held: int, unfunded: int, waiting_for_a_turn: int
) -> str:
    """Why callbacks are not made now, a clause for each reason; empty where all are."""
    reasons = (
        (waiting.too_dear, "cost more gas than their fees earned"),
        (waiting.too_large, "fit in no transaction of this node"),
        (capped, "wait for gas below the cap"),
        (held, "were refused or too dear and are tried again"),
        (unfunded, "wait for the poster's balance"),
        (waiting_for_a_turn, "wait for a turn, as others were first of late"),
    )
    clauses = [f"{number} {why}" for number, why in reasons if number]
    return f"Of {count(waiting.owed, 'callback')} owed: {', '.join(clauses)}." if clauses else ""


def _draft(
    callbacks: Sequence[Callback],
    call: Call,
    fees: Fees,
    sight: Sight,
    earning: Earning,
    break_even_wei: int,
) -> Draft:
    gas = earning.gas
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
            "earned_wei": earning.revenue_wei,
            "break_even_wei": break_even_wei,
        },
    )
