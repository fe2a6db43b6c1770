"""The embedded PostgreSQL: any folder, any end of its processes."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexer.database import connect
from inferd.node.postgres import EmbeddedPostgres


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="inferd-test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    "name",
    [
        "with a space",
        "c++ & 100%",
        "comma, quote' and \"",
        "$(touch hacked)",
        "d" * 120,
        "данные" * 10,
    ],
)
async def test_any_folder_name_will_do(name: str, place: Path) -> None:
    server = EmbeddedPostgres(place / name, durable=False)
    try:
        server.ensure_running()
        connection = await connect(server.url)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
        assert not list(place.rglob("hacked"))
    finally:
        server.stop()
    assert not server.is_running()


async def test_a_killed_server_is_started_again(place: Path) -> None:
    server = EmbeddedPostgres(place, durable=True)
    server.ensure_running()
    try:
        pid = int((place / "data" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGKILL)
        while server.is_running():
            time.sleep(0.05)
        server.ensure_running()
        connection = await connect(server.url)
        await connection.close()
    finally:
        server.stop()


async def test_it_stays_while_somebody_else_is_connected(place: Path) -> None:
    server = EmbeddedPostgres(place, durable=False)
    server.ensure_running()
    other = await connect(server.url)
    await server.stop_if_unused()
    assert server.is_running()
    await other.close()
    await server.stop_if_unused()
    assert not server.is_running()
