"""Who of the registry is in the pool, and why the others are not. Pure.

A worker of another machine is in the pool while it is registered with an endpoint, enabled and
staked, allowed by the operator and not suspended, and its heartbeats come. What is wrong comes in
two kinds: some keeps it from being listed at all, so that requests for its models may be turned
away; some only keeps new work from it for now, and its requests wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from indexer.types import Address
from inferd.protocol.private import EncryptionKey
from inferd.protocol.request import ModelId, model_id
from inferd.protocol.worker_api import Heartbeat, of_hex
from inferd.workers.remote.clocks import Offset
from inferd.workers.remote.worker import Announced, RemoteOffer

_UNKNOWN_MODEL_MS = 1_000.0
"""Taken for the time of a model that no heartbeat has told of yet."""
_MIN_PRIOR_MS, _MAX_PRIOR_MS = 1.0, 3_600_000.0


class Bar(StrEnum):
    """What keeps a worker out, or work from it; the first that applies is told."""

    NO_ENDPOINT = "no_endpoint"
    DISABLED = "disabled"
    UNSTAKED = "unstaked"
    DENIED = "denied"
    NOT_ALLOWED = "not_allowed"
    BAD_ENDPOINT = "bad_endpoint"
    TOO_MANY = "too_many"
    # From here on it is listed, and asked for heartbeats.
    SUSPENDED = "suspended"
    UNHEARD = "unheard"
    SILENT = "silent"
    SKEWED = "skewed"
    STOPPING = "stopping"
    NO_SLOTS = "no_slots"
    NO_MODEL = "no_model"

    @property
    def keeps_out(self) -> bool:
        """Whether the worker is not even listed."""
        return self in _KEEP_OUT


_KEEP_OUT = frozenset(
    {
        Bar.NO_ENDPOINT,
        Bar.DISABLED,
        Bar.UNSTAKED,
        Bar.DENIED,
        Bar.NOT_ALLOWED,
        Bar.BAD_ENDPOINT,
        Bar.TOO_MANY,
    }
)

_WORDS = {
    Bar.NO_ENDPOINT: "it is registered without an endpoint",
    Bar.DISABLED: "its owner has taken it out of service",
    Bar.UNSTAKED: "its stake is below the minimum",
    Bar.DENIED: "`pool.deny` names it",
    Bar.NOT_ALLOWED: "`pool.allow` does not name it",
    Bar.BAD_ENDPOINT: "its endpoint cannot be called",
    Bar.TOO_MANY: "`pool.max_workers` others have more stake",
    Bar.SUSPENDED: "it is suspended",
    Bar.UNHEARD: "no heartbeat has come yet",
    Bar.SILENT: "its heartbeats have stopped",
    Bar.SKEWED: "its clock is too far off",
    Bar.STOPPING: "it is stopping",
    Bar.NO_SLOTS: "it offers no slots",
    Bar.NO_MODEL: "it serves none of the models that it is registered with",
}


@dataclass(frozen=True, slots=True)
class Registered:
    """A row of the registry."""

    address: Address
    owner: Address
    models: frozenset[ModelId]
    endpoint: str
    slots: int
    memory_mb: int
    enabled: bool
    staked: bool
    stake_wei: int


@dataclass(frozen=True, slots=True)
class Heard:
    """What was heard of a worker last."""

    heartbeat: Heartbeat | None = None
    """The newest that was believed."""
    age_s: float | None = None
    """Since it came."""
    offset: Offset | None = None
    trouble: str | None = None
    """Why the newest question for one had no answer."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the operator asks of workers."""

    allow: frozenset[Address] = frozenset()
    """Only these; all where it is empty."""
    deny: frozenset[Address] = frozenset()
    stale_after_s: float = 15.0
    max_skew_s: float = 60.0
    max_workers: int = 256


@dataclass(frozen=True, slots=True)
class Membership:
    """What a worker is to the pool at the moment."""

    bar: Bar | None
    """None where it is given work."""
    detail: str = ""
    announced: Announced = field(default_factory=Announced)

    @property
    def listed(self) -> bool:
        """Whether it is asked for heartbeats, and requests for its models wait for it."""
        return self.bar is None or not self.bar.keeps_out

    @property
    def why_not(self) -> str | None:
        """In words; None where it is given work."""
        if self.bar is None:
            return None
        return _WORDS[self.bar] + (f": {self.detail}" if self.detail else "")


