"""What an operator can set about inputs that requests name by URI: `[inputs]`."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from inferd.chain.keys import DEVELOPMENT_CHAIN_IDS
from inferd.inputs.fetch import Fetcher, FetchLimits
from inferd.net.guarded import checked_url
from inferd.net.reach import OWN_MACHINE_AND_NETWORKS, PUBLIC, Reach
from inferd.node.settings_section import Section


class InputSettings(Section):
    """How inputs that requests name by URI are fetched."""

    max_bytes: int = Field(1_000_000, ge=1, le=64_000_000)
    """Of one input; a request with a larger one is refused."""
    total_mb: int = Field(1_000, ge=1)
    """Megabytes of content that are kept in the database; what is being fetched counts as
    `max_bytes`. Where there is no room, what no request waits for goes first, and other requests
    wait."""
    timeout_s: float = Field(20.0, gt=0, le=600)
    """For one try, from the look-up of the name to the last byte, redirects included."""
    max_tries: int = Field(6, ge=1, le=100)
    """After which a request is refused, or before it where its deadline is near."""
    at_once: int = Field(16, ge=1, le=256)
    """Fetches at the same time."""
    per_host: int = Field(4, ge=1, le=256)
    """Of those from one host, so that a slow one does not hold up the others."""
    ipfs_gateway: str = ""
    """Where ipfs:// is fetched, as in `https://ipfs.example`; may be in your own network. Without
    it such requests are refused."""
    networks: tuple[str, ...] | None = None
    """Networks as `10.1.0.0/16` that URIs may lead to beside the public internet; never metadata
    services of clouds. Without it none, on a development chain private ones and this machine."""

    @property
    def total_bytes(self) -> int:
        return self.total_mb * 1_000_000

    @model_validator(mode="after")
    def _room_for_one(self) -> InputSettings:
        if self.max_bytes > self.total_bytes:
            raise ValueError("total_mb has no room for one input of max_bytes")
        return self

    @field_validator("ipfs_gateway")
    @classmethod
    def _readable_gateway(cls, url: str) -> str:
        if url:
            try:
                parts = checked_url(url)
            except Exception as error:
                raise ValueError(str(error)) from None
            if parts.query or parts.fragment:
                raise ValueError("a gateway's URL has no query and no fragment")
        return url

    @field_validator("networks")
    @classmethod
    def _readable_networks(cls, networks: tuple[str, ...] | None) -> tuple[str, ...] | None:
        Reach.of(networks or ())
        return networks


def fetcher_of(settings: InputSettings, chain_id: int) -> Fetcher:
    """What fetches within these settings."""
    if settings.networks is not None:
        reach = Reach.of(settings.networks)
    else:
        reach = OWN_MACHINE_AND_NETWORKS if chain_id in DEVELOPMENT_CHAIN_IDS else PUBLIC
    return Fetcher(
        reach,
        FetchLimits(settings.max_bytes, settings.timeout_s),
        connections=settings.at_once,
        ipfs_gateway=settings.ipfs_gateway,
    )
