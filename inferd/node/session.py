"""What runs while this process leads: indexer, rounds, dispatch, settlement, upkeep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog
from eth_utils.address import to_canonical_address

from indexer.database import Connection, Pool
from indexer.follow import Indexer
from indexer.recheck import Recheck
from indexer.rpc import ChainIdentity
from indexer.rpc.heads import HeadTrigger
from indexer.status import IndexerStatus
from indexer.store import load_cursor
from indexer.types import WEI_PER_GWEI, Address, Hash32
from inferd.chain.keys import address_of
from inferd.inputs.keeper import Keeper, KeeperLimits
from inferd.net.guarded import GuardedClient
from inferd.node.base_fee_rises import BaseFeeRises
from inferd.node.input_settings import fetcher_of
from inferd.node.leader import Leadership, LostLeadership, poster_role
from inferd.node.limit_settings import budgets_of, limits_of
from inferd.node.metrics import INPUT_TRIES, RESULTS
from inferd.node.pool_settings import reach_of, roster_terms
from inferd.node.preflight import ChainFacts
from inferd.node.rounds import Rounds
from inferd.node.settings import Settings
from inferd.node.snapshot import RoundInputs, with_private
from inferd.node.supervise import run_all
from inferd.node.upkeep import Upkeep
from inferd.node.wakeup import Wakeup, rung_by_blocks
from inferd.policies.journal import adopt_settings
from inferd.policies.steering import Steering
from inferd.protocol.deployment import Deployment
from inferd.settlement.engine import Settlement
from inferd.settlement.settings import SettlementSettings
from inferd.workers import leases
from inferd.workers.dispatch import Dispatcher
from inferd.workers.remote.roster import Roster
from inferd.workers.retries import RetryBudget
from scheduler.model import Rules, WorkerView

if TYPE_CHECKING:
    from inferd.node.daemon import Node

_MONITOR_INTERVAL_S = 0.5
_DECIDE_WITHIN_BLOCKS = 3
_WORKER_CONNECTIONS = 2_000
"""Each computation at a worker elsewhere holds one."""

log = structlog.get_logger("node")


class Session:
    """One leadership's work on one database."""

    def __init__(self, node: Node, db: Pool, leadership: Leadership) -> None:
        self._node = node
        self._db = db
        self._leadership = leadership
        self._round_bell, self._settle_bell, self._input_bell = Wakeup(), Wakeup(), Wakeup()
        settings, contracts = node.settings, node.deployment.contracts
        self.workers = node.crew.pool_on(db, node.outputs)
        self._own_accounts = own_accounts(
            settings, contracts.chain_id, [poster.address for poster in node.posters]
        )
        self._steering = Steering()
        self._rises = BaseFeeRises()
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
            heads=head_trigger(settings, node.deployment),
        )
        self.recheck = Recheck(
            node.rpc, db, contracts, fence=leadership.fence, may_run=lambda: self.caught_up
        )
        self.retries = RetryBudget()
        self.dispatcher = Dispatcher(
            self.workers,
            db,
            fence=leadership.fence,
            on_change=self._lease_ended,
            budget=self.retries,
            proved=lambda: self.probation_success,
            files=node.outputs,
        )
        self._http = GuardedClient(
            reach_of(settings.pool, contracts.chain_id),
            connections=_WORKER_CONNECTIONS,
            per_host=_WORKER_CONNECTIONS // 2,
        )
        self.roster = Roster(
            self.workers,
            db,
            self._http,
            node.operator,
            self.retries,
            node.crew.names,
            terms=roster_terms(settings.pool),
            on_change=self._round_bell.ring,
        )
        self.settlement = Settlement(
            rpc=node.rpc,
            db=db,
            contracts=contracts,
            signers=node.posters,
            sign_group=self.workers.sign_group,
            settings=settlement_settings(settings, node.facts, self._own_accounts),
            fence=leadership.fence,
            claim=lambda poster: leadership.claim(poster_role(contracts.chain_id, poster)),
        )
        self.inputs = Keeper(
            db,
            fetcher_of(settings.inputs, contracts.chain_id),
            KeeperLimits(
                settings.inputs.at_once,
                settings.inputs.per_host,
                settings.inputs.max_tries,
                settings.scheduling.inclusion_s,
                settings.inputs.max_bytes,
                settings.inputs.total_bytes,
            ),
            fence=leadership.fence,
            bell=self._input_bell,
            on_try=lambda outcome: INPUT_TRIES.labels(outcome).inc(),
            on_change=self._round_bell.ring,
        )
        self.rounds = Rounds(
            db=db,
            inputs=self._round_inputs,
            steering=self._steering,
            policy_budget_s=lambda: node.settings.scheduling.policy_budget_ms / 1000,
            dispatcher=self.dispatcher,
            names=node.crew.names,
            fence=leadership.fence,
            bell=self._round_bell,
            # Before the first look of settlement nothing would seem to cost more than its base fee.
            may_decide=lambda: self.caught_up and self.settlement.knows_prices,
            record_up_to=settings.retention.recorded_requests,
            on_decided=self._input_bell.ring,
        )
        self.upkeep = Upkeep(
            db,
            leadership.fence,
            outputs=node.outputs,
            settled_days=settings.retention.settled_days,
            output_days=settings.retention.output_days,
            input_hours=settings.retention.input_hours,
            snapshot_hours=settings.retention.snapshot_hours,
            snapshot_bytes=settings.retention.snapshot_mb * 1_000_000,
            own_accounts=self._own_accounts,
            limits=lambda: limits_of(node.settings.limits, node.settings.tenants),
            on_expiry=self._ring_both,
        )

    @property
    def probation_success(self) -> float:
        """How surely a worker that is not ours must succeed to be off probation."""
        return self._node.settings.limits.probation_success

    @property
    def caught_up(self) -> bool:
        """See `tells_of_now`."""
        return tells_of_now(self.indexer.status)

    async def run(self) -> None:
        """Until cancelled. Raises SessionEnded, or what only a person can mend."""
        await self.indexer.prepare()
        async with self._db.acquire() as connection, connection.transaction():
            await self._leadership.fence(connection)
            # Their daemon is gone, and with it what it computed for them.
            abandoned = await leases.abandon_previous(connection)
            await adopt_settings(connection, self._node.settings.scheduling.choice)
        await self.inputs.begin_again()
        if abandoned:
            log.info("abandoned_leases", count=len(abandoned))
        try:
            bells = self._round_bell, self._settle_bell
            async with rung_by_blocks(self._node.database.url, *bells):
                self._ring_both()
                await run_all(
                    {
                        "leadership": self._watch_leadership,
                        "indexer": self.indexer.run,
                        "recheck": self.recheck.run,
                        "rounds": self.rounds.run,
                        "roster": self.roster.run,
                        "inputs": self.inputs.run,
                        "dispatch": self.dispatcher.watch,
                        "settlement": self._settle,
                        "upkeep": self.upkeep.run,
                        "monitor": self._monitor,
                    }
                )
        finally:
            self._steering.close()
            await self.dispatcher.close()
            await self._http.close()

    async def adopt_settings(self) -> None:
        """Takes over what the settings file says by now."""
        async with self._db.acquire() as connection, connection.transaction():
            await self._leadership.fence(connection)
            await adopt_settings(connection, self._node.settings.scheduling.choice)
        self.roster.adopt(roster_terms(self._node.settings.pool))
        self._round_bell.ring()

    async def _watch_leadership(self) -> None:
        try:
            await self._leadership.watch()
        except LostLeadership:
            # The server may hang: a rollback sent to it would never be answered, and the end of
            # this session would wait for it for ever.
            self._db.terminate()
            raise

    def _lease_ended(self, outcome: str) -> None:
        RESULTS.labels(outcome).inc()
        self._ring_both()

    def _ring_both(self) -> None:
        self._round_bell.ring()
        self._settle_bell.ring()

    async def _settle(self) -> None:
        again_at_s: float | None = None
        while True:
            await self._settle_bell.wait(until_s=again_at_s)
            again_at_s = None
            if not self.caught_up:
                continue
            async with self._db.acquire() as connection:
                head = await load_cursor(connection)
            if head is not None:
                knew_prices = self.settlement.knows_prices
                again_at_s = await self.settlement.step(head)
                if self.settlement.knows_prices and not knew_prices:
                    self._round_bell.ring()

    async def _round_inputs(self, connection: Connection) -> RoundInputs:
        settings = self._node.settings
        scheduling = settings.scheduling
        self.worker_views = with_private(
            await self.workers.views(connection, self._own_accounts), self._node.crew.addresses
        )
        return RoundInputs(
            workers=self.worker_views,
            gas=await self.settlement.gas_model(),
            rules=Rules(
                poster_bps=self._node.facts.poster_bps,
                max_wait_s=scheduling.max_wait_s,
                inclusion_s=scheduling.inclusion_s,
                gas_margin=scheduling.gas_margin,
                base_fee_quantiles_ppm=await self._rises.quantiles_ppm(
                    connection, scheduling.base_fee_quantile
                ),
                expected_batch=scheduling.expected_batch,
                max_attempts=scheduling.max_attempts,
                priority_fee_wei=self.settlement.status.tip_wei,
                limits=limits_of(
                    settings.limits, settings.tenants, unposted=settings.most_unposted
                ),
                flow_arcs=scheduling.flow_arcs,
            ),
            now_s=time.time(),
            max_gas=settings.posting.max_gas,
            private_keys=self._node.crew.sealing.keys,
            budgets_wei=budgets_of(settings.limits),
            unposted=self.settlement.status.crowded_out,
        )

    async def _monitor(self) -> None:
        try:
            while True:
                self._node.status.observe(self)
                self._node.bar.observe(self.indexer.status)
                await asyncio.sleep(_MONITOR_INTERVAL_S)
        finally:
            self._node.bar.close()


