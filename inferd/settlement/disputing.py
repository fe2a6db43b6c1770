"""Disputes results that a record says are lies, where the operator's settings stake money on it."""

from __future__ import annotations

from collections.abc import Collection

import structlog

from indexer.database import Fence, Pool
from indexer.types import Address, Contracts
from inferd.protocol import calls
from inferd.settlement.chain import RPC_TROUBLE
from inferd.settlement.disputes import (
    BondCaps,
    Lie,
    choose,
    is_open,
    load_changed,
    load_lies,
    load_open,
    load_staked_wei,
    write_changed,
)
from inferd.settlement.fees import Fees, first_fees
from inferd.settlement.holds import Holds
from inferd.settlement.intervals import load_block_interval_s
from inferd.settlement.lanes import Lane, Lanes
from inferd.settlement.launch import Call, Launched, gas_cap, gas_limit
from inferd.settlement.records import Draft
from inferd.settlement.settings import SettlementSettings, SettlementStatus
from scheduler.gas import calldata_floor
from scheduler.words import count, eth

_log = structlog.get_logger("settlement")
_SLOTS = 3
"""That an opening writes: who disputes, and two credits."""


class Disputer:
    def __init__(
        self,
        pool: Pool,
        contracts: Contracts,
        settings: SettlementSettings,
        status: SettlementStatus,
        fence: Fence | None,
    ) -> None:
        self._pool = pool
        self._contracts = contracts
        self._settings = settings
        self._status = status
        self._fence = fence
        self._holds = Holds()
        self._told: set[int] = set()
        """Requests whose bond was said to be more than there is."""

    async def look(self, own: Collection[Address]) -> None:
        """Writes to the records what the chain tells of them; `own` are the accounts whose money is
        this operator's. Database errors, and what the fence raises, propagate."""
        self._status.open_disputes = await load_open(self._pool, own)
        async with self._pool.acquire() as connection:
            changed = await load_changed(connection)
            if not changed:
                return
            async with connection.transaction():
                if self._fence is not None:
                    await self._fence(connection)
                await write_changed(connection, changed)
        for number, state, _ in changed:
            _log.info("dispute_changed", disagreement=number, state=state)

    async def dispute(self, lanes: Lanes, own: Collection[Address]) -> None:
        """At most one new transaction. Raises RPC_TROUBLE."""
        self._status.disputing = self._status.undisputed = ""
        settings = self._settings
        lane = lanes.richest()
        if lane is None or not settings.disputes:
            return
        sight = lane.sight
        async with self._pool.acquire() as connection:
            interval_s = await load_block_interval_s(connection)
        until_s = is_open(sight.head, interval_s)
        lies = await load_lies(self._pool, own, open_until_s=until_s)
        self._holds.keep_only(lie.outbox_item() for lie in lies)
        self._told &= {lie.held.request_id for lie in lies}
        fees = first_fees(sight.market, settings.fee_caps())
        if not lies or fees is None:
            return
        caps = BondCaps(
            settings.dispute_max_bond_wei,
            settings.dispute_max_bonds_wei_per_day,
            await load_staked_wei(self._pool),
        )
        number = sight.head.number
        fresh = [lie for lie in lies if not self._holds.holds(lie.outbox_item(), number)]
        chosen = choose(fresh, caps)
        left_alone = [
            f"{count(left, 'lie')} not disputed: {why}."
            for left, why in (
                (chosen.over_cap, "the bond is more than `disputes.max_bond_gwei`"),
                (chosen.over_budget, "the day's bonds are at `disputes.max_bonds_gwei_per_day`"),
            )
            if left
        ]
        done: str | None = None
        for lie in chosen.lies:
            done = await self._open(lie, fees, lanes, lane)
            if done is not None:
                break
        self._status.undisputed = " ".join(filter(None, [*left_alone, self._status.undisputed]))
        self._status.disputing = " ".join(filter(None, [done, self._status.undisputed]))

    async def _open(self, lie: Lie, fees: Fees, lanes: Lanes, lane: Lane) -> str | None:
        """What came of it, in one sentence; None where this one cannot be disputed now and another
        may be."""
        held, sight = lie.held, lane.sight
        bond_wei = held.bond_wei
        call = Call(
            "Disputes",
            "open",
            self._contracts.disputes,
            calls.open_dispute(held),
            value_wei=bond_wei,
        )
        cap = gas_cap(self._settings.max_gas, sight)
        if bond_wei + self._kept_wei(lane) > sight.free_wei:
            self._tell_unaffordable(lie)
            return None
        estimate = await self._estimate(lie, call, lane)
        if estimate is None:
            return None
        if estimate > cap:
            self._holds.hold(lie.outbox_item(), sight.head.number)
            return None
        limit = gas_limit(
            estimate, estimate, cap, slots=_SLOTS, floor=calldata_floor(call.calldata)
        )
        data_wei = sight.data.reserve(len(call.calldata), limit)
        most_wei = bond_wei + limit * fees.max_fee_wei + data_wei
        if most_wei + self._kept_wei(lane) > sight.free_wei:
            self._tell_unaffordable(lie)
            return None
        draft = Draft(
            kind="dispute",
            target=call.target,
            calldata=call.calldata,
            gas_limit=limit,
            items=(lie.outbox_item(),),
            reason="disagreement",
            inputs={
                "disagreement": lie.disagreement,
                "bond_wei": bond_wei,
                "estimated_gas": estimate,
                "cost_wei": estimate * (sight.next_base_fee_wei + fees.priority_fee_wei)
                + sight.data.of(len(call.calldata), estimate),
                "disputable_until_s": held.disputable_until_s,
            },
            value_wei=bond_wei,
        )
        if await lanes.launch(lane, draft, fees) in (Launched.SENT, Launched.KEPT):
            _log.warning(
                "dispute_sent",
                request_id=held.request_id,
                disagreement=lie.disagreement,
                bond_wei=bond_wei,
                trace_ids=[lie.outbox_item().trace_id],
            )
            return f"Request {held.request_id} is disputed with a bond of {eth(bond_wei)}."
        return ""

    async def _estimate(self, lie: Lie, call: Call, lane: Lane) -> int | None:
        """Gas; None where it reverts, or the node fails on it: then it rests for some blocks."""
        item, number = lie.outbox_item(), lane.sight.head.number
        try:
            estimate = await lane.launcher.estimate(call)
        except RPC_TROUBLE as error:
            empty = Call("", "", lane.launcher.address, b"")
            await lane.launcher.estimate(empty)
            self._holds.set_apart(item, number, str(error))
            return None
        if estimate is None:
            # Somebody was first, or its time is over: the index has it in the next blocks.
            self._holds.hold(item, number)
        return estimate

    def _kept_wei(self, lane: Lane) -> int:
        """What the balance is kept for: results that wait, and so many more as nothing new is
        planned without."""
        seen = lane.key.projection
        if seen is None:
            return 0
        return seen.waiting_wei + self._settings.stop_runway_results * seen.result_wei

    def _tell_unaffordable(self, lie: Lie) -> None:
        request_id, bond_wei = lie.held.request_id, lie.held.bond_wei
        if request_id not in self._told:
            self._told.add(request_id)
            _log.error(
                "bond_not_affordable",
                request_id=request_id,
                disagreement=lie.disagreement,
                bond_wei=bond_wei,
                disputable_until_s=lie.held.disputable_until_s,
            )
        self._status.undisputed = self._status.undisputed or (
            f"Request {request_id} is not disputed: the poster's account does not have the bond of"
            f" {eth(bond_wei)} to spare."
        )
