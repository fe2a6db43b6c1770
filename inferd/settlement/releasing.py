"""Has payments paid that were held back for a dispute that did not come, or was not ruled on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from indexer.database import Pool
from indexer.types import Address, Contracts
from inferd.protocol import calls
from inferd.settlement.apart import companies
from inferd.settlement.chain import RPC_TROUBLE, Sight
from inferd.settlement.earning import Earning
from inferd.settlement.fees import Fees, first_fees, within
from inferd.settlement.holds import Holds
from inferd.settlement.lanes import Lane, Lanes
from inferd.settlement.launch import Call, fresh_slots, gas_cap, gas_limit
from inferd.settlement.records import Draft
from inferd.settlement.releases import (
    Due,
    ReleaseTerms,
    load_due,
    load_lapsed,
    worth_releasing,
)
from inferd.settlement.settings import SettlementSettings, SettlementStatus
from inferd.settlement.turns import Turns
from scheduler.gas import calldata_floor
from scheduler.words import count, eth

_MOST_PAYMENTS = 50
_LOOKED_AT = 4 * _MOST_PAYMENTS
"""More than one transaction takes, so that held ones do not hide the others."""
_MOST_LAPSED = 20


class Releaser:
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
        self._lapsed = Holds()
        self._turns = turns

    async def release(self, lanes: Lanes, own: Collection[Address]) -> None:
        """At most one new transaction, for the accounts whose money is this operator's. Raises
        RPC_TROUBLE."""
        lane = lanes.richest()
        if lane is None:
            return
        self._status.releasing = ""
        sight, fees = lane.sight, first_fees(lane.sight.market, self._settings.fee_caps())
        if fees is None:
            return
        terms = self._terms(sight, fees)
        found = await load_due(self._pool, sight.head, own, _LOOKED_AT, terms)
        self._holds.keep_only(one.outbox_item() for one in found)
        if not found:
            return
        await self._turns.look(sight.head)
        self._turns.see((one.outbox_item() for one in found), sight.head)
        come = [
            one
            for one in found
            if self._turns.is_up(one.outbox_item(), sight.head)
            and not self._holds.holds(one.outbox_item(), sight.head.number)
        ]
        chosen = self._choose(come, terms)
        alive = await self._alive(chosen, lane)
        if alive:
            await self._release(alive, fees, terms, lanes, lane)
        elif come:
            self._status.releasing = (
                f"{count(len(come), 'payment')} that can be released: they wait for others to share"
                " the gas with, or for a lower price of gas."
            )
        self._status.set_apart["release"] = self._holds.told("release")

    async def close(self, lanes: Lanes, own: Collection[Address]) -> None:
        """Ends one dispute on which nobody ruled in time, and that holds money of these accounts.
        Raises RPC_TROUBLE."""
        lane = lanes.richest()
        if lane is None:
            return
        sight, fees = lane.sight, first_fees(lane.sight.market, self._settings.fee_caps())
        if fees is None:
            return
        terms = self._terms(sight, fees)
        found = await load_lapsed(self._pool, sight.head, own, _MOST_LAPSED, terms)
        self._lapsed.keep_only(one.outbox_item() for one in found)
        number = sight.head.number
        fresh = [one for one in found if not self._lapsed.holds(one.outbox_item(), number)]
        for one in sorted(fresh, key=lambda due: -due.earned_wei):
            data = calls.close_dispute(one.held)
            call = Call("Disputes", "close", self._contracts.disputes, data)
            # Those that anybody closed meanwhile revert: the index has them in the next block.
            estimate, words = await self._estimate([one], call, terms, lane)
            if estimate is not None:
                await self._launch("close", [one], call, estimate, fees, terms, lanes, lane)
                return
            _hold(self._lapsed, one, number, words)

    def _terms(self, sight: Sight, fees: Fees) -> ReleaseTerms:
        return ReleaseTerms(
            price_wei=sight.next_base_fee_wei + fees.priority_fee_wei,
            now_s=sight.head.timestamp_s,
            max_gas=gas_cap(self._settings.max_gas, sight),
            data=sight.data,
        )

    def _choose(self, come: Sequence[Due], terms: ReleaseTerms) -> list[Due]:
        """Those that may have spoilt a transaction come after the others."""
        for company in companies(come, lambda one: one.cohort):
            worth = worth_releasing(company, terms, _MOST_PAYMENTS)
            if worth:
                return worth
        return []

    async def _alive(self, due: Sequence[Due], lane: Lane) -> list[Due]:
        """Those that the contract would pay; the others are held back. Whoever releases is in the
        pool first, if it can be seen."""
        sight, pooled = lane.sight, self._settings.pool_visible
        found = await lane.launcher.sift(due, self._call, sight, pooled=pooled)
        number = sight.head.number
        for one in found.dead:
            self._holds.hold(one.outbox_item(), number)
        for one, words in found.failing:
            self._holds.set_apart(one.outbox_item(), number, words)
        gone = [*found.dead, *(one for one, _ in found.failing)]
        return [one for one in due if one not in gone]

    def _call(self, due: Sequence[Due]) -> Call:
        data = calls.release([one.held for one in due])
        return Call("Disputes", "release", self._contracts.disputes, data)

    async def _release(
        self, due: Sequence[Due], fees: Fees, terms: ReleaseTerms, lanes: Lanes, lane: Lane
    ) -> None:
        """Where all of them together are not worth what they take, half of them that pay most may
        be, or fit, down to one."""
        number, some = lane.sight.head.number, list(due)
        while some:
            call = self._call(some)
            estimate, words = await self._estimate(some, call, terms, lane)
            if estimate is not None:
                await self._launch("release", some, call, estimate, fees, terms, lanes, lane)
                earned_wei = sum(one.earned_wei for one in some)
                self._status.releasing = (
                    f"{count(len(some), 'payment')} of {eth(earned_wei)} released."
                )
                return
            if len(some) == 1:
                _hold(self._holds, some[0], number, words)
            some = some[: len(some) // 2]
        for one in due[1:]:
            self._holds.hold(one.outbox_item(), number)

    async def _estimate(
        self, due: Sequence[Due], call: Call, terms: ReleaseTerms, lane: Lane
    ) -> tuple[int | None, str | None]:
        """Gas, where they are worth that; and the node's words where it fails on this call and not
        on an empty one. Raises RPC_TROUBLE."""
        try:
            estimate = await lane.launcher.estimate(call)
        except RPC_TROUBLE as error:
            await lane.launcher.estimate(self._call(()))
            return None, str(error)
        if estimate is None or estimate > terms.max_gas:
            return None, None
        earned_wei = sum(one.earned_wei for one in due)
        return (estimate if earned_wei > terms.cost_of_wei(due, estimate) else None), None

    async def _launch(
        self,
        kind: str,
        due: Sequence[Due],
        call: Call,
        estimate: int,
        fees: Fees,
        terms: ReleaseTerms,
        lanes: Lanes,
        lane: Lane,
    ) -> None:
        earned_wei = sum(one.earned_wei for one in due)
        earning = Earning(earned_wei, estimate)
        break_even_wei = earning.break_even_wei(len(call.calldata), lane.sight.data)
        accounts = {account for one in due for account in (*one.held.owners, one.held.poster)}
        draft = Draft(
            kind=kind,
            target=call.target,
            calldata=call.calldata,
            gas_limit=gas_limit(
                estimate,
                estimate,
                terms.max_gas,
                slots=fresh_slots(len(accounts), (one.held.request_id for one in due)),
                floor=calldata_floor(call.calldata),
            ),
            items=tuple(one.outbox_item() for one in due),
            reason="due" if kind == "release" else "lapsed",
            inputs={
                "payments": len(due),
                "estimated_gas": estimate,
                "cost_wei": terms.cost_of_wei(due, estimate),
                "earned_wei": earned_wei,
                "break_even_wei": break_even_wei,
            },
        )
        await lanes.launch(lane, draft, within(fees, break_even_wei))


def _hold(holds: Holds, one: Due, number: int, words: str | None) -> None:
    if words is None:
        holds.hold(one.outbox_item(), number)
    else:
        holds.set_apart(one.outbox_item(), number, words)
