"""Everything an operator can set: inferd.toml and INFERD_* environment, checked at the start."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit, urlunsplit

import platformdirs
from pydantic import (
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from indexer.errors import OperatorError
from inferd.chain.keys import KeySource
from inferd.node.check_settings import CheckSettings
from inferd.node.dispute_settings import DisputeSettings
from inferd.node.input_settings import InputSettings
from inferd.node.limit_settings import LimitSettings, TenantSettings
from inferd.node.pool_settings import LIVE_OF_POOL, PoolSettings
from inferd.node.posting_settings import PostingSettings
from inferd.node.pull_settings import PullSettings
from inferd.node.scheduling_settings import SchedulingSettings
from inferd.node.settings_section import Section
from inferd.node.worker_settings import WorkerSettings
from inferd.policies.installed import require_known
from inferd.workers.service.settings import AgentSettings
from scheduler import flow

LIVE = ("scheduling", "limits", "tenants")
"""Sections that SIGHUP changes whole; of `[pool]` it changes `LIVE_OF_POOL`, and all else needs a
restart."""
_OTHER_VARIABLES = ("config", "anvil")  # read elsewhere, or before there are settings


class BadSettings(OperatorError):
    """inferd.toml or the environment cannot be used."""

    code: ClassVar[str] = "bad_settings"


class ApiSettings(Section):
    """Where the node's HTTP API listens."""

    host: str = "127.0.0.1"
    """There is no login: whoever reaches it can read all requests and answers, and what rounds saw:
    your workers' speed and reliability, limits, budgets and what requesters have taken of them."""
    port: int = Field(8700, ge=0, le=65535)
    """0 = a free one, written to `data_dir`/api.json."""


class IndexSettings(Section):
    """How the chain is followed."""

    poll_interval_s: float = Field(0.25, gt=0)
    """Pause between two looks at the head."""
    window_blocks: int = Field(256, ge=8)
    """Headers kept to undo a reorganisation."""
    max_lag_blocks: int = Field(10, ge=1)
    """Further behind the chain than this, or with an endpoint so far below what is indexed,
    the node is not ready."""


class OutputSettings(Section):
    """Where outputs are kept."""

    database_kb: int = Field(256, ge=128, le=100_000)
    """Outputs of up to so many kB are in PostgreSQL, larger ones in files below `data_dir`/outputs.
    What a callback can take is always in the database."""


class PrivateSettings(Section):
    """Inputs that requesters encrypt to this node."""

    key_files: tuple[Path, ...] = ()
    """Files with 64 hex digits, a private key of X25519 each. Requesters are told of the first;
    what is encrypted to the others is still read. Without one, `data_dir`/encryption.key, which is
    made at the first start."""


class RetentionSettings(Section):
    """How long what is over is kept."""

    settled_days: int = Field(90, ge=0)
    """Days after which a settled request is deleted with its output, unless a callback is owed or
    its payment is held back; 0 = never. The chain keeps all but the output."""
    output_days: int = Field(0, ge=0)
    """Days after its computation when a settled request's output alone is deleted, on the same
    terms; 0 = it goes with the request."""
    input_hours: int = Field(24, ge=0)
    """Hours for which content that a request named by URI is kept when nobody waits for it any
    more."""
    snapshot_hours: int = Field(24, ge=0)
    """Hours for which is kept what each round saw, for `inferd audit --replay`; 0 = rounds are not
    recorded."""
    snapshot_requests: int = Field(5_000, ge=1)
    """A round with more pending requests than this is not recorded: some 80 bytes a request."""
    snapshot_mb: int = Field(4_000, ge=1)
    """Megabytes of them that are kept, the newest: a chain of four blocks a second could fill 120
    gigabytes a day."""

    @property
    def recorded_requests(self) -> int:
        """Up to how many pending requests a round is recorded; 0 = none is."""
        return self.snapshot_requests if self.snapshot_hours else 0