def candidates(
    rows: Iterable[Registered],
    terms: Terms,
    embedded: Collection[Address],
    endpoint_trouble: Mapping[Address, str],
) -> dict[Address, Membership]:
    """All rows but those of embedded workers, by the registry and the operator's settings alone:
    those without a bar are asked for heartbeats. `endpoint_trouble` says why an endpoint cannot be
    called at all.

    Where there are more than `max_workers`, those with the most stake are taken, so that nobody is
    crowded out by many cheap registrations.
    """
    found: dict[Address, Membership] = {}
    taken: list[Registered] = []
    for row in rows:
        if row.address in embedded:
            continue
        bar, detail = _registered_bar(row, terms), ""
        if bar is None and row.address in endpoint_trouble:
            bar, detail = Bar.BAD_ENDPOINT, endpoint_trouble[row.address]
        found[row.address] = Membership(bar, detail)
        if bar is None:
            taken.append(row)
    taken.sort(key=lambda row: (-row.stake_wei, row.address))
    for row in taken[terms.max_workers :]:
        found[row.address] = Membership(Bar.TOO_MANY)
    return found


def membership(row: Registered, heard: Heard, terms: Terms, suspended: str | None) -> Membership:
    """Of a candidate; `suspended` is why, where it is.

    A worker offers what registry and heartbeat both say of slots, memory and models. One that is
    silent offers what it offered last.
    """
    announced = _announced(row, heard.heartbeat)
    bar, detail = _heard_bar(row, heard, terms, suspended)
    return Membership(bar, detail, announced)


def names_told(row: Registered, heartbeat: Heartbeat) -> dict[ModelId, str]:
    """Names of the registered models, by their ids. A name is true or of no use: its hash is the
    id."""
    told = {_id_of(model.name): model.name for model in heartbeat.models}
    return {number: name for number, name in told.items() if number in row.models}


@lru_cache(maxsize=16_384)
def _id_of(name: str) -> ModelId:
    """Heartbeats are gone through every second, and hashing some thousand names of strangers each
    time would take most of it."""
    return model_id(name)


def _registered_bar(row: Registered, terms: Terms) -> Bar | None:
    if row.address in terms.deny:
        return Bar.DENIED
    if terms.allow and row.address not in terms.allow:
        return Bar.NOT_ALLOWED
    if not row.enabled:
        return Bar.DISABLED
    if not row.staked:
        return Bar.UNSTAKED
    return None if row.endpoint else Bar.NO_ENDPOINT


def _heard_bar(
    row: Registered, heard: Heard, terms: Terms, suspended: str | None
) -> tuple[Bar | None, str]:
    if suspended is not None:
        return Bar.SUSPENDED, suspended
    trouble = heard.trouble or ""
    heartbeat = heard.heartbeat
    if heartbeat is None or heard.age_s is None:
        return Bar.UNHEARD, trouble
    if heard.age_s > terms.stale_after_s:
        return Bar.SILENT, trouble
    offset = heard.offset
    # What is surely too much, whatever the exchange's error.
    if offset is not None and abs(offset.skew_ms) - offset.error_ms > 1000.0 * terms.max_skew_s:
        return Bar.SKEWED, f"{offset.skew_ms / 1000:+.1f} s"
    if heartbeat.stopping:
        return Bar.STOPPING, ""
    if min(row.slots, heartbeat.slots) < 1:
        return Bar.NO_SLOTS, ""
    return (None, "") if names_told(row, heartbeat) else (Bar.NO_MODEL, "")


def _announced(row: Registered, heartbeat: Heartbeat | None) -> Announced:
    if heartbeat is None:
        # Nothing is known but the ids: enough for their requests to wait.
        offers = {
            number: RemoteOffer("", _UNKNOWN_MODEL_MS, loaded=False, load_ms=0.0)
            for number in row.models
        }
        return Announced(offers, row.slots, row.memory_mb)
    offers = {
        number: RemoteOffer(
            model.name,
            min(_MAX_PRIOR_MS, max(_MIN_PRIOR_MS, model.prior_ms)),
            model.loaded,
            min(_MAX_PRIOR_MS, model.load_ms),
            model.tokens_per_s,
        )
        for model in heartbeat.models
        if (number := _id_of(model.name)) in row.models
    }
    # Memory is what it has, and not what is free while it computes.
    keys = tuple(EncryptionKey(of_hex(one.key)) for one in heartbeat.encryption_keys)
    return Announced(offers, min(row.slots, heartbeat.slots), row.memory_mb, keys)
