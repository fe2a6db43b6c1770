"""Settings: one place, all errors at once, no secret shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferd.chain.keys import KeySource
from inferd.node.settings import (
    BadSettings,
    Settings,
    load_settings,
    printable,
    taken_over,
    without_credentials,
)
from scheduler import flow


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INFERD_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


def test_defaults_without_a_file() -> None:
    assert load_settings().api.port == 8700


def test_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inferd.toml").write_text("[api]\nport = 1\n[posting]\nmax_results = 7\n")
    monkeypatch.setenv("INFERD_API__PORT", "2")
    settings = load_settings()
    assert (settings.api.port, settings.posting.max_results) == (2, 7)


def test_all_errors_are_listed_together(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        'rpc_urls = ["ftp://x"]\nlog_level = "loud"\n[api]\nport = 99999\n[posting]\nsurprise = 1\n'
    )
    with pytest.raises(BadSettings) as caught:
        load_settings(path)
    for part in ("rpc_urls", "log_level", "api.port", "posting.surprise", "4 setting(s)"):
        assert part in caught.value.message


def test_broken_toml_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("api = {\n")
    with pytest.raises(BadSettings) as caught:
        load_settings(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


def test_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="no file"):
        load_settings(tmp_path / "missing.toml")


def test_nothing_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERD_POSTER__RAW", "0x" + "5e" * 32)
    monkeypatch.setenv("INFERD_DATABASE_URL", "postgresql://me:hunter2@db.test:5433/x")
    monkeypatch.setenv("INFERD_RPC_URLS", '["https://user:hunter2@rpc.test/v3/apikey?key=hunter2"]')
    monkeypatch.setenv("INFERD_RPC_WS_URLS", '["wss://user:hunter2@rpc.test/v3/apikey"]')
    monkeypatch.setenv("INFERD_RPC_SEND_URLS", '["https://relay.test/apikey"]')
    monkeypatch.setenv(
        "INFERD_REQUESTER",
        '{"remote_signer_url": "https://user:hunter2@signer.test", "address": "0x%s"}'
        % ("ab" * 20),
    )
    settings = load_settings()
    shown = json.dumps(printable(settings)) + repr(settings)
    for secret in ("5e5e", "hunter2", "apikey"):
        assert secret not in json.dumps(printable(settings))
    assert "5e5e" not in shown
    assert printable(settings)["rpc_urls"] == ["https://rpc.test/…"]
    assert printable(settings)["rpc_ws_urls"] == ["wss://rpc.test/…"]
    assert printable(settings)["rpc_send_urls"] == ["https://relay.test/…"]
    assert "signer.test" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "urls", "words"),
    [
        ("rpc_urls", '["ws://h"]', "http:// or https://"),
        ("rpc_ws_urls", '["http://h"]', "ws:// or wss://"),
        ("rpc_ws_urls", '["ws://"]', "has a host"),
        ("rpc_send_urls", '["wss://h"]', "http:// or https://"),
        ("rpc_urls", "[]", "at least one"),
    ],
)
def test_endpoint_of_the_wrong_kind(tmp_path: Path, name: str, urls: str, words: str) -> None:
    path = tmp_path / "inferd.toml"
    path.write_text(f"{name} = {urls}")
    with pytest.raises(BadSettings, match=words):
        load_settings(path)


def test_websocket_endpoints_are_optional(tmp_path: Path) -> None:
    path = tmp_path / "inferd.toml"
    path.write_text('rpc_ws_urls = ["ws://127.0.0.1:8545"]')
    assert load_settings(path).rpc_ws_urls == ("ws://127.0.0.1:8545",)
    path.write_text("")
    assert load_settings(path).rpc_ws_urls == ()


def test_a_raw_key_in_the_file_is_refused_and_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "inferd.toml"
    path.write_text(
        '[[workers]]\nname = "a"\nbackend = "markov"\nmodel = "m"\nkey = { raw = "0x5e5e" }\n'
    )
    with pytest.raises(BadSettings, match="raw key") as caught:
        load_settings(path)
    assert "5e5e" not in caught.value.message + caught.value.help_text


def test_two_workers_with_one_name_are_refused(tmp_path: Path) -> None:
    worker = '[[workers]]\nname = "a"\nbackend = "markov"\nmodel = "m"\nkey = { dev_account = 5 }\n'
    path = tmp_path / "inferd.toml"
    path.write_text(worker * 2)
    with pytest.raises(BadSettings, match="one name"):
        load_settings(path)


def test_exact_rounds_need_or_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "inferd.toml"
    place.write_text("[scheduling]\nflow_arcs = 5000\n")
    monkeypatch.setattr(flow, "available", lambda: True)
    assert load_settings(place).scheduling.flow_arcs == 5_000
    monkeypatch.setattr(flow, "available", lambda: False)
    with pytest.raises(BadSettings, match=r"pip install 'inferd\[flow\]'"):
        load_settings(place)
    place.write_text("[scheduling]\nflow_arcs = 0\n")
    assert load_settings(place).scheduling.flow_arcs == 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8545", "http://127.0.0.1:8545"),
        ("https://a:b@h/c", "https://h/…"),
        ("postgresql://u:p@h:5432/d?x=y", "postgresql://h:5432/…"),
    ],
)
def test_url_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


def test_posters_are_one_key_or_several(tmp_path: Path) -> None:
    one = "{ dev_account = 1 }"
    other = '{ remote_signer_url = "https://signer.test", address = "0x%s" }' % ("ab" * 20)
    path = tmp_path / "inferd.toml"

    def read(text: str) -> Settings:
        path.write_text(text)
        return load_settings(path)

    assert read("").named_posters == {"poster": KeySource(dev_account=1)}
    assert list(read(f"poster = {other}").named_posters) == ["poster"]
    several = read(f"posters = [{other}, {one}, {{ dev_account = 2 }}]").named_posters
    assert list(several) == ["poster", "poster-2", "poster-3"]
    assert several["poster-2"] == KeySource(dev_account=1)
    for text, words in (
        (f"poster = {one}\nposters = [{other}]", "not in both"),
        (f"posters = [{one}, {one}]", "one key"),
        ('posters = [{ raw = "0x%s" }]' % ("5e" * 32), "holds a raw key"),
    ):
        with pytest.raises(BadSettings, match=words):
            read(text)


def test_what_a_running_daemon_takes_over_and_what_waits_for_a_restart() -> None:
    running = Settings()
    fresh = Settings.model_validate(
        {
            "log_level": "debug",
            "limits": {"tenant_in_flight": 3},
            "pool": {"deny": ["0x" + "12" * 20], "max_workers": 7, "timeout_s": 3.0},
        }
    )
    taken, wait = taken_over(running, fresh)
    assert wait == ["log_level", "pool.timeout_s"]
    assert taken.limits == fresh.limits
    assert (taken.pool.deny, taken.pool.max_workers) == (fresh.pool.deny, 7)
    assert (taken.log_level, taken.pool.timeout_s) == (running.log_level, running.pool.timeout_s)
    assert taken_over(taken, taken) == (taken, [])
