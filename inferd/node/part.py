"""What a process with some of a node's roles does beside them: it tells the others what they go by,
takes leases where it dispatches, and buries who is gone where it schedules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.node.claims import Claims
from inferd.node.index_views import index_view
from inferd.node.leader import SETTLING, Leadership, bury_processes, poster_role
from inferd.node.pool_models import PoolWorkerView
from inferd.node.pool_views import load_pool
from inferd.node.roles import Role
from inferd.node.told import Said, Teller, forget_processes, said_of, said_presence
from inferd.node.wakeup import ENDED_CHANNEL, Wakeup, notify
from inferd.workers import leases
from inferd.workers.dispatch import Dispatcher
from inferd.workers.pool import WorkerPool
from inferd.workers.standings import Presence

if TYPE_CHECKING:
    from inferd.node.daemon import Node
    from inferd.node.session import Session

_TELL_EVERY_S = 1.0
_OF_ITS_TIME = 10
"""So many times as long as it takes to look at all workers of the pool, with their registry and
what was learnt of them, it is not done again."""
_BURY_EVERY_S = 1.0
_UNCLAIMED_S = 5.0
"""A lease that no dispatcher takes within this is granted anew."""

log = structlog.get_logger("node")


class SharedLocks:
    """The locks of the posters' keys, and of the steps of those that have them; a `Sharing`."""

    def __init__(self, leadership: Leadership, chain_id: int) -> None:
        self._leadership = leadership
        self._chain_id = chain_id

    def turn(self) -> AbstractAsyncContextManager[None]:
        return self._leadership.turn(SETTLING)

    async def leave(self, poster: Address) -> None:
        """Raises LostLeadership."""
        await self._leadership.leave(poster_role(self._chain_id, poster))

    async def is_elsewhere(self, poster: Address) -> bool:
        """Raises LostLeadership."""
        return await self._leadership.is_elsewhere(poster_role(self._chain_id, poster))


class Part:
    """One leadership of a process among others."""

    def __init__(self, session: Session, node: Node, db: Pool, leadership: Leadership) -> None:
        if leadership.process is None:
            raise ValueError("a daemon with all roles is no process among others")
        self._process = leadership.process
        self._session = session
        self._node = node
        self._db = db
        self._leadership = leadership
        roles = map(str, session.roles)
        self._teller = Teller(leadership.process, leadership.holder, roles)
        self._next_view_s = 0.0

    def tasks(self, claim_bell: Wakeup) -> dict[str, Callable[[], Awaitable[None]]]:
        """By name, for the supervisor; `claim_bell` is rung by each grant of leases."""
        session, roles = self._session, self._session.roles
        tasks: dict[str, Callable[[], Awaitable[None]]] = {
            "others": session.others.run,
            "tell": self._tell_again_and_again,
        }
        if Role.SCHEDULE in roles:
            tasks["bury"] = self._bury_again_and_again
        if Role.DISPATCH in roles:
            claims = Claims(
                self._db,
                session.workers,
                session.dispatcher,
                self._node.crew.names,
                process=self._process,
                fence=self._leadership.fence,
                bell=claim_bell,
                look=session.others.look_on,
            )
            tasks |= {"claims": claims.run, "endings": self._tell_endings}
        return tasks

    async def _tell_again_and_again(self) -> None:
        while True:
            said, presences, pool = await self._said(), [], None
            if Role.DISPATCH in self._session.roles:
                pool = await self._view_workers()
                presences = beside_leases(self._session.workers, self._session.dispatcher)
                said.presences = [said_presence(one) for one in presences]
            try:
                async with self._db.acquire() as connection, connection.transaction():
                    await self._leadership.fence(connection)
                    await self._teller.tell(connection, said, presences, pool)
            except BaseException:
                self._teller.forget()
                raise
            await self._session.tell_bell.wait(until_s=time.time() + _TELL_EVERY_S)

    async def _said(self) -> Said:
        health = self._node.health
        said = Said(
            ready=health.ready,
            problems=list(health.problems.values()),
            warnings=list(health.warnings.values()),
        )
        if Role.INDEX in self._session.roles:
            said.caught_up, said.index = self._session.caught_up, index_view(self._session)
        if Role.DISPATCH in self._session.roles:
            self._say_of_keys(said)
        if Role.SETTLE in self._session.roles:
            await self._say_of_settlement(said)
        return said

    async def _view_workers(self) -> list[PoolWorkerView] | None:
        """How people see the pool's workers; None where that is as new as may be."""
        session, began_s = self._session, time.monotonic()
        if began_s < self._next_view_s:
            return None
        async with self._db.acquire() as connection:
            # It is by these that a second worker is chosen, too.
            views = await session.workers.views(connection, session.own_accounts)
            if Role.SCHEDULE not in session.roles:
                session.outlook.worker_views = views
            found = await load_pool(connection, session, self._node.crew.names)
        ended_s = time.monotonic()
        self._next_view_s = ended_s + _OF_ITS_TIME * (ended_s - began_s)
        return found.workers

    def _say_of_keys(self, said: Said) -> None:
        said.keys_held = {
            worker.hex(): sorted(key.hex() for key in keys)
            for worker, keys in self._session.keys_held.items()
        }
        said.encryption_key = self._node.api.own_encryption_key()

    async def _say_of_settlement(self, said: Said) -> None:
        session, status = self._session, self._node.status
        market = await session.outlook.market()
        said.market = None if market is None else said_of(market)
        said.own_accounts = sorted(one.hex() for one in session.own_accounts)
        said.settlement = await status.settlement_view(session)
        said.posting, said.delivering = status.posting, status.delivering

    async def _tell_endings(self) -> None:
        """To who schedules and who settles: several that end together at once."""
        while True:
            await self._session.ended_bell.wait()
            async with self._db.acquire() as connection:
                await notify(connection, ENDED_CHANNEL)

    async def _bury_again_and_again(self) -> None:
        """What was leased to a process that is gone, or that nobody takes, is leased again."""
        while True:
            await asyncio.sleep(_BURY_EVERY_S)
            async with self._db.acquire() as connection, connection.transaction():
                await self._leadership.fence(connection)
                dead, abandoned = await bury(connection)
            if dead:
                log.warning("processes_gone", count=dead)
            if abandoned:
                log.info("abandoned_leases", count=abandoned)
                self._session.ring_rounds()


def beside_leases(pool: WorkerPool, dispatcher: Dispatcher) -> list[Presence]:
    """The pool's workers with what they have in hand beside the leases that are granted to them,
    which are in the tables: for a quorum, as a second one, for checks."""
    leased = dispatcher.leased
    return [
        replace(one, in_flight=max(0, one.in_flight - leased.get(one.address, 0)))
        for one in pool.presences()
    ]


async def bury(connection: Connection) -> tuple[int, int]:
    """Ends what processes that are gone have taken, and what none takes, in the caller's
    transaction. How many processes that was, and how many leases."""
    # Before it is seen who lives: who begins meanwhile has taken nothing of this.
    claimed = await leases.dispatchers(connection)
    living, dead = await bury_processes(connection)
    await forget_processes(connection, dead)
    gone = await leases.abandon_claimed(connection, sorted(claimed.difference(living)))
    unclaimed = await leases.abandon_unclaimed(connection, _UNCLAIMED_S)
    return len(dead), len(gone) + len(unclaimed)
