"""Whatever keeps the daemon from starting is one clear line with a stable exit code."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from indexer.database import connect
from indexer.errors import ExitCode
from inferd.chain.anvil import free_port
from tests.harness import System

_Change = Callable[[System, Path], dict[str, Any]]


def unreachable_rpc(world: System, tmp_path: Path) -> dict[str, Any]:
    world.rpc_url = f"http://127.0.0.1:{free_port()}"
    return {}


def wrong_chain_id(world: System, tmp_path: Path) -> dict[str, Any]:
    _edit_deployment(world, lambda body: body.update(chain_id=1337))
    return {}


def other_genesis(world: System, tmp_path: Path) -> dict[str, Any]:
    _edit_deployment(world, lambda body: body.update(genesis_hash="0x" + "11" * 32))
    return {}


def no_contract_code(world: System, tmp_path: Path) -> dict[str, Any]:
    nowhere = "0x" + "22" * 20
    _edit_deployment(world, lambda body: body["contracts"].update(InferenceResults=nowhere))
    return {}


def no_deployment_file(world: System, tmp_path: Path) -> dict[str, Any]:
    (world.folder / "deployment.json").unlink()
    return {}


def bad_key_file(world: System, tmp_path: Path) -> dict[str, Any]:
    keystore, password = tmp_path / "poster.json", tmp_path / "password"
    keystore.write_text("0x" + "5e" * 32)
    password.write_text("hunter2")
    return {"poster": f'{{ keystore = "{keystore}", password_file = "{password}" }}'}


def bad_toml(world: System, tmp_path: Path) -> dict[str, Any]:
    return {"extra": "log_level = loud"}


def bad_values(world: System, tmp_path: Path) -> dict[str, Any]:
    return {"extra": 'log_level = "loud"\nsurprise = 1'}


def database_away(world: System, tmp_path: Path) -> dict[str, Any]:
    return {"database_url": f"postgresql://me:hunter2@127.0.0.1:{free_port()}/x"}


def no_broker(world: System, tmp_path: Path) -> dict[str, Any]:
    return {"sections": f'[pull]\nurl_file = "{tmp_path}/broker.url"'}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (unreachable_rpc, ExitCode.TRY_AGAIN, "127.0.0.1"),
        (wrong_chain_id, ExitCode.CONFIGURATION, "1337"),
        (other_genesis, ExitCode.CONFIGURATION, "genesis"),
        (no_contract_code, ExitCode.CONFIGURATION, "no contract"),
        (no_deployment_file, ExitCode.CONFIGURATION, "no deployment file"),
        (bad_key_file, ExitCode.CONFIGURATION, "poster.json"),
        (bad_toml, ExitCode.CONFIGURATION, "inferd.toml"),
        (bad_values, ExitCode.CONFIGURATION, "2 setting(s)"),
        (no_broker, ExitCode.CONFIGURATION, "broker.url holds no URL"),
        (database_away, ExitCode.TRY_AGAIN, "PostgreSQL"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_one_clear_line(
    change: _Change,
    code: ExitCode,
    words: str,
    world: System,
    empty_database: str,
    tmp_path: Path,
) -> None:
    settings = {"database_url": empty_database} | change(world, tmp_path)
    node = world.start_node("node", **settings)
    assert node.process.wait(40) == code
    _assert_one_clear_line(node.log_text(), words)


async def test_newer_database_is_refused(world: System, database: str) -> None:
    connection = await connect(database)
    await connection.execute(
        "INSERT INTO public.inferd_migration (component, version) VALUES ('node', 99)"
    )
    await connection.close()
    node = world.start_node("node", database)
    assert node.process.wait(40) == ExitCode.CONFIGURATION
    _assert_one_clear_line(node.log_text(), "version 99")


async def test_database_of_another_deployment_is_refused(world: System, database: str) -> None:
    connection = await connect(database)
    await connection.execute(
        "INSERT INTO chain.source (chain_id, genesis_hash, start_block, requests, results,"
        " registry, stakes) VALUES (1, $1, 1, $2, $2, $2, $2)",
        secrets.token_bytes(32),
        secrets.token_bytes(20),
    )
    await connection.close()
    node = world.start_node("node", database)
    assert node.process.wait(40) == ExitCode.CONFIGURATION
    _assert_one_clear_line(node.log_text(), "database")


async def test_taken_port_is_refused(world: System, empty_database: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        node = world.start_node("node", empty_database, environment={"INFERD_API__PORT": str(port)})
        assert node.process.wait(40) == ExitCode.CONFIGURATION
    _assert_one_clear_line(node.log_text(), str(port))


def _edit_deployment(world: System, edit: Callable[[dict[str, Any]], None]) -> None:
    place = world.folder / "deployment.json"
    body = json.loads(place.read_text())
    edit(body)
    place.write_text(json.dumps(body))


def _assert_one_clear_line(text: str, words: str) -> None:
    lines = [line for line in text.splitlines() if not line.startswith("{")]
    assert [line.split(":")[0] for line in lines] == ["error", "help"], text
    assert words in lines[0]
    assert "Traceback" not in text
    for secret in ("hunter2", "5e5e"):
        assert secret not in text
