"""The broker that operator and worker share, and whether it can be used."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from indexer.errors import OperatorError, TemporaryError

CONNECT_S = 5.0
"""For connecting, and for each answer of the broker that it does not wait with."""


class BrokerMissing(OperatorError):
    """No broker is named, or its URL cannot be read. The text never holds the URL."""

    code: ClassVar[str] = "broker_missing"


class BrokerNotInstalled(OperatorError):
    """Pulling takes Celery, which the extra `pull` brings."""

    code: ClassVar[str] = "broker_not_installed"


class BrokerUnreachable(TemporaryError):
    """The broker does not answer, or loads its data."""

    code: ClassVar[str] = "broker_unreachable"


class BrokerRefused(OperatorError):
    """The broker does not take the user or password, or does not let it do what is needed."""

    code: ClassVar[str] = "broker_refused"


class BrokerNotTrusted(OperatorError):
    """There is no TLS connection to the broker that could be trusted."""

    code: ClassVar[str] = "broker_not_trusted"


@dataclass(frozen=True, slots=True)
class Broker:
    """A Redis server."""

    url: str = field(repr=False)
    """With user and password."""
    ca_file: Path | None = None
    """Who signs its certificate, where the system does not know them; PEM."""

    @property
    def tls(self) -> dict[str, Any] | None:
        """As Celery and kombu want it; None without TLS."""
        if not self.url.startswith("rediss://"):
            return None
        options: dict[str, Any] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
        if self.ca_file is not None:
            options["ssl_ca_certs"] = str(self.ca_file)
        return options

    @property
    def shown(self) -> str:
        """Scheme, host and port."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}:{parts.port or 6379}"

    @property
    def in_the_open(self) -> bool:
        """Whether passwords and inputs cross a network as they are."""
        if self.tls is not None:
            return False
        host = urlsplit(self.url).hostname or ""
        try:
            return not ip_address(host).is_loopback
        except ValueError:
            return host != "localhost"


def read_broker(url_file: Path | None, url_env: str, ca_file: Path | None) -> Broker:
    """The broker whose URL this file holds, or this variable of the environment.

    Raises BrokerMissing, BrokerNotTrusted and BrokerNotInstalled.
    """
    if url_file is not None:
        where = f"the file {url_file}"
        try:
            url = url_file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            url = ""
    elif url_env:
        where, url = f"the variable {url_env}", os.environ.get(url_env, "").strip()
    else:
        raise BrokerMissing(
            "no broker is named that jobs could be pulled from",
            help_text="name the file with its URL as `url_file` in [pull], or the variable as"
            " `url_env`",
        )
    broker = Broker(url, ca_file)
    if not _usable(url):
        raise BrokerMissing(
            f"{where} holds no URL of a broker on one line",
            help_text="it is redis://USER:PASSWORD@HOST:6379/0, or rediss:// with TLS, without a"
            " query",
        )
    if ca_file is not None:
        _check_authorities(broker, ca_file)
    try:
        import celery  # noqa: F401, PLC0415 - an extra
        import redis  # noqa: F401, PLC0415
    except ImportError:
        raise BrokerNotInstalled(
            "pulling jobs takes Celery and redis-py, which are not installed",
            help_text="pip install 'inferd[pull]'",
        ) from None
    return broker


def check_broker(broker: Broker) -> None:
    """Asks it once, and waits for its answer.

    Raises BrokerUnreachable, BrokerRefused and BrokerNotTrusted.
    """
    from redis import Redis  # noqa: PLC0415 - an extra

    with refused_by(broker), Redis.from_url(broker.url, **client_options(broker)) as client:
        client.ping()


def client_options(broker: Broker) -> dict[str, Any]:
    """Of redis-py's clients, beside the URL."""
    options: dict[str, Any] = {
        "socket_timeout": CONNECT_S,
        "socket_connect_timeout": CONNECT_S,
        "socket_keepalive": True,
    }
    return {**options, **(broker.tls or {})}


class refused_by:  # noqa: N801 - reads as the word it is
    """Turns what redis-py raises into errors for operators, which hold no URL."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from redis import exceptions  # noqa: PLC0415 - an extra

        shown = self._broker.shown
        cause = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ssl.SSLError):
            raise BrokerNotTrusted(
                f"there is no TLS with the broker at {shown}: {cause.reason or 'it hung up'}",
                help_text="compare host name, certificate and `ca_file` in [pull]; a broker without"
                " TLS has redis:// in its URL",
            ) from None
        if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
            raise BrokerRefused(
                f"the broker at {shown} refuses this user: {_kind(error)}",
                help_text="correct user and password of its URL, or what the broker's access list"
                " gives the user; docs/operating/pull.md has its lines",
            ) from None
        if isinstance(error, exceptions.RedisError | OSError):
            raise BrokerUnreachable(
                f"the broker at {shown} cannot be used: {_kind(error)}",
                help_text="start it, or correct host and port of its URL",
            ) from None


def _kind(error: BaseException) -> str:
    """In words of ours: the server's own may hold what was sent."""
    from redis import exceptions  # noqa: PLC0415 - an extra

    match error:
        case exceptions.NoPermissionError():
            return "it may not do what is needed"
        case exceptions.AuthenticationError():
            return "wrong user or password"
        case exceptions.TimeoutError() | TimeoutError():
            return "no answer in time"
        case exceptions.BusyLoadingError():
            return "it loads its data"
        case exceptions.ConnectionError() | OSError():
            return "no connection"
        case _:
            return type(error).__name__


def _usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in {"redis", "rediss"}
            and bool(parts.hostname)
            and parts.port != 0
            and not (parts.query or parts.fragment)
            and url.isprintable()
            and " " not in url
            and (parts.path.strip("/") or "0").isdigit()
        )
    except ValueError:
        return False


def _check_authorities(broker: Broker, ca_file: Path) -> None:
    if broker.tls is None:
        raise BrokerNotTrusted(
            "`ca_file` in [pull] is for a broker with TLS",
            help_text="write rediss:// in its URL, or leave ca_file out",
        )
    try:
        ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # SSLError is one
        raise BrokerNotTrusted(
            f"{ca_file} cannot be used: {error.strerror or 'not PEM'}",
            help_text="name a readable PEM file as `ca_file` in [pull]",
        ) from None
