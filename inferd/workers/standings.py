"""How workers stand, as one dispatcher knows them or as several do together, and what the scheduler
makes of it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.workers.service_stats import Priors, ServiceStat, estimate, read_all
from scheduler import model as scheduling


class Offer(Protocol):
    """A model that a worker serves, as far as the pool cares. Every back end is one."""

    @property
    def name(self) -> str:
        """The model's name, whose keccak256 is its id on chain."""

    @property
    def prior_ms(self) -> float:
        """A guess at one request's duration, used until the first one is measured."""

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory now."""

    @property
    def load_ms(self) -> float:
        """How long loading it took the last time; 0 before the first."""


@dataclass(frozen=True, slots=True)
class Offered:
    """An `Offer` as it was at some moment."""

    name: str
    prior_ms: float
    loaded: bool
    load_ms: float


@dataclass(frozen=True, slots=True)
class Presence:
    """A worker as one pool knows it, beside what the registry says."""

    address: Address
    slots: int
    most_at_once: int
    """Of its slots, as many as it bears at the moment."""
    in_flight: int
    memory_mb: int
    available: bool
    """Whether it may be given work."""
    models: Mapping[ModelId, Offer]


def merged(pools: Iterable[Iterable[Presence]]) -> tuple[Presence, ...]:
    """The workers of several pools, by address. A worker that any of them can use is available, and
    bears what it bears at the best of those; in flight is what all have in hand. Pure; the order
    does not matter."""
    found: dict[Address, Presence] = {}
    for presences in pools:
        for one in presences:
            other = found.get(one.address)
            found[one.address] = one if other is None else _both(one, other)
    return tuple(found[address] for address in sorted(found))


def _both(one: Presence, other: Presence) -> Presence:
    in_flight = one.in_flight + other.in_flight
    if one.available != other.available:
        best = one if one.available else other
        return replace(best, in_flight=in_flight)
    return Presence(
        one.address,
        max(one.slots, other.slots),
        max(one.most_at_once, other.most_at_once),
        in_flight,
        max(one.memory_mb, other.memory_mb),
        one.available,
        _all_models(one.models, other.models),
    )


def _all_models(
    one: Mapping[ModelId, Offer], other: Mapping[ModelId, Offer]
) -> Mapping[ModelId, Offer]:
    if one is other:
        return one
    return {
        model: Offered(
            name=min(offer.name for offer in offers),
            prior_ms=min(offer.prior_ms for offer in offers),
            loaded=any(offer.loaded for offer in offers),
            load_ms=max(offer.load_ms for offer in offers),
        )
        for model in sorted({*one, *other})
        for offers in [[models[model] for models in (one, other) if model in models]]
    }


async def views_of(
    connection: Connection, presences: Collection[Presence], own_accounts: Collection[Address] = ()
) -> tuple[scheduling.WorkerView, ...]:
    """These workers as the scheduler sees them, by the registry's rows of now.

    A worker is paid through its owner: where that is one of `own_accounts`, its share of a fee
    is this operator's money. One that is not registered is listed but not available, so that
    its requests wait instead of being turned away.
    """
    rows = await connection.fetch(
        """
        SELECT w.*, (SELECT coalesce(sum(r.fee_wei), 0) FROM node.lease l
                     JOIN chain.request r ON r.id = l.request_id AND r.commitment = l.commitment
                     WHERE l.worker = w.signer AND l.state = 'active') AS fees_in_hand_wei
        FROM chain.worker w WHERE w.signer = ANY($1::bytea[])
        """,
        [presence.address for presence in presences],
    )
    registered = {Address(row["signer"]): row for row in rows}
    stats = await read_all(connection)
    priors, now_s = Priors(stats), time.time()
    views: list[scheduling.WorkerView] = []
    for presence in presences:
        address, models = presence.address, presence.models
        row = registered.get(address)
        slots, memory_mb, served = presence.most_at_once, presence.memory_mb, set(models)
        if row is not None:
            slots = min(slots, row["slots"])
            memory_mb = min(memory_mb, row["memory_mb"])
            served &= {ModelId(model) for model in row["models"]}
        views.append(
            scheduling.WorkerView(
                id=scheduling.WorkerId(address),
                slots=slots,
                in_flight=presence.in_flight,
                memory_mb=memory_mb,
                available=row is not None
                and row["enabled"]
                and row["staked"]
                and presence.available,
                service=_service(address, models, served, stats, priors, now_s),
                owned=row is not None and row["owner"] in own_accounts,
                loaded=frozenset(
                    scheduling.ModelId(model) for model in served if models[model].loaded
                ),
                stake_wei=0 if row is None else row["stake_wei"],
                fees_in_hand_wei=0 if row is None else int(row["fees_in_hand_wei"]),
                owner=b"" if row is None else row["owner"],
            )
        )
    return tuple(views)


def _service(
    address: Address,
    models: Mapping[ModelId, Offer],
    served: Collection[ModelId],
    stats: Mapping[tuple[Address, ModelId], ServiceStat],
    priors: Priors,
    now_s: float,
) -> dict[scheduling.ModelId, scheduling.ServiceEstimate]:
    return {
        scheduling.ModelId(model): estimate(
            stats.get((address, model)),
            priors.of(model, offer.prior_ms),
            now_s,
            load_ms=offer.load_ms,
        )
        for model, offer in models.items()
        if model in served
    }
