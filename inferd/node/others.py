"""The processes of a split node as one of them sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.node.api_models import EncryptionKeyView, SettlementView
from inferd.node.leader import is_led_as_a_whole
from inferd.node.pool_models import PoolWorkerView
from inferd.node.roles import WORK, Role
from inferd.node.told import (
    Market,
    Offers,
    Process,
    Said,
    heard_offers,
    heard_presence,
    load_processes,
)
from inferd.protocol.private import EncryptionKey
from inferd.workers.standings import Presence, merged
from scheduler.model import GasModel

_LOOK_EVERY_S = 0.5
_POOL = TypeAdapter(list[PoolWorkerView])

log = structlog.get_logger("node")


def together(views: Sequence[SettlementView]) -> SettlementView:
    """What several processes that settle say, the newest first, as one. One that works is enough
    for the whole not to be paused. Pure."""
    newest = views[0]
    paused = [view.paused_reason for view in views]
    return newest.model_copy(
        update={
            "posters": sorted(
                (poster for view in views for poster in view.posters),
                key=lambda poster: poster.address,
            ),
            "in_flight": sum(view.in_flight for view in views),
            "paused_reason": newest.paused_reason if all(paused) else None,
            "confirmed": sum(view.confirmed for view in views),
        }
    )


@dataclass(frozen=True, slots=True)
class _HeardOffers:
    """What the workers of one process offer."""

    version: int = 0
    by_worker: Mapping[Address, Offers] = field(default_factory=dict)


@dataclass
class Others:
    """All processes of the node as of the last look, this one included. Empty in one that has all
    roles: nothing is told where there is nobody to tell."""

    db: Pool
    names: MutableMapping[bytes, str]
    """Of models, by their ids: what is told adds to it."""
    on_change: Callable[[], None] = lambda: None
    """Called when who can compute, what gas costs or whether tables are current has changed."""
    processes: Sequence[Process] = ()
    led_as_a_whole: bool = False
    market: Market | None = None
    """As who settles has told last; None before anybody has seen the chain."""
    own_accounts: frozenset[Address] = frozenset()
    """The operator's, as who settles has told last: its own workers are no strangers while nobody
    does."""
    _presences: tuple[Presence, ...] = field(default=())
    _offers: dict[str, _HeardOffers] = field(default_factory=dict)
    """By process."""

    async def run(self) -> None:
        """For ever. Errors of the database propagate."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        """Once."""
        async with self.db.acquire() as connection:
            await self.look_on(connection)

    async def look_on(self, connection: Connection) -> None:
        """The same on a connection, which may be in a transaction."""
        processes = await load_processes(connection)
        as_a_whole = not processes and await is_led_as_a_whole(connection)
        offers: dict[str, _HeardOffers] = {}
        for one in processes:
            if Role.DISPATCH in one.roles:
                offers[one.id] = await self._hear_offers(connection, one, offers)
        before = self._news()
        # At once: another look may be under way.
        self.processes, self.led_as_a_whole, self._offers = processes, as_a_whole, offers
        self._presences = self._merged()
        self.market = self._market() or self.market
        self.own_accounts = self._own_accounts() or self.own_accounts
        if before != self._news():
            self.on_change()

    def saying(self, role: Role) -> Iterable[Said]:
        """What those with a role say, the newest first."""
        return (one.said for one in self.processes if role in one.roles)

    @property
    def missing(self) -> list[str]:
        """Roles that no living process has."""
        if self.led_as_a_whole:
            return []
        had = {role for process in self.processes for role in process.roles}
        return sorted(str(role) for role in WORK if role not in had)

    @property
    def caught_up(self) -> bool:
        """Whether who indexes says that the tables tell of now."""
        return any(said.caught_up for said in self.saying(Role.INDEX))

    @property
    def knows_prices(self) -> bool:
        """Whether somebody settles, and has seen what the chain asks for gas."""
        return self._market() is not None

    @property
    def has_offers(self) -> bool:
        """Whether anybody dispatches to workers that offer anything: while nobody does, what they
        will offer is not known."""
        return any(presence.models for presence in self._presences)

    @property
    def settlement(self) -> SettlementView | None:
        """Of all keys together; None where nobody settles."""
        views = [
            said.settlement for said in self.saying(Role.SETTLE) if said.settlement is not None
        ]
        return together(views) if views else None

    def _market(self) -> Market | None:
        """By the newest; results wait for room only as far as they do for everybody."""
        known = [said.market for said in self.saying(Role.SETTLE) if said.market is not None]
        if not known:
            return None
        unposted = min(market.unposted for market in known)
        return Market(GasModel(**known[0].gas), known[0].tip_wei, unposted)

    def _own_accounts(self) -> frozenset[Address]:
        return frozenset(
            Address(bytes.fromhex(one))
            for said in self.saying(Role.SETTLE)
            for one in said.own_accounts or ()
        )

    @property
    def presences(self) -> tuple[Presence, ...]:
        """Of the workers of all dispatchers."""
        return self._presences

    @property
    def keys_held(self) -> dict[Address, frozenset[EncryptionKey]]:
        """To which inputs may be encrypted for each worker, as its dispatchers say."""
        found: dict[Address, frozenset[EncryptionKey]] = {}
        for said in self.saying(Role.DISPATCH):
            for worker, keys in said.keys_held.items():
                address = Address(bytes.fromhex(worker))
                told = frozenset(EncryptionKey(bytes.fromhex(key)) for key in keys)
                found[address] = found.get(address, frozenset()) | told
        return found

    @property
    def encryption_key(self) -> EncryptionKeyView | None:
        keys = (said.encryption_key for said in self.saying(Role.DISPATCH))
        return next((key for key in keys if key is not None), None)

    async def pool(self, connection: Connection) -> Mapping[str, PoolWorkerView]:
        """Workers by address, for people: as one that gives them work has them, else the newest."""
        dispatchers = [one.id for one in self.processes if Role.DISPATCH in one.roles]
        found: dict[str, PoolWorkerView] = {}
        for process in dispatchers:
            told = await connection.fetchval("SELECT pool FROM node.process WHERE id = $1", process)
            try:
                views = _POOL.validate_python(told or [])
            except ValidationError as error:
                log.error("process_not_understood", process=process, errors=error.error_count())
                continue
            for view in views:
                known = found.get(view.address)
                if known is None or (view.in_pool and not known.in_pool):
                    found[view.address] = view
        return found

    async def _hear_offers(
        self, connection: Connection, process: Process, others: Mapping[str, _HeardOffers]
    ) -> _HeardOffers:
        """Reads what has changed since the last look. What one of the `others` offers alike is the
        same object, which is merged at once."""
        heard = self._offers.get(process.id, _HeardOffers())
        if process.version <= heard.version:
            return heard
        rows = await connection.fetch(
            "SELECT worker, models FROM node.process_offers WHERE process = $1 AND version > $2",
            process.id,
            heard.version,
        )
        known = {**self._offers, **others}.values()
        there = {Address(bytes.fromhex(one.address)) for one in process.said.presences}
        offers = {one: models for one, models in heard.by_worker.items() if one in there}
        for row in rows:
            worker = Address(row["worker"])
            try:
                models = heard_offers(row["models"])
            except ValidationError as error:
                log.error(
                    "process_not_understood", holder=process.holder, errors=error.error_count()
                )
                continue
            self.names.update({model: offer.name for model, offer in models.items()})
            alike = (one.by_worker[worker] for one in known if worker in one.by_worker)
            offers[worker] = next((one for one in alike if one == models), models)
        return _HeardOffers(process.version, offers)

    def _merged(self) -> tuple[Presence, ...]:
        return merged(
            [
                heard_presence(said, offers.get(Address(bytes.fromhex(said.address)), {}))
                for said in process.said.presences
            ]
            for process in self.processes
            if Role.DISPATCH in process.roles
            for offers in [self._offers[process.id].by_worker]
        )

    def _news(self) -> tuple[Any, ...]:
        usable = frozenset(one.address for one in self._presences if one.available)
        return usable, self.knows_prices, self.has_offers, self.caught_up, self.own_accounts
