"""What rounds decide on: workers, prices and rules, as this process sees them or others tell it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from indexer.database import Connection
from inferd.node.base_fee_rises import BaseFeeRises
from inferd.node.limit_settings import budgets_of, limits_of
from inferd.node.roles import is_whole
from inferd.node.snapshot import RoundInputs, with_private
from inferd.node.told import Market
from inferd.workers import leases
from inferd.workers.checks.room import load_open, with_room
from inferd.workers.standings import views_of
from scheduler.model import Rules, WorkerView

if TYPE_CHECKING:
    from inferd.node.daemon import Node
    from inferd.node.session import Session


class Outlook:
    """Of one session: its own parts, and the other processes for what these do not do."""

    def __init__(self, session: Session, node: Node) -> None:
        self._session = session
        self._node = node
        self._rises = BaseFeeRises()
        self.worker_views: tuple[WorkerView, ...] | None = None
        """As the last round saw them; None before the first."""

    @property
    def is_clear(self) -> bool:
        """Whether prices are known, and workers where others dispatch: without its dispatchers a
        worker is not unknown, but out of sight."""
        session = self._session
        prices = session.others if session.settlement is None else session.settlement
        return prices.knows_prices and (is_whole(session.roles) or session.others.has_offers)

    async def market(self) -> Market | None:
        """None where nobody has seen the chain's prices."""
        settlement = self._session.settlement
        if settlement is None:
            return self._session.others.market
        if not settlement.knows_prices:
            return None
        status = settlement.status
        return Market(await settlement.gas_model(), status.tip_wei, status.crowded_out)

    async def inputs(self, connection: Connection) -> RoundInputs:
        """Of a round that begins now. Raises RuntimeError unless it `is_clear`."""
        session, settings = self._session, self._node.settings
        scheduling = settings.scheduling
        market, facts = await self.market(), self._node.facts
        if market is None or facts is None:
            raise RuntimeError("a round needs prices and the terms of the contracts")
        self.worker_views = await self._views(connection)
        return RoundInputs(
            workers=with_room(
                self.worker_views,
                await load_open(connection),
                proved=session.probation_success,
                under_way=session.checker.under_way,
            ),
            gas=market.gas,
            rules=Rules(
                poster_bps=facts.poster_bps,
                max_wait_s=scheduling.max_wait_s,
                inclusion_s=scheduling.inclusion_s,
                gas_margin=scheduling.gas_margin,
                base_fee_quantiles_ppm=await self._rises.quantiles_ppm(
                    connection, scheduling.base_fee_quantile
                ),
                expected_batch=scheduling.expected_batch,
                max_attempts=scheduling.max_attempts,
                priority_fee_wei=market.tip_wei,
                limits=limits_of(
                    settings.limits, settings.tenants, unposted=settings.most_unposted
                ),
                flow_arcs=scheduling.flow_arcs,
            ),
            now_s=time.time(),
            max_gas=settings.posting.max_gas,
            budgets_wei=budgets_of(settings.limits),
            unposted=market.unposted,
        )

    async def _views(self, connection: Connection) -> tuple[WorkerView, ...]:
        """The workers that a round can give something to."""
        session = self._session
        if is_whole(session.roles):
            views = await session.workers.views(connection, session.own_accounts)
            return with_private(views, session.keys_held)
        counts = await leases.count_active(connection)
        presences = [
            replace(one, in_flight=one.in_flight + counts.get(one.address, 0))
            for one in session.others.presences
        ]
        views = await views_of(connection, presences, session.own_accounts)
        return with_private(views, session.others.keys_held)
