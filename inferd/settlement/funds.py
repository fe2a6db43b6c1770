"""Watches the poster's balance: warns, stops new work, and lets it go on."""

from __future__ import annotations

import structlog

from indexer.database import Pool
from inferd.protocol.request import Delivery
from inferd.settlement.batch import load_gas_model
from inferd.settlement.chain import Sight
from inferd.settlement.data_fee import as_gas
from inferd.settlement.delivery_gas import CLAIM_BYTES_SQL, CLAIM_GAS_SQL, DELIVER_GAS
from inferd.settlement.fees import market_tip
from inferd.settlement.runway import FundsState, Projection, Thresholds, gas_per_result, judge
from inferd.settlement.settings import PausedReason, SettlementSettings, SettlementStatus
from scheduler.words import count

_log = structlog.get_logger("settlement")

_KEPT = "the poster's balance is kept for what is under way"

_SHAPE = """
    SELECT count(*) AS posts, coalesce(sum(groups), 0)::bigint AS groups,
           coalesce(sum(items), 0)::bigint AS results
    FROM (SELECT groups, items FROM node.gas_observation ORDER BY seen_at DESC LIMIT $1) newest
"""
# Of those whose output is here: it is in the call, beside the input.
_OWED = f"""
    SELECT count(*) AS calls, coalesce(sum({DELIVER_GAS} + {CLAIM_GAS_SQL}), 0)::bigint AS gas,
           coalesce(sum({CLAIM_BYTES_SQL}), 0)::bigint AS bytes
    FROM (
        SELECT r.callback_gas_limit, octet_length(r.input) + o.bytes AS content_bytes
        FROM chain.request r
        CROSS JOIN LATERAL (
            SELECT octet_length(output) AS bytes FROM node.result n
            WHERE n.request_id = r.id AND n.commitment = r.commitment AND n.digest = r.digest
            LIMIT 1
        ) o
        WHERE r.status = 'fulfilled' AND r.delivery = {Delivery.CALLBACK:d}
          AND r.callback_delivered_block IS NULL
        ORDER BY r.settled_block, r.id LIMIT $1
    ) owed
"""  # noqa: S608 - constants


class Funds:
    """Keeps `status.funds` and `status.projection`; one for each key that signs."""

    def __init__(self, pool: Pool, settings: SettlementSettings, status: SettlementStatus) -> None:
        self._pool = pool
        self._settings = settings
        self._status = status
        self._gas: tuple[int, int] = (-1, 0)

    async def allows_new(self, sight: Sight) -> bool:
        """Whether something new may be planned; says so where not, and tells of every change.

        `sight.free_wei` is the balance without what is under way.
        """
        settings, status = self._settings, self._status
        projection = await self._projection(sight)
        thresholds = Thresholds(settings.warn_runway_results, settings.stop_runway_results)
        before, status.projection = status.funds, projection
        status.funds = judge(before, projection, thresholds)
        if status.funds is not before:
            tell = _log.info if status.funds is FundsState.ENOUGH else _log.warning
            tell(
                f"balance_{status.funds}",
                balance_wei=projection.balance_wei,
                in_flight_wei=projection.in_flight_wei,
                waiting_wei=projection.waiting_wei,
                runway_results=projection.runway_results,
            )
        if status.funds is not FundsState.SPENT:
            return True
        status.noticed = status.noticed or PausedReason.INSUFFICIENT_FUNDS
        status.posting = f"Nothing is posted: {_KEPT}."
        if status.callbacks_owed:
            owed = count(status.callbacks_owed, "callback")
            status.delivering = f"None of {owed} owed is made: {_KEPT}."
        return False

    async def _projection(self, sight: Sight) -> Projection:
        tip_wei = market_tip(sight.market, self._settings.fee_caps())
        price_wei = sight.next_base_fee_wei + tip_wei
        result_wei = await self._result_gas(sight, price_wei) * price_wei
        status, data = self._status, sight.data
        later_wei = status.ready_later_gas * price_wei + status.ready_later_data_wei
        if status.callbacks_owed:
            async with self._pool.acquire() as connection:
                owed = await connection.fetchrow(_OWED, status.callbacks_owed)
            if owed is not None:
                later_wei += owed["gas"] * (price_wei + data.per_gas_wei)
                later_wei += owed["calls"] * data.fixed_wei + owed["bytes"] * data.per_byte_wei
        return Projection(
            balance_wei=sight.balance_wei,
            in_flight_wei=sight.balance_wei - sight.free_wei,
            waiting_wei=status.ready * result_wei + later_wei,
            result_wei=result_wei,
        )

    async def _result_gas(self, sight: Sight, price_wei: int) -> int:
        """By the newest posts, with what they cost beside gas; looked up once a block."""
        block_number = sight.head.number
        if self._gas[0] != block_number:
            model = await load_gas_model(self._pool, self._settings)
            model = as_gas(model, sight.data.of_posts(), price_wei)
            async with self._pool.acquire() as connection:
                row = await connection.fetchrow(_SHAPE, self._settings.gas_window)
            self._gas = block_number, gas_per_result(model, **dict(row or {}))
        return self._gas[1]
