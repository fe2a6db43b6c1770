"""What the processes of a split node tell each other, and who of them lives.

Each has a row of node.process, which it writes anew every second. What its workers offer is large
and changes seldom: it is in node.process_offers, a row for each worker, and of these only what has
changed is written, and read by the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.node.api_models import EncryptionKeyView, IndexView, Problem, SettlementView
from inferd.node.leader import is_led_as_a_whole
from inferd.node.pool_models import PoolWorkerView
from inferd.node.roles import WORK, Role
from inferd.protocol.private import EncryptionKey
from inferd.protocol.request import ModelId
from inferd.workers.standings import Offer, Offered, Presence, merged
from scheduler.model import GasModel

LIVES_S = 10.0
"""A process that has told nothing for longer does not count."""
_LOOK_EVERY_S = 0.5

log = structlog.get_logger("node")


class _Said(BaseModel):
    """A process of another version may say more than this one understands."""

    model_config = ConfigDict(extra="ignore")


class MarketSaid(_Said):
    """What settlement has seen of gas, and what waits for it."""

    gas: dict[str, int]
    """A `GasModel`, with what a post costs beside gas as gas."""
    tip_wei: int
    unposted: int


class OfferSaid(_Said):
    model: str
    name: str
    prior_ms: float
    loaded: bool
    load_ms: float


_OFFERS = TypeAdapter(list[OfferSaid])
_POOL = TypeAdapter(list[PoolWorkerView])
_Offers = Mapping[ModelId, Offered]


class PresenceSaid(_Said):
    """A worker, beside what it offers."""

    address: str
    slots: int
    most_at_once: int
    in_flight: int
    memory_mb: int
    available: bool


class Said(_Said):
    """By one process; what its roles do not know is left out."""

    ready: bool = False
    problems: list[Problem] = []
    warnings: list[Problem] = []
    caught_up: bool | None = None
    """Whether the tables tell of the chain as it is now."""
    index: IndexView | None = None
    market: MarketSaid | None = None
    """None also before settlement has seen the chain."""
    own_accounts: list[str] | None = None
    settlement: SettlementView | None = None
    posting: str = ""
    delivering: str = ""
    presences: list[PresenceSaid] = []
    keys_held: dict[str, list[str]] = {}
    """By worker: to which inputs may be encrypted for it."""
    encryption_key: EncryptionKeyView | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A living one."""

    id: str
    holder: str
    roles: frozenset[str]
    age_s: float
    version: int
    """Of the newest of what its workers offer."""
    said: Said


@dataclass(frozen=True, slots=True)
class Market:
    """What a round reckons with beside the tables."""

    gas: GasModel
    tip_wei: int
    unposted: int


def said_of(market: Market) -> MarketSaid:
    """As it is told."""
    return MarketSaid(gas=asdict(market.gas), tip_wei=market.tip_wei, unposted=market.unposted)


def said_presence(presence: Presence) -> PresenceSaid:
    """As it is told."""
    return PresenceSaid(
        address=presence.address.hex(),
        slots=presence.slots,
        most_at_once=presence.most_at_once,
        in_flight=presence.in_flight,
        memory_mb=presence.memory_mb,
        available=presence.available,
    )


def heard_presence(said: PresenceSaid, offers: _Offers) -> Presence:
    """From what is told."""
    return Presence(
        address=Address(bytes.fromhex(said.address)),
        slots=said.slots,
        most_at_once=said.most_at_once,
        in_flight=said.in_flight,
        memory_mb=said.memory_mb,
        available=said.available,
        models=offers,
    )


def _said_offers(models: _Offers) -> list[dict[str, Any]]:
    return [
        OfferSaid(model=model.hex(), **asdict(offer)).model_dump()
        for model, offer in models.items()
    ]


def _heard_offers(told: object) -> _Offers:
    """Raises ValidationError."""
    return {
        ModelId(bytes.fromhex(one.model)): Offered(one.name, one.prior_ms, one.loaded, one.load_ms)
        for one in _OFFERS.validate_python(told)
    }


