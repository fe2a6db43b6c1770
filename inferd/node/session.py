"""What runs while this process leads: indexer, rounds, dispatch, settlement, upkeep; or those of
its roles, and what the other processes are told and tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

import structlog

from indexer.database import Connection, Fence, Pool
from indexer.follow import Indexer
from indexer.recheck import Recheck
from indexer.status import IndexerStatus
from indexer.store import load_cursor
from indexer.types import Address, Hash32
from inferd.inputs.keeper import Keeper, KeeperLimits
from inferd.net.guarded import GuardedClient
from inferd.node.check_settings import check_rules
from inferd.node.input_settings import fetcher_of
from inferd.node.leader import CHECKING, Leadership, LostLeadership, poster_role
from inferd.node.limit_settings import limits_of
from inferd.node.metrics import CHECKS, INPUT_TRIES, RESULTS
from inferd.node.others import Others
from inferd.node.outlook import Outlook
from inferd.node.part import Part, SharedLocks
from inferd.node.pool_settings import reach_of, roster_terms
from inferd.node.pull_settings import opened_pull
from inferd.node.roles import Role, is_whole
from inferd.node.rounds import Rounds
from inferd.node.session_settings import head_trigger, settlement_settings
from inferd.node.supervise import run_all
from inferd.node.upkeep import Upkeep
from inferd.node.wakeup import (
    ENDED_CHANNEL,
    GRANT_CHANNEL,
    Wakeup,
    by_blocks,
    rung,
)
from inferd.policies.journal import adopt_settings
from inferd.policies.steering import Steering
from inferd.protocol.private import EncryptionKey
from inferd.settlement.engine import Settlement
from inferd.workers import leases
from inferd.workers.checks.checking import Checker
from inferd.workers.checks.desk import Desk
from inferd.workers.checks.inspection import Inspection
from inferd.workers.dispatch import Dispatcher
from inferd.workers.remote.roster import Roster
from inferd.workers.retries import RetryBudget

if TYPE_CHECKING:
    from inferd.node.daemon import Node

_MONITOR_INTERVAL_S = 0.5
_DECIDE_WITHIN_BLOCKS = 3
_WORKER_CONNECTIONS = 2_000
"""Each computation at a worker elsewhere holds one."""

log = structlog.get_logger("node")


class Session:
    """One leadership's work on one database.

    A process with all roles does everything by itself, and tells nobody. One with some of them does
    what these are, goes by what the others tell for the rest, and gives leases to whoever
    dispatches: another process or itself, in the same way.
    """

    def __init__(self, node: Node, db: Pool, leadership: Leadership) -> None:
        self._node = node
        self._db = db
        self._leadership = leadership
        self.roles = node.roles
        self._whole = is_whole(node.roles)
        self.others = Others(db, node.crew.names, on_change=self._ring_both)
        self._round_bell, self._settle_bell, self._input_bell = Wakeup(), Wakeup(), Wakeup()
        self._claim_bell, self.tell_bell, self.ended_bell = Wakeup(), Wakeup(), Wakeup()
        settings, contracts = node.settings, node.deployment.contracts
        self.workers = node.crew.pool_on(db, node.outputs)
        self._steering = Steering()
        self.outlook = Outlook(self, node)
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
        self._inspection = Inspection(
            self.workers,
            check_rules(settings.checks),
            proved=lambda: self.probation_success,
            on_outcome=lambda kind, outcome: CHECKS.labels(kind, outcome).inc(),
        )
        self.dispatcher = Dispatcher(
            self.workers,
            db,
            fence=leadership.fence,
            on_change=self._lease_ended,
            budget=self.retries,
            proved=lambda: self.probation_success,
            files=node.outputs,
            inspection=self._inspection,
        )
        self.checker = Checker(
            Desk(
                self.workers,
                db,
                self._inspection,
                self.dispatcher.asked,
                self._fence_checks,
                node.outputs,
                self._results_changed,
            ),
            node.crew.names,
            proved=lambda: self.probation_success,
        )
        self._checks: Fence | None = None
        """Where this process has all of them."""
        self._http = GuardedClient(
            reach_of(settings.pool, contracts.chain_id),
            connections=_WORKER_CONNECTIONS,
            per_host=_WORKER_CONNECTIONS // 2,
        )
        # Whoever asks no workers needs no broker.
        self._pull = None if node.operator is None else opened_pull(settings.pull)
        self.roster = Roster(
            self.workers,
            db,
            self._http,
            node.operator,
            self.retries,
            node.crew.names,
            terms=roster_terms(settings.pool),
            on_change=self._pool_changed,
            pulls=None if self._pull is None else self._pull.of,
        )
        self.settlement = self._settlement_of(node) if Role.SETTLE in node.roles else None
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
            inputs=self.outlook.inputs,
            steering=self._steering,
            policy_budget_s=lambda: node.settings.scheduling.policy_budget_ms / 1000,
            dispatcher=self.dispatcher if self._whole else None,
            names=node.crew.names,
            fence=leadership.fence,
            bell=self._round_bell,
            # Before the first look of settlement nothing would seem to cost more than its base fee.
            may_decide=self._may_decide,
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
            own_accounts=lambda: self.own_accounts,
            limits=lambda: limits_of(node.settings.limits, node.settings.tenants),
            on_expiry=self._ring_both,
        )

    def _settlement_of(self, node: Node) -> Settlement:
        contracts, leadership = node.deployment.contracts, self._leadership
        if node.facts is None:
            raise RuntimeError("settlement needs to know what the contracts have fixed")
        return Settlement(
            rpc=node.rpc,
            db=self._db,
            contracts=contracts,
            signers=node.posters,
            sign_group=self.workers.sign_group,
            settings=settlement_settings(node.settings, node.facts, self.own_accounts),
            fence=leadership.fence_in_turn,
            claim=lambda poster: leadership.claim(poster_role(contracts.chain_id, poster)),
            sharing=None if self._whole else SharedLocks(leadership, contracts.chain_id),
        )

    @property
    def own_accounts(self) -> frozenset[Address]:
        """The accounts whose money is the operator's: who has no key of theirs asks who has."""
        named = self._node.own_accounts
        return self.others.own_accounts if named is None else named

    @property
    def keys_held(self) -> Mapping[Address, Collection[EncryptionKey]]:
        """To which inputs may be encrypted for each worker, as this process knows."""
        crew = self._node.crew
        return self.roster.encryption_keys | dict.fromkeys(crew.addresses, crew.sealing.keys)

    @property
    def probation_success(self) -> float:
        """How surely a worker that is not ours must succeed to be off probation."""
        return self._node.settings.limits.probation_success

    @property
    def caught_up(self) -> bool:
        """See `tells_of_now`."""
        if Role.INDEX in self.roles:
            return tells_of_now(self.indexer.status)
        return self.others.caught_up

    async def run(self) -> None:
        """Until cancelled. Raises SessionEnded, or what only a person can mend."""
        if Role.INDEX in self.roles:
            await self.indexer.prepare()
        if Role.SCHEDULE in self.roles:
            await self._take_over()
        if Role.DISPATCH in self.roles:
            async with self._db.acquire() as connection, connection.transaction():
                await self._leadership.fence(connection)
                await self._inspection.begin(connection)
        try:
            async with rung(self._node.database.url, self._rings()):
                self._ring_both()
                await run_all(self._tasks())
        finally:
            self._steering.close()
            await self.dispatcher.close()
            await self._http.close()
            if self._pull is not None:
                await self._pull.close()

    async def _take_over(self) -> None:
        async with self._db.acquire() as connection, connection.transaction():
            await self._leadership.fence(connection)
            abandoned = 0
            if self._whole:
                # Their daemon is gone, and with it what it computed for them.
                abandoned = len(await leases.abandon_previous(connection))
            await adopt_settings(connection, self._node.settings.scheduling.choice)
        await self.inputs.begin_again()
        if abandoned:
            log.info("abandoned_leases", count=abandoned)

    def _rings(self) -> Mapping[str, Collection[Wakeup]]:
        bells = self._round_bell, self._settle_bell
        if self._whole:
            return by_blocks(*bells)
        return {**by_blocks(*bells), GRANT_CHANNEL: [self._claim_bell], ENDED_CHANNEL: bells}

    def _tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        tasks: dict[str, Callable[[], Awaitable[None]]] = {"leadership": self._watch_leadership}
        if Role.INDEX in self.roles:
            tasks |= {"indexer": self.indexer.run, "recheck": self.recheck.run}
        if Role.SCHEDULE in self.roles:
            tasks |= {
                "rounds": self.rounds.run,
                "inputs": self.inputs.run,
                "upkeep": self.upkeep.run,
            }
        if self.roles & {Role.DISPATCH, Role.SETTLE}:
            tasks["roster"] = self.roster.run
        if Role.DISPATCH in self.roles:
            checks = partial(self.checker.run, self._has_all_checks)
            tasks |= {"dispatch": self.dispatcher.watch, "checks": checks}
        if self.settlement is not None:
            tasks["settlement"] = partial(self._settle, self.settlement)
        if not self._whole:
            part = Part(self, self._node, self._db, self._leadership)
            tasks |= part.tasks(claim_bell=self._claim_bell)
        return tasks | {"monitor": self._monitor}

    async def adopt_settings(self) -> None:
        """Takes over what the settings file says by now."""
        if Role.SCHEDULE in self.roles:
            async with self._db.acquire() as connection, connection.transaction():
                await self._leadership.fence(connection)
                await adopt_settings(connection, self._node.settings.scheduling.choice)
        self.roster.adopt(roster_terms(self._node.settings.pool))
        self._round_bell.ring()

    async def _has_all_checks(self) -> bool:
        """One of all that dispatch has."""
        if self._checks is None:
            self._checks = await self._leadership.claim(CHECKING)
        return self._checks is not None

    async def _fence_checks(self, connection: Connection) -> None:
        await (self._checks or self._leadership.fence)(connection)

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
        self._results_changed()

    def _results_changed(self) -> None:
        """Here and for the other processes, by `ENDED_CHANNEL`."""
        self._ring_both()
        self.ended_bell.ring()

    def _pool_changed(self) -> None:
        self._round_bell.ring()
        self.tell_bell.ring()
        self._claim_bell.ring()

    def ring_rounds(self) -> None:
        """What rounds decide on has changed."""
        self._round_bell.ring()

    def _ring_both(self) -> None:
        self._round_bell.ring()
        self._settle_bell.ring()

    async def _settle(self, settlement: Settlement) -> None:
        again_at_s: float | None = None
        while True:
            await self._settle_bell.wait(until_s=again_at_s)
            again_at_s = None
            if not self.caught_up:
                continue
            async with self._db.acquire() as connection:
                head = await load_cursor(connection)
            if head is not None:
                knew_prices = settlement.knows_prices
                again_at_s = await settlement.step(head)
                if settlement.knows_prices and not knew_prices:
                    self._round_bell.ring()
                    self.tell_bell.ring()

    def _may_decide(self) -> bool:
        return self.caught_up and self.outlook.is_clear

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