class Settings(BaseSettings):
    """The whole configuration, frozen once read."""

    model_config = SettingsConfigDict(
        env_prefix="INFERD_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    rpc_urls: tuple[str, ...] = ("http://127.0.0.1:8545",)
    """HTTP endpoints; the best is used, and the next where it fails. The first one is the first
    choice among equals."""
    rpc_ws_urls: tuple[str, ...] = ()
    """Websocket endpoints that tell of new blocks: the first that works is used, only to look at
    the head at once instead of after `index.poll_interval_s`."""
    rpc_send_urls: tuple[str, ...] = ()
    """Where signed transactions go instead of `rpc_urls`: private relays, a sequencer, a node of
    your own. The first that takes one is enough; none of them is read."""
    deployment_file: Path = Path("deployment.json")
    """Which contracts, on which chain, from which block; `inferd deploy` writes it."""
    database_url: SecretStr | None = None
    """PostgreSQL 15 or newer; without it inferd runs its own in `data_dir`."""
    data_dir: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("inferd")))
    """The embedded PostgreSQL, api.json and large outputs; each daemon needs its own."""
    cache_dir: Path = Field(default_factory=lambda: Path(platformdirs.user_cache_dir("inferd")))
    """Model files."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines below it are not written."""
    log_format: Literal["json", "console"] = "json"
    """Of the daemon's log: for programs or for people. Other commands log for people."""
    node_url: str = "http://127.0.0.1:8700"
    """Where commands find the node's API."""

    poster: KeySource = KeySource(dev_account=1)
    """Pays the gas of posts and earns the poster's share."""
    posters: tuple[KeySource, ...] = ()
    """Several such keys in place of `poster`, as `[[posters]]`: what is ready is divided among
    them. Each has `posting.max_in_flight` transactions of its own under way, and a balance of its
    own; all other limits are of all together. One that is taken out is followed until nothing of it
    is under way."""
    requester: KeySource = KeySource(dev_account=2)
    """Pays for what `inferd submit` asks."""
    deployer: KeySource = KeySource(dev_account=0)
    """Pays for `inferd deploy`, and owns what it deploys unless `--owner` names another."""
    workers: tuple[WorkerSettings, ...] = ()
    """Your workers: inside the daemon, or behind an `inferd worker`."""
    pool: PoolSettings = PoolSettings()
    checks: CheckSettings = CheckSettings()
    pull: PullSettings = PullSettings()

    api: ApiSettings = ApiSettings()
    index: IndexSettings = IndexSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    posting: PostingSettings = PostingSettings()
    disputes: DisputeSettings = DisputeSettings()
    inputs: InputSettings = InputSettings()
    outputs: OutputSettings = OutputSettings()
    private: PrivateSettings = PrivateSettings()
    retention: RetentionSettings = RetentionSettings()
    agent: AgentSettings = AgentSettings()
    limits: LimitSettings = LimitSettings()
    tenants: tuple[TenantSettings, ...] = ()
    """Requesters that are treated in their own way."""

    @model_validator(mode="after")
    def _one_list_of_posters(self) -> Settings:
        if self.posters and "poster" in self.model_fields_set:
            raise ValueError("name the posters' keys in `poster` or in `posters`, not in both")
        if len({source.model_dump_json() for source in self.posters}) != len(self.posters):
            raise ValueError("two of the `posters` are one key")
        return self

    @property
    def named_posters(self) -> dict[str, KeySource]:
        """By the names that commands take: `poster`, `poster-2`, and so on; one at least."""
        keys = self.posters or (self.poster,)
        return {f"poster-{n}" if n > 1 else "poster": key for n, key in enumerate(keys, 1)}

    @property
    def most_unposted(self) -> int:
        """Results that wait beside full transactions from which on no request is begun."""
        return len(self.named_posters) * self.posting.max_in_flight * self.posting.max_results

    @field_validator("scheduling")
    @classmethod
    def _known_policy(cls, scheduling: SchedulingSettings) -> SchedulingSettings:
        require_known(scheduling.choice)
        return scheduling

    @field_validator("scheduling")
    @classmethod
    def _flow_installed(cls, scheduling: SchedulingSettings) -> SchedulingSettings:
        if scheduling.flow_arcs and not flow.available():
            raise ValueError(
                "flow_arcs decides by OR-tools, which is not installed: pip install"
                " 'inferd[flow]', or leave flow_arcs out"
            )
        return scheduling

    @field_validator("tenants")
    @classmethod
    def _different_tenants(cls, tenants: tuple[TenantSettings, ...]) -> tuple[TenantSettings, ...]:
        if len({tenant.address.lower() for tenant in tenants}) != len(tenants):
            raise ValueError("two tenants have one address")
        return tenants

    @field_validator("rpc_urls", "rpc_ws_urls", "rpc_send_urls")
    @classmethod
    def _readable_urls(cls, urls: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        schemes = ("ws", "wss") if info.field_name == "rpc_ws_urls" else ("http", "https")
        if not urls and info.field_name == "rpc_urls":
            raise ValueError("name at least one endpoint")
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in schemes:
                raise ValueError(f"an endpoint starts with {schemes[0]}:// or {schemes[1]}://")
            if not parts.hostname or parts.port == 0:
                raise ValueError("an endpoint has a host, and a port that is not 0")
        return urls

    @field_validator("workers")
    @classmethod
    def _different_names(cls, workers: tuple[WorkerSettings, ...]) -> tuple[WorkerSettings, ...]:
        names = [worker.name for worker in workers]
        if len(set(names)) != len(names):
            raise ValueError("two workers have one name")
        return workers


def taken_over(running: Settings, fresh: Settings) -> tuple[Settings, list[str]]:
    """What is in force after SIGHUP, and the names of what differs and needs a restart."""
    pool = running.pool.model_copy(
        update={name: getattr(fresh.pool, name) for name in LIVE_OF_POOL}
    )
    wait = [
        name
        for name in Settings.model_fields
        if name not in (*LIVE, "pool") and getattr(fresh, name) != getattr(running, name)
    ]
    wait += [
        f"pool.{name}"
        for name in PoolSettings.model_fields
        if getattr(fresh.pool, name) != getattr(pool, name)
    ]
    changed = {name: getattr(fresh, name) for name in LIVE}
    return running.model_copy(update={**changed, "pool": pool}), wait


def load_settings(path: Path | None = None, **overrides: Any) -> Settings:
    """Reads inferd.toml (or `path`) and the environment; overrides win over both.

    Raises BadSettings with every error in one text.
    """
    place = path or find_settings_file()

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (
                init_settings,
                env_settings,
                TomlConfigSettingsSource(settings_cls, toml_file=place),
            )

    if path is not None and not path.is_file():
        raise BadSettings(
            f"there is no file {path}", help_text="name an existing one with `--config`"
        )
    try:
        _refuse_unknown_variables()
        _refuse_keys_in_the_file(place)
        return FromFile(**overrides)
    except ValidationError as error:
        raise BadSettings(
            _all_errors(error, place), help_text="correct them all, then retry"
        ) from None
    except (OSError, ValueError) as error:
        raise BadSettings(
            f"{place}: {error}",
            help_text="correct the file; `inferd config` shows what is in force",
        ) from None


def _refuse_unknown_variables() -> None:
    """A misspelt variable would otherwise be passed over in silence."""
    known = {*Settings.model_fields, *_OTHER_VARIABLES}
    unknown = [
        name
        for name in sorted(os.environ)
        if name.startswith("INFERD_")
        and name.removeprefix("INFERD_").partition("__")[0].lower() not in known
    ]
    if unknown:
        raise BadSettings(
            f"no setting belongs to {', '.join(unknown)}",
            help_text="correct the name; docs/reference.md lists them all",
        )


def _refuse_keys_in_the_file(place: Path | None) -> None:
    """A raw key belongs in the environment of a development chain, never in a file."""

    def sections(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            yield value
            value = list(value.values())
        if isinstance(value, list):
            for inner in value:
                yield from sections(inner)

    if place is None or not place.is_file():
        return
    if any("raw" in section for section in sections(tomllib.loads(place.read_text()))):
        raise BadSettings(
            f"{place} holds a raw key",
            help_text="take it out and treat it as known to others; name a `keystore` with its"
            " `password_file`, or a `dev_account` on a development chain",
        )


def find_settings_file() -> Path | None:
    """INFERD_CONFIG, ./inferd.toml, or the one in the user's configuration folder."""
    named = os.environ.get("INFERD_CONFIG")
    if named:
        return Path(named)
    places = (Path("inferd.toml"), Path(platformdirs.user_config_dir("inferd")) / "inferd.toml")
    return next((place for place in places if place.is_file()), None)


def printable(settings: Settings) -> dict[str, Any]:
    """The configuration as JSON values, without passwords and keys."""
    shown = settings.model_dump(mode="json")
    for name in ("rpc_urls", "rpc_ws_urls", "rpc_send_urls"):
        shown[name] = [without_credentials(url) for url in getattr(settings, name)]
    shown["node_url"] = without_credentials(settings.node_url)
    if settings.database_url is not None:
        shown["database_url"] = without_credentials(settings.database_url.get_secret_value())
    return shown


def without_credentials(url: str) -> str:
    """The URL with user, password, path and query masked: providers put keys into all of them."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.port:
            host += f":{parts.port}"
    except ValueError:
        return "(unreadable address)"
    hidden = "/…" if parts.path.strip("/") or parts.query else ""
    return urlunsplit((parts.scheme, host, "", "", "")) + hidden


def _all_errors(error: ValidationError, place: Path | None) -> str:
    lines = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in problem["loc"]) or "(whole)"
        lines.append(f"{where}: {problem['msg']}")
    origin = f"{place} or the environment" if place else "the environment"
    return f"{len(lines)} setting(s) in {origin} are wrong: " + "; ".join(lines)
