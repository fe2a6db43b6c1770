"""Watches the balance of each key that posts: warns, stops new work, and lets it go on."""

from __future__ import annotations

import structlog
from eth_utils.address import to_checksum_address

from indexer.database import Pool
from inferd.protocol.request import Delivery
from inferd.settlement.batch import load_gas_model
from inferd.settlement.chain import Sight
from inferd.settlement.data_fee import as_gas
from inferd.settlement.delivery_gas import CLAIM_BYTES_SQL, CLAIM_GAS_SQL, DELIVER_GAS
from inferd.settlement.fees import market_tip
from inferd.settlement.runway import FundsState, Projection, Thresholds, gas_per_result, judge
from inferd.settlement.settings import (
    KeyStatus,
    PausedReason,
    SettlementSettings,
    SettlementStatus,
)
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
            SELECT coalesce(octet_length(output), file_bytes) AS bytes FROM node.result n
            WHERE n.request_id = r.id AND n.commitment = r.commitment AND n.digest = r.digest
            LIMIT 1
        ) o
        WHERE r.status = 'fulfilled' AND r.delivery = {Delivery.CALLBACK:d}
          AND r.callback_delivered_block IS NULL
        ORDER BY r.settled_block, r.id LIMIT $1
    ) owed
"""  # noqa: S608 - constants


class Funds:
    """Keeps `funds` and `projection` of each key."""

    def __init__(self, pool: Pool, settings: SettlementSettings, status: SettlementStatus) -> None:
        self._pool = pool
        self._settings = settings
        self._status = status
        self._gas: tuple[int, int] = (-1, 0)

    async def allows_new(self, key: KeyStatus, sight: Sight, sharers: int = 1) -> bool:
        """Whether that key may send something new; says so where not, and tells of every change.

        `sight.free_wei` is its balance without what is under way. What waits is shared by so many
        keys.
        """
        settings = self._settings
        projection = await self._projection(sight, sharers)
        thresholds = Thresholds(settings.warn_runway_results, settings.stop_runway_results)
        before, key.projection = key.funds, projection
        key.funds = judge(before, projection, thresholds)
        if key.funds is not before:
            tell = _log.info if key.funds is FundsState.ENOUGH else _log.warning
            tell(
                f"balance_{key.funds}",
                poster=to_checksum_address(key.address),
                balance_wei=projection.balance_wei,
                in_flight_wei=projection.in_flight_wei,
                waiting_wei=projection.waiting_wei,
                runway_results=projection.runway_results,
            )
        if key.funds is not FundsState.SPENT:
            return True
        key.noticed = key.noticed or PausedReason.INSUFFICIENT_FUNDS
        return False

    def tell_spent(self) -> None:
        """No key may send anything new."""
        status = self._status
        status.posting = f"Nothing is posted: {_KEPT}."
        if status.callbacks_owed:
            owed = count(status.callbacks_owed, "callback")
            status.delivering = f"None of {owed} owed is made: {_KEPT}."

    async def _projection(self, sight: Sight, sharers: int) -> Projection:
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
            waiting_wei=-(-(status.ready * result_wei + later_wei) // sharers),
            result_wei=result_wei,
        )

    async def _result_gas(self, sight: Sight, price_wei: int) -> int:
        """By the newest posts, with what they cost beside gas; looked up once a block."""
        block_number = sight.head.number
        if self._gas[0] != block_number:
            model = await load_gas_model(self._pool, self._settings)
            model = as_gas(model, sight.data, price_wei)
            async with self._pool.acquire() as connection:
                row = await connection.fetchrow(_SHAPE, self._settings.gas_window)
            self._gas = block_number, gas_per_result(model, **dict(row or {}))
        return self._gas[1]
