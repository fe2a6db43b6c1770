"""What the processes of a split node tell each other, in node.process, and who of them lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.node.api_models import EncryptionKeyView, IndexView, Problem, SettlementView
from inferd.node.leader import is_led_as_a_whole
from inferd.node.pool_models import PoolWorkerView
from inferd.node.roles import WORK, Role
from inferd.protocol.private import EncryptionKey
from inferd.protocol.request import ModelId
from inferd.workers.standings import Offered, Presence, merged
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


class PresenceSaid(_Said):
    address: str
    slots: int
    most_at_once: int
    in_flight: int
    memory_mb: int
    available: bool
    models: list[OfferSaid]


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
    pool: list[PoolWorkerView] = []
    encryption_key: EncryptionKeyView | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A living one."""

    id: str
    holder: str
    roles: frozenset[str]
    age_s: float
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
        models=[
            OfferSaid(
                model=model.hex(),
                name=offer.name,
                prior_ms=offer.prior_ms,
                loaded=offer.loaded,
                load_ms=offer.load_ms,
            )
            for model, offer in presence.models.items()
        ],
    )


def heard_presence(said: PresenceSaid) -> Presence:
    """From what is told."""
    return Presence(
        address=Address(bytes.fromhex(said.address)),
        slots=said.slots,
        most_at_once=said.most_at_once,
        in_flight=said.in_flight,
        memory_mb=said.memory_mb,
        available=said.available,
        models={
            ModelId(bytes.fromhex(one.model)): Offered(
                one.name, one.prior_ms, one.loaded, one.load_ms
            )
            for one in said.models
        },
    )


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


async def tell(
    connection: Connection, process: str, holder: str, roles: Iterable[str], said: Said
) -> None:
    """In the caller's transaction; it counts for `LIVES_S`."""
    await connection.execute(
        """
        INSERT INTO node.process (id, holder, roles, told, at) VALUES ($1, $2, $3, $4, now())
        ON CONFLICT (id) DO UPDATE SET told = excluded.told, at = excluded.at
        """,
        process,
        holder,
        sorted(roles),
        said.model_dump(mode="json", exclude_defaults=True),
    )


async def load_processes(connection: Connection) -> list[Process]:
    """Those that live, what was told last first."""
    rows = await connection.fetch(
        """
        SELECT id, holder, roles, told, extract(epoch FROM now() - at)::float8 AS age_s
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
        found.append(Process(row["id"], row["holder"], roles, max(0.0, row["age_s"]), said))
    return found


async def forget_processes(connection: Connection, dead: Sequence[str]) -> None:
    """What these have told, and what none has brought up to date for long."""
    await connection.execute(
        "DELETE FROM node.process WHERE id = ANY($1::text[]) OR at < now() - interval '1 hour'",
        dead,
    )


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

    async def run(self) -> None:
        """For ever. Errors of the database propagate."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        """Once."""
        async with self.db.acquire() as connection:
            self.processes = await load_processes(connection)
            self.led_as_a_whole = not self.processes and await is_led_as_a_whole(connection)
        before, self._presences = self._news(), self._merged()
        self.market = self._market() or self.market
        for presence in self._presences:
            self.names.update({model: offer.name for model, offer in presence.models.items()})
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

    @property
    def pool(self) -> Mapping[str, PoolWorkerView]:
        """Workers by address, for people: as one that gives them work has them, else the newest."""
        found: dict[str, PoolWorkerView] = {}
        for said in self.saying(Role.DISPATCH):
            for view in said.pool:
                known = found.get(view.address)
                if known is None or (view.in_pool and not known.in_pool):
                    found[view.address] = view
        return found

    def _merged(self) -> tuple[Presence, ...]:
        return merged(
            [heard_presence(one) for one in said.presences] for said in self.saying(Role.DISPATCH)
        )

    def _news(self) -> tuple[Any, ...]:
        usable = frozenset(one.address for one in self._presences if one.available)
        return usable, self.knows_prices, self.has_offers, self.caught_up, self.own_accounts
