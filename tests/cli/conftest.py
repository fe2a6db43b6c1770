"""Commands run in an empty folder, with no settings but the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferd.chain.anvil import Anvil
from tests.cli.stage import SETTINGS, Stage
from tests.cli.support import Cli, FakeNode, serving


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("INFERD_") and name != "INFERD_ANVIL":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "xdg"))
    monkeypatch.setenv("INFERD_NODE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("INFERD_RPC_URLS", '["http://127.0.0.1:9"]')


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(capsysbinary)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNode]:
    fake = FakeNode()
    with serving(fake):
        monkeypatch.setenv("INFERD_NODE_URL", fake.url)
        yield fake


@pytest.fixture
def chain(anvil: Anvil, monkeypatch: pytest.MonkeyPatch) -> Anvil:
    """An endpoint without contracts."""
    monkeypatch.setenv("INFERD_RPC_URLS", f'["{anvil.url}"]')
    return anvil


@pytest.fixture
def deployed(chain: Anvil, cli: Cli) -> Anvil:
    """An endpoint with contracts, and ./deployment.json."""
    assert cli("deploy").code == 0
    return chain


@pytest.fixture
def stage(deployed: Anvil, cli: Cli) -> Stage:
    """An endpoint with contracts and a staked worker."""
    Path("inferd.toml").write_text(SETTINGS)
    assert cli("worker", "register", "text").code == 0
    return Stage(deployed)