def tells_of_now(index: IndexerStatus) -> bool:
    """Whether the tables tell of the chain as it is now: decisions on an old picture would
    compute and post again what was settled long ago.

    An endpoint that is below the tables does not show how old they are, nor what it takes.
    """
    return (
        index.last_progress_monotonic is not None
        and index.indexed is not None
        and max(index.lag_blocks, index.head_behind_blocks) <= _DECIDE_WITHIN_BLOCKS
    )


def head_trigger(settings: Settings, deployment: Deployment) -> HeadTrigger | None:
    """Raises BadRpcUrl."""
    if not settings.rpc_ws_urls:
        return None
    genesis_hash = Hash32(deployment.genesis_hash)
    identity = ChainIdentity(deployment.contracts.chain_id, genesis_hash)
    return HeadTrigger(settings.rpc_ws_urls, identity)


def own_accounts(
    settings: Settings, chain_id: int, posters: Iterable[Address]
) -> frozenset[Address]:
    """The accounts whose money is the operator's. Raises BadKey."""
    named = settings.posting.own_accounts
    if named is not None:
        return frozenset(Address(to_canonical_address(account)) for account in named)
    return frozenset(
        {
            *posters,
            *(
                address_of(worker.owner, chain_id, use=f"owner of worker {worker.name}")
                for worker in settings.workers
                if worker.owner is not None
            ),
        }
    )


