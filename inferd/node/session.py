"""What runs while this process leads: indexer, rounds, dispatch, settlement, upkeep."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from indexer.database import Connection, Pool
from indexer.follow import Indexer
from indexer.store import load_cursor
from indexer.types import Address, Hash32
from inferd.node.leader import Leadership
from inferd.node.metrics import RESULTS
from inferd.node.preflight import ChainFacts
from inferd.node.rounds import Rounds
from inferd.node.settings import Gwei, Settings
from inferd.node.snapshot import RoundInputs
from inferd.node.supervise import first_cause, keep_running
from inferd.node.upkeep import Upkeep
from inferd.node.wakeup import Wakeup, rung_by_blocks
from inferd.settlement.engine import Settlement
from inferd.settlement.keys import LocalSigner
from inferd.settlement.settings import SettlementSettings
from inferd.workers import leases
from inferd.workers.dispatch import Dispatcher
from scheduler.model import Rules, WorkerView

if TYPE_CHECKING:
    from inferd.node.daemon import Node

_MONITOR_INTERVAL_S = 0.5

log = structlog.get_logger("node")


class Session:
    """One leadership's work on one database."""

    def __init__(self, node: Node, db: Pool, leadership: Leadership) -> None:
        self._node = node
        self._db = db
        self._leadership = leadership
        self._round_bell, self._settle_bell = Wakeup(), Wakeup()
        settings, contracts = node.settings, node.deployment.contracts
        self._workers = node.crew.pool_on(db)
        self.worker_views: tuple[WorkerView, ...] | None = None
        """As the last round saw them; None before the first."""
        self.indexer = Indexer(
            node.rpc,
            db,
            contracts,
            genesis_hash=Hash32(node.deployment.genesis_hash),
            window_blocks=settings.index.window_blocks,
            poll_interval_s=settings.index.poll_interval_s,
            fence=leadership.fence,
        )
        self.dispatcher = Dispatcher(
            self._workers, db, fence=leadership.fence, on_change=self._lease_ended
        )
        self.settlement = Settlement(
            rpc=node.rpc,
            db=db,
            contracts=contracts,
            signer=LocalSigner(node.poster),
            sign_group=self._workers.sign_group,
            settings=settlement_settings(settings, node.facts, node.crew.addresses),
            fence=leadership.fence,
        )
        self.rounds = Rounds(
            db=db,
            inputs=self._round_inputs,
            policy=settings.scheduling.policy,
            dispatcher=self.dispatcher,
            names=node.crew.names,
            fence=leadership.fence,
            bell=self._round_bell,
        )
        self.upkeep = Upkeep(db, leadership.fence, on_expiry=self._ring_both)

    async def run(self) -> None:
        """Until cancelled. Raises SessionEnded, or what only a person can mend."""
        await self.indexer.prepare()
        async with self._db.acquire() as connection, connection.transaction():
            await self._leadership.fence(connection)
            # Their daemon is gone, and with it what it computed for them.
            abandoned = await leases.abandon_previous(connection)
        if abandoned:
            log.info("abandoned_leases", count=len(abandoned))
        try:
            async with (
                rung_by_blocks(self._node.database.url, self._round_bell, self._settle_bell),
                asyncio.TaskGroup() as tasks,
            ):
                self._ring_both()
                for name, work in (
                    ("leadership", self._leadership.watch),
                    ("indexer", self.indexer.run),
                    ("rounds", self.rounds.run),
                    ("dispatch", self.dispatcher.watch),
                    ("settlement", self._settle),
                    ("upkeep", self.upkeep.run),
                    ("monitor", self._monitor),
                ):
                    tasks.create_task(keep_running(name, work), name=name)
        except BaseExceptionGroup as group:
            raise first_cause(group) from None
        finally:
            await self.dispatcher.close()

    def _lease_ended(self, outcome: str) -> None:
        RESULTS.labels(outcome).inc()
        self._ring_both()

    def _ring_both(self) -> None:
        self._round_bell.ring()
        self._settle_bell.ring()

    async def _settle(self) -> None:
        while True:
            await self._settle_bell.wait()
            async with self._db.acquire() as connection:
                head = await load_cursor(connection)
            if head is not None:
                await self.settlement.step(head)

    async def _round_inputs(self, connection: Connection) -> RoundInputs:
        scheduling = self._node.settings.scheduling
        self.worker_views = await self._workers.views(connection, self._node.crew.addresses)
        return RoundInputs(
            workers=self.worker_views,
            gas=await self.settlement.gas_model(),
            rules=Rules(
                poster_bps=self._node.facts.poster_bps,
                max_wait_s=scheduling.max_wait_s,
                inclusion_s=scheduling.inclusion_s,
                gas_margin=scheduling.gas_margin,
                expected_batch=scheduling.expected_batch,
                max_attempts=scheduling.max_attempts,
            ),
            now_s=time.time(),
        )

    async def _monitor(self) -> None:
        while True:
            self._node.status.observe(self)
            await asyncio.sleep(_MONITOR_INTERVAL_S)


def settlement_settings(
    settings: Settings, facts: ChainFacts, own_workers: frozenset[Address]
) -> SettlementSettings:
    """The operator's choices in settlement's own units."""
    posting = settings.posting
    return SettlementSettings(
        poster_bps=facts.poster_bps,
        own_workers=own_workers,
        confirmations=posting.confirmations,
        max_in_flight=posting.max_in_flight,
        max_fee_per_gas_wei=posting.max_fee_gwei * Gwei,
        delay_price_wei_per_s=posting.delay_price_gwei_per_s * Gwei,
        guard_s=posting.guard_s,
        max_results=posting.max_results,
        max_gas=posting.max_gas,
        refunds=posting.refund_expired,
        refund_max_fee_per_gas_wei=posting.refund_max_fee_gwei * Gwei,
    )
