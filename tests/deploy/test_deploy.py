"""What is in deploy/ fits the program: its commands, its settings, its secrets."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferd.cli import run
from inferd.node.settings import Settings, load_settings
from tests.workers.pull.redis_server import binary, redis_server

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = sorted((DEPLOY / "compose").glob("*.yml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SECRET = re.compile(r"/run/secrets/([\w.-]+)")


def composed(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose" / name).read_text()))


def parses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command line, with options as the program has them."""
    assert run([*arguments, "--help"]) == 0, capsys.readouterr().err


def settings_of(path: Path, environment: dict[str, str], patch: pytest.MonkeyPatch) -> Settings:
    with patch.context() as inside:
        for name, value in environment.items():
            inside.setenv(name, value)
        return load_settings(path)


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.stem)
def test_compose_files_are_whole(path: Path) -> None:
    body = composed(path.name)
    declared = {name: set(body.get(name) or ()) for name in ("secrets", "volumes")}
    used: dict[str, set[str]] = {"secrets": set(), "volumes": set()}
    for name, service in body["services"].items():
        assert "image" in service, name
        used["secrets"] |= set(service.get("secrets", ()))
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            used["volumes"] |= set() if source.startswith("./") else {source}
        for other in service.get("depends_on", ()):
            assert "healthcheck" in body["services"][other]
        if service["image"] == "inferd":
            assert service["cap_drop"] == ["ALL"]
            assert service["read_only"] is True
            assert service["stop_grace_period"] == "15s"
    assert used == declared


@pytest.mark.parametrize("name", ["node.yml", "worker.yml", "pull-worker.yml"])
def test_compose_runs_what_there_is(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = composed(name)
    settings_file = DEPLOY / "compose" / name.replace(".yml", ".toml")
    named = set(SECRET.findall(settings_file.read_text()))
    services = [one for one in body["services"].values() if one["image"] == "inferd"]
    assert named == {secret for service in services for secret in service.get("secrets", ())}
    for service in services:
        parses(service["command"], capsys)
        environment = dict(service["environment"])
        for variable, value in (
            ("INFERD_DATABASE_URL", "postgresql://inferd:x@postgres:5432/inferd"),
            ("INFERD_RPC_URLS", '["https://rpc.example"]'),
        ):
            if variable in environment:
                environment[variable] = value
        del environment["INFERD_CONFIG"]
        settings_of(settings_file, environment, monkeypatch)
        for volume in service["volumes"]:
            source = volume.split(":")[0].removeprefix("./")
            assert source in {"deployment.json", "signatures", settings_file.name}


def test_each_role_has_its_own_secrets_and_no_others() -> None:
    services = composed("node.yml")["services"]
    had = {
        name: set(service.get("secrets", ()))
        for name, service in services.items()
        if service["image"] == "inferd"
    }
    operator = {"operator.json", "operator.password", "broker.url"}
    assert had == {
        "index": set(),
        "schedule": set(),
        "api": set(),
        "dispatch-1": operator,
        "dispatch-2": operator,
        "settle": operator | {"poster.json", "poster.password"},
    }
    roles = {services[name]["command"][-1] for name in had}
    assert roles == {"index", "schedule", "dispatch", "settle", "api"}


def unit(path: Path) -> dict[str, list[str]]:
    """The lines of [Service], by their names."""
    found: dict[str, list[str]] = {}
    inside = False
    for line in path.read_text().splitlines():
        if line.startswith("["):
            inside = line == "[Service]"
        name, equals, value = line.partition("=")
        if inside and equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_run_what_there_is(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = unit(path)
    (start,) = lines["ExecStart"]
    program, _, settings_file, *arguments = start.replace("%i", "llama").split()
    assert program == "/opt/inferd/bin/inferd"
    parses(["settle" if one == "${ROLES}" else one for one in arguments], capsys)
    environment = dict(
        pair.replace("%d", "/run/credentials/x").replace("%i", "llama").split("=", 1)
        for line in lines["Environment"]
        for pair in line.split()
    )
    environment["INFERD_PULL__URL_FILE"] = "/run/credentials/x/keys_broker.url"
    place = DEPLOY / "systemd" / Path(settings_file).name
    settings = settings_of(place, environment, monkeypatch)
    if arguments[0] == "worker":
        assert [worker.name for worker in settings.workers] == ["llama"]
    else:
        assert str(settings.poster.keystore).endswith("keys_poster.json")
        assert settings.pool.operator is not None
    assert lines["DynamicUser"] == ["yes"]
    assert lines["Restart"] == ["on-failure"]
    assert lines["RestartPreventExitStatus"] == ["1 2"]
    # The program ends within ten seconds by itself.
    assert int(lines["TimeoutStopSec"][0]) > 10


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_the_units(path: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze on this machine")
    copy = tmp_path / path.name.replace("@", "@llama")
    copy.write_text(path.read_text().replace("/opt/inferd/bin/inferd", "/bin/true"))
    checked = subprocess.run(
        [analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    told = [line for line in checked.stderr.splitlines() if copy.name in line]
    assert (checked.returncode, told) == (0, [])


def test_the_broker_takes_its_settings(tmp_path: Path) -> None:
    """Without TLS, which the binaries of packages have not."""
    binary()
    conf = [
        line
        for line in (DEPLOY / "compose" / "redis.conf").read_text().splitlines()
        if line and not line.startswith(("#", "tls-", "port ", "bind "))
    ]
    page = (ROOT / "docs" / "operating" / "pull.md").read_text()
    users = tmp_path / "users.acl"
    users.write_text(
        "\n".join(line for line in page.splitlines() if line.startswith("user "))
        .replace("user default off", "user default on nopass ~* &* +@all")
        .replace("PASSWORD", "0" * 64)
    )
    place = tmp_path / "redis.conf"
    place.write_text("\n".join(conf).replace("/run/secrets/users.acl", str(users)) + "\n")
    with redis_server(tmp_path / "redis", config=place) as redis, redis.client() as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "volatile-ttl"}
        assert len(client.acl_users()) == 3
    documented = page.split("# redis.conf\n")[1].split("```")[0]
    for line in conf:
        if not line.startswith(("save", "aclfile")):
            assert line in documented


def test_the_image_has_all_it_needs(tmp_path: Path) -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    sources = [
        source
        for line in text.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    for source in sources:
        assert f"!{source}" in ignored
        place = tmp_path / source
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, place)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {"inferd/cli/app.py", "inferd/chain/anvil.toml"} <= held
    assert any(name.startswith("inferd/protocol/artifacts/") for name in held)
    (removed,) = re.findall(r"pip uninstall --yes (.+)", text)
    locked = (ROOT / "requirements.lock").read_text()
    assert all(f"\n{name}==" in locked for name in removed.split())
    assert re.search(r"^USER inferd$", text, re.MULTILINE)
