"""What the processes of a split node tell each other, and who of them lives.

Each has a row of node.process, which it writes anew every second. What its workers offer is large
and changes seldom: it is in node.process_offers, a row for each worker, and of these only what has
changed is written, and read by the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from indexer.database import Connection
from indexer.types import Address
from inferd.node.api_models import EncryptionKeyView, IndexView, Problem, SettlementView
from inferd.node.pool_models import PoolWorkerView
from inferd.protocol.request import ModelId
from inferd.workers.standings import Offer, Offered, Presence
from scheduler.model import GasModel

LIVES_S = 10.0
"""A process that has told nothing for longer does not count."""

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
Offers = Mapping[ModelId, Offered]


class PresenceSaid(_Said):
    """A worker, beside what it offers."""

    address: str
    slots: int
    most_at_once: int
    in_flight: int
    """Beside its leases, which are in the tables."""
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


def heard_presence(said: PresenceSaid, offers: Offers) -> Presence:
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


def _said_offers(models: Offers) -> list[dict[str, Any]]:
    return [
        OfferSaid(model=model.hex(), **asdict(offer)).model_dump()
        for model, offer in models.items()
    ]


def heard_offers(told: object) -> Offers:
    """Raises ValidationError."""
    return {
        ModelId(bytes.fromhex(one.model)): Offered(one.name, one.prior_ms, one.loaded, one.load_ms)
        for one in _OFFERS.validate_python(told)
    }


def _offered(models: Mapping[ModelId, Offer]) -> Offers:
    """As they are at the moment."""
    return {
        model: Offered(offer.name, offer.prior_ms, offer.loaded, offer.load_ms)
        for model, offer in models.items()
    }


class Teller:
    """What one process tells."""

    def __init__(self, process: str, holder: str, roles: Iterable[str]) -> None:
        self._process = process
        self._holder = holder
        self._roles = sorted(roles)
        self._version = 0
        self._offers: dict[Address, Offers] = {}
        """As they were told last."""
        self._knows = False
        """Whether that is all there is in the tables."""

    async def tell(
        self,
        connection: Connection,
        said: Said,
        presences: Sequence[Presence] = (),
        pool: Sequence[PoolWorkerView] | None = None,
    ) -> None:
        """In the caller's transaction; it counts for `LIVES_S`. `pool`, for people, stays as it was
        told last where there is none. Call `forget` where the transaction fails."""
        offers = {one.address: _offered(one.models) for one in presences}
        changed = [one for one in offers if offers[one] != self._offers.get(one)]
        gone = [one for one in self._offers if one not in offers]
        if changed or gone or not self._knows:
            self._version += 1
        is_new = await connection.fetchval(
            """
            INSERT INTO node.process (id, holder, roles, told, version, at)
            VALUES ($1, $2, $3, $4, $5, now())
            ON CONFLICT (id) DO UPDATE
                SET told = excluded.told, version = excluded.version, at = excluded.at
            RETURNING xmax = 0
            """,
            self._process,
            self._holder,
            self._roles,
            said.model_dump(mode="json", exclude_defaults=True),
            self._version,
        )
        if is_new and self._knows:
            # Others took it for dead for long, and what it had told is gone.
            self.forget()
            await self.tell(connection, said, presences, pool)
            return
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