def _offered(models: Mapping[ModelId, Offer]) -> _Offers:
    """As they are at the moment."""
    return {
        model: Offered(offer.name, offer.prior_ms, offer.loaded, offer.load_ms)
        for model, offer in models.items()
    }


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


class Teller:
    """What one process tells."""

    def __init__(self, process: str, holder: str, roles: Iterable[str]) -> None:
        self._process = process
        self._holder = holder
        self._roles = sorted(roles)
        self._version = 0
        self._offers: dict[Address, _Offers] = {}
        """As they were told last."""
        self._knows = False
        """Whether that is all there is in the tables."""

    async def tell(
        self,
        connection: Connection,
        said: Said,
        presences: Iterable[Presence] = (),
        pool: Sequence[PoolWorkerView] | None = None,
    ) -> None:
        """In the caller's transaction; it counts for `LIVES_S`. `pool`, for people, stays as it was
        told last where there is none. Call `forget` where the transaction fails."""
        offers = {one.address: _offered(one.models) for one in presences}
        changed = [one for one in offers if offers[one] != self._offers.get(one)]
        gone = [one for one in self._offers if one not in offers]
        if changed or gone or not self._knows:
            self._version += 1
        await connection.execute(
            """
            INSERT INTO node.process (id, holder, roles, told, version, at)
            VALUES ($1, $2, $3, $4, $5, now())
            ON CONFLICT (id) DO UPDATE
                SET told = excluded.told, version = excluded.version, at = excluded.at
            """,
            self._process,
            self._holder,
            self._roles,
            said.model_dump(mode="json", exclude_defaults=True),
            self._version,
        )
        if gone or not self._knows:
            await connection.execute(
                "DELETE FROM node.process_offers"
                " WHERE process = $1 AND worker <> ALL ($2::bytea[])",
                self._process,
                list(offers),
            )
        if changed:
            await connection.executemany(
                """
                INSERT INTO node.process_offers (process, worker, version, models)
                VALUES ($1, $2, $3, $4)
                ON CONFLICT (process, worker) DO UPDATE
                    SET version = excluded.version, models = excluded.models
                """,
                [(self._process, one, self._version, _said_offers(offers[one])) for one in changed],
            )
        if pool is not None:
            await connection.execute(
                "UPDATE node.process SET pool = $2 WHERE id = $1",
                self._process,
                [one.model_dump(mode="json") for one in pool],
            )
        self._offers, self._knows = offers, True

    def forget(self) -> None:
        """What was told may not be in the tables: the next time all of it is."""
        self._offers, self._knows = {}, False


async def load_processes(connection: Connection) -> list[Process]:
    """Those that live, what was told last first."""
    rows = await connection.fetch(
        """
        SELECT id, holder, roles, told, version, extract(epoch FROM now() - at)::float8 AS age_s
        FROM node.process WHERE at > now() - $1 * interval '1 second' ORDER BY at DESC, id
        """,
        LIVES_S,
    )
    found = []
    for row in rows:
        try:
            said = Said.model_validate(row["told"])
        except ValidationError as error:
            log.error("process_not_understood", holder=row["holder"], errors=error.error_count())
            continue
        roles = frozenset(row["roles"])
        age_s = max(0.0, row["age_s"])
        found.append(Process(row["id"], row["holder"], roles, age_s, row["version"], said))
    return found


async def forget_processes(connection: Connection, dead: Sequence[str]) -> None:
    """What these have told, and what none has brought up to date for long."""
    await connection.execute(
        "DELETE FROM node.process WHERE id = ANY($1::text[]) OR at < now() - interval '1 hour'",
        dead,
    )


@dataclass(frozen=True, slots=True)
class _HeardOffers:
    """What the workers of one process offer."""

    version: int = 0
    by_worker: Mapping[Address, _Offers] = field(default_factory=dict)


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

    @property
    def own_accounts(self) -> frozenset[Address]:
        """The operator's, as who settles knows them; empty where nobody does."""
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
                models = _heard_offers(row["models"])
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
