"""Gives expired requests' fees back, one transaction at a time, while that is worth its gas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from indexer.database import Pool
from indexer.types import DAY_S, Contracts
from inferd.settlement.apart import companies
from inferd.settlement.chain import RPC_TROUBLE, Sight
from inferd.settlement.fees import Fees, first_fees
from inferd.settlement.holds import Holds
from inferd.settlement.lanes import Lane, Lanes
from inferd.settlement.launch import Call, fresh_slots, gas_cap, gas_limit
from inferd.settlement.purse import spent_on_refunds_wei
from inferd.settlement.records import Draft
from inferd.settlement.refunds import (
    REFUND_GAS,
    Claim,
    RefundTerms,
    count_dust,
    load_claims,
    refund_calldata,
    worth_refunding,
)
from inferd.settlement.settings import SettlementSettings, SettlementStatus
from inferd.settlement.turns import Turns
from scheduler.gas import calldata_floor
from scheduler.model import GasModel
from scheduler.words import count, eth

_HELD_AND_FRESH = 4
"""How many batches of claims are looked at, so that held ones do not hide the others."""
_TRIES = 8
"""How often one step looks for a batch that is worth what the node says it costs, and for one that
it has an answer for."""


@dataclass(frozen=True, slots=True)
class _Batch:
    claims: Sequence[Claim]
    call: Call
    estimate: int
    """Gas, by the node."""


class _Lack(Enum):
    """What a batch fails for."""

    WORTH = auto()
    BUDGET = auto()
    TURN = auto()


class Refunder:
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

    async def refund(self, lanes: Lanes) -> None:
        """At most one new transaction. Raises RPC_TROUBLE."""
        lane = lanes.richest()
        if lane is None:
            return
        sight = lane.sight
        settings, number = self._settings, sight.head.number
        fees = first_fees(sight.market, settings.refund_fee_caps())
        if fees is None:
            self._status.refunding = "Refunds wait: gas costs more than their cap."
            return
        terms = await self._terms(sight, fees)
        limit = settings.refund_max_claims * _HELD_AND_FRESH
        found = await load_claims(self._pool, sight.head, limit, terms.least_fee_wei)
        self._holds.keep_only(claim.outbox_item() for claim in found)
        fresh = [c for c in found if not self._holds.holds(c.outbox_item(), number)]
        come = await self._come(fresh, sight)
        waits = bool(fresh) and not come
        batch = _Lack.TURN if waits else await self._find(come, terms, lane)
        dust = await count_dust(self._pool, sight.head, terms.least_fee_wei)
        self._tell(len(found), dust, batch, terms)
        self._status.set_apart["refund"] = self._holds.told("refund")
        if isinstance(batch, _Batch):
            await lanes.launch(lane, self._draft(batch, terms, sight), fees)

    async def _come(self, fresh: Sequence[Claim], sight: Sight) -> list[Claim]:
        """Those whose turn has come."""
        await self._turns.look(sight.head)
        self._turns.see((claim.outbox_item() for claim in fresh), sight.head)
        return [one for one in fresh if self._turns.is_up(one.outbox_item(), sight.head)]

    async def _find(self, fresh: Sequence[Claim], terms: RefundTerms, lane: Lane) -> _Batch | _Lack:
        """A batch that the contract would refund and that is worth what the node says it costs."""
        sight = lane.sight
        cap = gas_cap(self._settings.max_gas, sight)
        first = self._choose(fresh, terms, REFUND_GAS)
        chosen: Sequence[Claim] = first
        if not first and self._choose(fresh, terms.unbounded(), REFUND_GAS):
            return _Lack.BUDGET
        for _ in range(_TRIES):
            chosen = await self._alive(chosen, lane)
            if not chosen:
                break
            call = self._call(chosen)
            estimate, words = await self._estimate(call, lane)
            if estimate is None or estimate > cap:
                # One of them may be why: half of them go alone, down to one.
                if len(chosen) == 1:
                    self._hold(chosen[0], sight, words)
                    return _Lack.WORTH
                chosen = chosen[: len(chosen) // 2]
                continue
            # What the batch costs beside its claims is known now: a smaller one may be worth it.
            fixed_gas = estimate - REFUND_GAS.per_result_gas * len(chosen)
            gas = replace(REFUND_GAS, fixed_gas=fixed_gas)
            worth = self._choose(chosen, terms, gas)
            if len(worth) == len(chosen):
                return _Batch(chosen, call, estimate)
            if not worth and self._choose(chosen, terms.unbounded(), gas):
                return _Lack.BUDGET
            chosen = worth
        for claim in first:
            if not self._holds.holds(claim.outbox_item(), sight.head.number):
                self._hold(claim, sight)
        return _Lack.WORTH

    async def _estimate(self, call: Call, lane: Lane) -> tuple[int | None, str | None]:
        """Gas, and the node's words where it fails on this call and not on an empty one. Raises
        RPC_TROUBLE."""
        try:
            return await lane.launcher.estimate(call), None
        except RPC_TROUBLE as error:
            await lane.launcher.estimate(self._call(()))
            return None, str(error)

    def _hold(self, claim: Claim, sight: Sight, words: str | None = None) -> None:
        if words is None:
            self._holds.hold(claim.outbox_item(), sight.head.number)
        else:
            self._holds.set_apart(claim.outbox_item(), sight.head.number, words)

    async def _terms(self, sight: Sight, fees: Fees) -> RefundTerms:
        async with self._pool.acquire() as connection:
            spent_wei = await spent_on_refunds_wei(connection, DAY_S)
        self._status.refund_gas_wei_per_day = spent_wei
        return RefundTerms(
            price_wei=sight.next_base_fee_wei + fees.priority_fee_wei,
            max_fee_wei=fees.max_fee_wei,
            min_fee_ppm=round(self._settings.refund_min_fee_ratio * 1_000_000),
            budget_left_wei=self._settings.refund_budget_wei_per_day - spent_wei,
            data=sight.data,
        )

    def _choose(self, claims: Sequence[Claim], terms: RefundTerms, gas: GasModel) -> list[Claim]:
        """Those that may have spoilt a transaction come after the others."""
        limit = self._settings.refund_max_claims
        for company in companies(claims, lambda claim: claim.cohort):
            batch = worth_refunding(company, terms, limit, gas)
            if batch:
                return batch
        return []

    def _tell(self, found: int, dust: int, batch: _Batch | _Lack, terms: RefundTerms) -> None:
        status, budget_wei = self._status, self._settings.refund_budget_wei_per_day
        status.refunds_left = dust
        if isinstance(batch, _Batch):
            number = count(len(batch.claims), "expired request")
            cost_wei = terms.cost_wei(batch.estimate, len(batch.claims))
            status.refunding = f"{number} refunded for {eth(cost_wei)} of gas."
        elif batch is _Lack.BUDGET:
            spent_wei = budget_wei - terms.budget_left_wei
            status.refunding = (
                f"Refunds of {count(found, 'expired request')} wait: the last 24 hours' took "
                f"{eth(spent_wei)} of the day's budget of {eth(budget_wei)}."
            )
        elif batch is _Lack.TURN:
            status.refunding = self._turns.told(found, "expired request").strip()
        else:
            status.refunds_left += found
            left = count(status.refunds_left, "expired request")
            status.refunding = (
                f"{left} not refunded: fees worth less than the gas; who paid one can call "
                "`refund` on the contract."
                if status.refunds_left
                else ""
            )

    def _draft(self, batch: _Batch, terms: RefundTerms, sight: Sight) -> Draft:
        claims, call, estimate = batch.claims, batch.call, batch.estimate
        return Draft(
            kind="refund",
            target=call.target,
            calldata=call.calldata,
            gas_limit=gas_limit(
                estimate,
                estimate,
                gas_cap(self._settings.max_gas, sight),
                slots=fresh_slots(
                    len({claim.requester for claim in claims}), (c.request_id for c in claims)
                ),
                floor=calldata_floor(call.calldata),
            ),
            items=tuple(claim.outbox_item() for claim in claims),
            reason="expired",
            inputs={
                "claims": len(claims),
                "estimated_gas": estimate,
                "cost_wei": terms.cost_wei(estimate, len(claims)),
                "fees_wei": sum(claim.fee_wei for claim in claims),
                "budget_left_wei": terms.budget_left_wei,
            },
        )

    async def _alive(self, claims: Sequence[Claim], lane: Lane) -> Sequence[Claim]:
        """Those that the contract would refund; the others are held back.

        Whoever refunds is in the pool first, if it can be seen: nothing else tells of him in time.
        """
        sight, pooled = lane.sight, self._settings.pool_visible
        found = await lane.launcher.sift(claims, self._call, sight, pooled=pooled)
        for claim in found.dead:
            self._hold(claim, sight)
        for claim, words in found.failing:
            self._hold(claim, sight, words)
        gone = {*found.dead, *(claim for claim, _ in found.failing)}
        return [claim for claim in claims if claim not in gone]

    def _call(self, claims: Sequence[Claim]) -> Call:
        return Call(
            "InferenceRequests", "refund", self._contracts.requests, refund_calldata(claims)
        )
