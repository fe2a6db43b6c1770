"""Gives expired requests' fees back, one transaction at a time, while that is worth its gas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from indexer.database import Pool
from indexer.types import DAY_S, Contracts
from inferd.settlement.apart import companies
from inferd.settlement.chain import Sight
from inferd.settlement.fees import Fees, first_fees
from inferd.settlement.holds import Holds
from inferd.settlement.launch import Call, Launcher, fresh_slots, gas_cap, gas_limit
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
from scheduler.gas import calldata_floor
from scheduler.model import GasModel
from scheduler.words import count, eth

_HELD_AND_FRESH = 4
"""How many batches of claims are looked at, so that held ones do not hide the others."""
_TRIES = 4
"""How often one step looks for a batch that is worth what the node says it costs."""


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


class Refunder:
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

    async def refund(self, sight: Sight) -> bool:
        """At most one new transaction; whether there is one. Raises RPC_TROUBLE."""
        settings, number = self._settings, sight.head.number
        fees = first_fees(sight.market, settings.refund_fee_caps())
        if fees is None:
            self._status.refunding = "Refunds wait: gas costs more than their cap."
            return False
        terms = await self._terms(sight, fees)
        limit = settings.refund_max_claims * _HELD_AND_FRESH
        found = await load_claims(self._pool, sight.head, limit, terms.least_fee_wei)
        self._holds.keep_only(claim.outbox_item() for claim in found)
        fresh = [c for c in found if not self._holds.holds(c.outbox_item(), number)]
        batch = await self._find(fresh, terms, sight)
        dust = await count_dust(self._pool, sight.head, terms.least_fee_wei)
        self._tell(len(found), dust, batch, terms)
        return isinstance(batch, _Batch) and await self._launch(batch, fees, terms, sight)

    async def _find(
        self, fresh: Sequence[Claim], terms: RefundTerms, sight: Sight
    ) -> _Batch | _Lack:
        """A batch that the contract would refund and that is worth what the node says it costs."""
        cap = gas_cap(self._settings.max_gas, sight)
        first = chosen = self._choose(fresh, terms, REFUND_GAS)
        if not first and self._choose(fresh, terms.unbounded(), REFUND_GAS):
            return _Lack.BUDGET
        for _ in range(_TRIES):
            if chosen and await self._launcher.simulate(self._call(chosen), sight) != len(chosen):
                chosen = await self._alive(chosen, sight)
            if not chosen:
                break
            call = self._call(chosen)
            estimate = await self._launcher.estimate(call)
            if estimate is None or estimate > cap:
                break
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
            self._holds.hold(claim.outbox_item(), sight.head.number)
        return _Lack.WORTH

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
        else:
            status.refunds_left += found
            left = count(status.refunds_left, "expired request")
            status.refunding = (
                f"{left} not refunded: fees worth less than the gas; who paid one can call "
                "`refund` on the contract."
                if status.refunds_left
                else ""
            )

    async def _launch(self, batch: _Batch, fees: Fees, terms: RefundTerms, sight: Sight) -> bool:
        claims, call, estimate = batch.claims, batch.call, batch.estimate
        draft = Draft(
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
        return await self._launcher.launch(draft, fees, sight)

    async def _alive(self, claims: Sequence[Claim], sight: Sight) -> list[Claim]:
        """Those that the contract would refund; the others are held back."""
        alive = []
        for claim in claims:
            if await self._launcher.simulate(self._call([claim]), sight) == 1:
                alive.append(claim)
            else:
                self._holds.hold(claim.outbox_item(), sight.head.number)
        return alive

    def _call(self, claims: Sequence[Claim]) -> Call:
        return Call(
            "InferenceRequests", "refund", self._contracts.requests, refund_calldata(claims)
        )
