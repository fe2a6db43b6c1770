"""Gives expired requests' fees back, one transaction at a time, while gas is cheap enough."""

from __future__ import annotations

from collections.abc import Sequence

from indexer.database import Pool
from indexer.types import Contracts
from inferd.settlement.chain import Sight
from inferd.settlement.fees import first_fees
from inferd.settlement.holds import Holds
from inferd.settlement.launch import Call, Launcher, gas_cap, gas_limit
from inferd.settlement.records import Draft
from inferd.settlement.refunds import Claim, load_claims, refund_calldata
from inferd.settlement.settings import SettlementSettings

_HELD_AND_FRESH = 4
"""How many batches of claims are looked at, so that held ones do not hide the others."""


class Refunder:
    def __init__(
        self, pool: Pool, launcher: Launcher, contracts: Contracts, settings: SettlementSettings
    ) -> None:
        self._pool = pool
        self._launcher = launcher
        self._contracts = contracts
        self._settings = settings
        self._holds = Holds()

    async def refund(self, sight: Sight) -> bool:
        """At most one new transaction; whether there is one. Raises RPC_TROUBLE."""
        settings = self._settings
        fees = first_fees(sight.next_base_fee_wei, sight.tip_wei, settings.refund_fee_caps())
        if fees is None:
            return False
        limit = settings.refund_max_claims
        found = await load_claims(self._pool, sight.head, limit * _HELD_AND_FRESH)
        self._holds.keep_only(claim.outbox_item() for claim in found)
        number = sight.head.number
        fresh = [c for c in found if not self._holds.holds(c.outbox_item(), number)]
        # One that may have spoilt a transaction travels alone.
        claims = [c for c in fresh if not c.suspect][:limit] or fresh[:1]
        if not claims:
            return False
        call = self._call(claims)
        if await self._launcher.simulate(call, sight) != len(claims):
            claims = await self._alive(claims, sight)
            if not claims:
                return False
            call = self._call(claims)
        estimate = await self._launcher.estimate(call)
        cap = gas_cap(settings.max_gas, sight)
        if estimate is None or estimate > cap:
            for claim in claims:
                self._holds.hold(claim.outbox_item(), number)
            return False
        draft = Draft(
            kind="refund",
            target=call.target,
            calldata=call.calldata,
            gas_limit=gas_limit(estimate, estimate, cap),
            items=tuple(claim.outbox_item() for claim in claims),
            reason="expired",
            inputs={"claims": len(claims), "estimated_gas": estimate},
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