def settlement_settings(
    settings: Settings, facts: ChainFacts, own: frozenset[Address]
) -> SettlementSettings:
    """The operator's choices in settlement's own units."""
    posting = settings.posting
    return SettlementSettings(
        poster_bps=facts.poster_bps,
        pool_visible=not settings.rpc_send_urls,
        own_accounts=own,
        confirmations=posting.confirmations,
        max_in_flight=posting.max_in_flight,
        max_fee_per_gas_wei=posting.max_fee_gwei * WEI_PER_GWEI,
        max_priority_fee_wei=posting.max_priority_fee_gwei * WEI_PER_GWEI,
        max_transaction_wei=posting.max_transaction_gwei * WEI_PER_GWEI,
        cap_wei_per_hour=posting.cap_gwei_per_hour * WEI_PER_GWEI,
        cap_wei_per_day=posting.cap_gwei_per_day * WEI_PER_GWEI,
        delay_price_wei_per_s=posting.delay_price_gwei_per_s * WEI_PER_GWEI,
        guard_s=posting.guard_s,
        lead_s=posting.lead_s,
        max_results=posting.max_results,
        max_gas=posting.max_gas,
        warn_runway_results=posting.warn_runway_results,
        stop_runway_results=posting.stop_runway_results,
        refunds=posting.refund_expired,
        refund_max_fee_per_gas_wei=posting.refund_max_fee_gwei * WEI_PER_GWEI,
        refund_min_fee_ratio=posting.refund_min_fee_ratio,
        refund_budget_wei_per_day=posting.refund_budget_gwei_per_day * WEI_PER_GWEI,
    )
