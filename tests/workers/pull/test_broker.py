"""A broker that cannot be used is told in one line without its URL; TLS is checked."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path

import pytest

from indexer.errors import ExitCode, OperatorError
from inferd.chain.anvil import free_port
from inferd.workers.pull.broker import (
    Broker,
    BrokerMissing,
    BrokerNotInstalled,
    BrokerNotTrusted,
    BrokerRefused,
    BrokerUnreachable,
    check_broker,
    read_broker,
)
from tests.settlement.certificates import make_certificates
from tests.workers.pull.redis_server import ADMIN, RedisServer
from tests.workers.pull.support import tls_before

SECRET = "hunter2"


def test_the_url_comes_from_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"rediss://worker:{SECRET}@broker.example:6380/2"
    place = tmp_path / "broker.url"
    place.write_text(url + "\n")
    broker = read_broker(place, "", None)
    assert broker.url == url
    assert broker.shown == "rediss://broker.example:6380"
    assert SECRET not in repr(broker)
    monkeypatch.setenv("BROKER", url)
    assert read_broker(None, "BROKER", None) == broker


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis://",
        f"http://x:{SECRET}@host/0",
        f"redis://x:{SECRET}@host:0/0",
        f"redis://x:{SECRET}@host:99999/0",
        f"redis://x:{SECRET}@host/0?ssl_cert_reqs=none",
        f"redis://x:{SECRET}@host/jobs",
        f"redis://x:{SECRET}@host/0\nredis://y@host/0",
    ],
)
def test_a_url_that_is_none_is_refused_without_being_shown(tmp_path: Path, url: str) -> None:
    place = tmp_path / "broker.url"
    place.write_text(url)
    with pytest.raises(BrokerMissing) as refused:
        read_broker(place, "", None)
    assert str(place) in refused.value.message
    assert SECRET not in refused.value.message + refused.value.help_text
    assert refused.value.exit_code == ExitCode.CONFIGURATION


def test_nothing_named_and_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_BROKER", raising=False)
    for place, variable in ((None, ""), (tmp_path / "none", ""), (None, "NO_BROKER")):
        with pytest.raises(BrokerMissing):
            read_broker(place, variable, None)


def test_an_authority_is_a_pem_file_for_tls(tmp_path: Path) -> None:
    place, wrong = tmp_path / "broker.url", tmp_path / "ca.pem"
    wrong.write_text("no PEM")
    for url in ("redis://127.0.0.1/0", "rediss://127.0.0.1/0"):
        place.write_text(url)
        with pytest.raises(BrokerNotTrusted, match=r"ca_file|ca\.pem"):
            read_broker(place, "", wrong)


@pytest.mark.parametrize(
    ("url", "open_"),
    [
        ("redis://127.0.0.1:1/0", False),
        ("redis://[::1]:1/0", False),
        ("redis://localhost/0", False),
        ("redis://10.0.0.1/0", True),
        ("redis://broker.example/0", True),
        ("rediss://broker.example/0", False),
    ],
)
def test_passwords_in_the_open_are_seen(url: str, open_: bool) -> None:
    assert Broker(url).in_the_open is open_


def refused(broker: Broker) -> OperatorError:
    with pytest.raises(OperatorError) as error:
        check_broker(broker)
    said = error.value.message + error.value.help_text
    assert SECRET not in said
    assert ADMIN not in said
    assert "\n" not in said
    return error.value


def test_what_a_broker_says_is_told_apart(redis: RedisServer) -> None:
    check_broker(Broker(redis.url))
    assert isinstance(refused(Broker(f"redis://127.0.0.1:{free_port()}/0")), BrokerUnreachable)
    for user in (f"nobody:{SECRET}@", f"default:{SECRET}@", ""):
        error = refused(Broker(f"redis://{user}127.0.0.1:{redis.port}/0"))
        assert isinstance(error, BrokerRefused)
        assert error.exit_code == ExitCode.CONFIGURATION
    # TLS with a broker that speaks none.
    assert isinstance(
        refused(Broker(redis.url.replace("redis://", "rediss://"))),
        BrokerNotTrusted | BrokerUnreachable,
    )


async def test_tls_is_checked(redis: RedisServer, tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    async with tls_before(redis, files) as port:
        trusted = Broker(f"rediss://default:{ADMIN}@127.0.0.1:{port}/0", files.ca)
        await asyncio.to_thread(check_broker, trusted)
        stranger = dataclasses.replace(trusted, ca_file=None)
        # The certificate is of 127.0.0.1.
        elsewhere = dataclasses.replace(trusted, url=trusted.url.replace("127.0.0.1", "localhost"))
        for broker in (stranger, elsewhere):
            error = await asyncio.to_thread(refused, broker)
            assert isinstance(error, BrokerNotTrusted), error.message


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "broker.url"
    place.write_text("redis://127.0.0.1/0")
    monkeypatch.setitem(sys.modules, "celery", None)
    with pytest.raises(BrokerNotInstalled) as refused:
        read_broker(place, "", None)
    assert "inferd[pull]" in refused.value.help_text
