"""Where jobs are pulled from, by workers that do not listen: `[pull]`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from inferd.node.settings_section import Section
from inferd.workers.pull.broker import Broker, read_broker

if TYPE_CHECKING:
    from inferd.workers.pull.client import PullClient


class PullSettings(Section):
    """The broker, a Redis server of the operator's, through which workers are reached whose
    endpoint is `pull:`. The node and each such worker name it, each with a user of its own."""

    url_file: Path | None = None
    """Holds its URL, as `rediss://USER:PASSWORD@HOST:6379/0`; white space around it is left out."""
    url_env: str = Field("", pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")
    """Or the name of the environment variable that does."""
    ca_file: Path | None = None
    """Who signs the broker's certificate, where the system does not know them; PEM."""

    @model_validator(mode="after")
    def _one_url(self) -> PullSettings:
        if self.url_file is not None and self.url_env:
            raise ValueError("give one of url_file and url_env")
        if self.ca_file is not None and not self.named:
            raise ValueError("ca_file is for the broker of url_file or url_env")
        return self

    @property
    def named(self) -> bool:
        """Whether there is a broker."""
        return self.url_file is not None or bool(self.url_env)


def broker_of(settings: PullSettings) -> Broker:
    """Raises BrokerMissing, BrokerNotTrusted and BrokerNotInstalled."""
    return read_broker(settings.url_file, settings.url_env, settings.ca_file)


def opened_pull(settings: PullSettings) -> PullClient | None:
    """None where no broker is named. Raises as `broker_of`."""
    if not settings.named:
        return None
    broker = broker_of(settings)
    from inferd.workers.pull.client import PullClient  # noqa: PLC0415 - needs an extra

    return PullClient(broker)
