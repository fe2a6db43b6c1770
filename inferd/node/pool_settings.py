"""What an operator can set about workers of other machines: `[pool]`."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network

from eth_utils.address import is_address, is_hex_address, to_canonical_address
from pydantic import Field, field_validator, model_validator

from indexer.types import Address
from inferd.chain.keys import DEVELOPMENT_CHAIN_IDS, KeySource
from inferd.net.reach import OWN_MACHINE_AND_NETWORKS, Reach
from inferd.node.settings_section import Section
from inferd.workers.remote.membership import Terms
from inferd.workers.remote.roster import RosterTerms

LIVE_OF_POOL = ("allow", "deny", "max_workers", "heartbeat_s", "stale_after_s", "max_skew_s")
"""What SIGHUP changes; what else is here holds as long as the process."""
_MEGABYTE = 1_000_000


class PoolSettings(Section):
    """Workers of other machines: those that the registry names with an endpoint, as long as their
    heartbeats come and they take this operator's requests."""

    operator: KeySource | None = None
    """Signs requests to workers, which must trust its address. Without it the poster's key does;
    where that is at a remote signer there are no workers of other machines."""
    allow: tuple[str, ...] = ()
    """Addresses of workers; with it, no others are used."""
    deny: tuple[str, ...] = ()
    """Addresses of workers that are not used. `inferd workers suspend` does it at once, and for
    one's own too."""
    networks: tuple[str, ...] | None = None
    """Networks beside the public internet that endpoints may lead to, as `10.0.0.0/8`. Without it:
    none, on development chains this machine and all private networks."""
    heartbeat_s: float = Field(5.0, gt=0, le=3_600)
    """Pause between two questions for a worker's heartbeat."""
    stale_after_s: float = Field(15.0, gt=0, le=86_400)
    """A worker whose last heartbeat is older gets no new work; what it has goes on."""
    max_skew_s: float = Field(60.0, ge=0, le=3_600)
    """How far a worker's clock may be off."""
    timeout_s: float = Field(10.0, gt=0, le=600)
    """Of each call of a worker: to connect, until its answer begins beyond what it was asked to
    wait, and until it ends."""
    max_output_mb: float = Field(4.0, gt=0, le=100)
    """An output that is larger is not taken, at no cost to its worker's reputation: the request
    goes to others."""
    max_workers: int = Field(256, ge=0, le=10_000)
    """How many workers are used, those with the most stake; 0 = none of other machines."""

    @field_validator("allow", "deny")
    @classmethod
    def _addresses(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        for one in named:
            if not (is_hex_address(one) and is_address(one)):
                raise ValueError(f"{one} is no address of 0x and 40 hex digits")
        return named

    @field_validator("networks")
    @classmethod
    def _networks(cls, named: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for one in named or ():
            try:
                ip_network(one)
            except ValueError:
                raise ValueError(f"{one} is no network such as 10.0.0.0/8") from None
        return named

    @model_validator(mode="after")
    def _not_stale_at_once(self) -> PoolSettings:
        if self.stale_after_s < 2 * self.heartbeat_s:
            raise ValueError("stale_after_s is less than two heartbeats: one late one would do")
        return self


def reach_of(settings: PoolSettings, chain_id: int) -> Reach:
    """Where endpoints may lead."""
    if settings.networks is not None:
        return Reach.of(settings.networks)
    return OWN_MACHINE_AND_NETWORKS if chain_id in DEVELOPMENT_CHAIN_IDS else Reach()


def roster_terms(settings: PoolSettings) -> RosterTerms:
    """The settings as the roster takes them."""
    return RosterTerms(
        Terms(
            allow=_canonical(settings.allow),
            deny=_canonical(settings.deny),
            stale_after_s=settings.stale_after_s,
            max_skew_s=settings.max_skew_s,
            max_workers=settings.max_workers,
        ),
        heartbeat_s=settings.heartbeat_s,
        timeout_s=settings.timeout_s,
        max_output_bytes=int(settings.max_output_mb * _MEGABYTE),
    )


def _canonical(named: Iterable[str]) -> frozenset[Address]:
    return frozenset(Address(to_canonical_address(one)) for one in named)
