"""SIGTERM ends the daemon within ten seconds, whatever it is doing and whatever hangs."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from pathlib import Path

from inferd.node.postgres import EmbeddedPostgres
from tests.faults.proxy import TcpProxy
from tests.faults.test_outages import own_postgres
from tests.harness import System

__all__ = ["own_postgres"]


async def test_while_standing_by(world: System, empty_database: str) -> None:
    first = world.start_node("first", empty_database)
    await first.until_ready()
    second = world.start_node("second", empty_database)
    await second.until_not_ready("standby")
    assert second.stop(10) == 0
    assert first.stop(10) == 0


async def test_while_the_chain_is_away(world: System, empty_database: str) -> None:
    async with TcpProxy(world.anvil.config.port) as proxy:
        world.rpc_url = proxy.url
        node = world.start_node("node", empty_database)
        await node.until_ready()
        await proxy.down()
        await node.until_not_ready("rpc_unreachable")
        assert node.stop(10) == 0


async def test_while_the_database_is_down(world: System, own_postgres: EmbeddedPostgres) -> None:
    node = world.start_node("node", own_postgres.url)
    await node.until_ready()
    own_postgres.stop()
    await node.until_not_ready("database_unreachable")
    assert node.stop(10) == 0


async def test_while_the_database_hangs(world: System, own_postgres: EmbeddedPostgres) -> None:
    node = world.start_node("node", own_postgres.url)
    await node.until_ready()
    await world.ask("in flight")
    pids = _server_processes(own_postgres)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        await node.until(lambda: _is_not_ready(node), 40, "not ready")
        node.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(node.process.wait, 12)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def test_while_a_model_is_fetched(world: System, empty_database: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "models").mkdir(parents=True)
    with (cache / "models" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        node = world.start_node(
            "node",
            empty_database,
            models=(("smollm2-135m", "llamacpp"),),
            environment={"INFERD_CACHE_DIR": str(cache)},
        )
        await node.until_not_ready("starting")
        await asyncio.sleep(2)
        assert node.stop(10) == 0


async def _is_not_ready(node: object) -> bool:
    status, _ = await node.get("/readyz")  # type: ignore[attr-defined]
    return bool(status == 503)


def _server_processes(server: EmbeddedPostgres) -> list[int]:
    """The postmaster and all its children."""
    lines = (server.folder / "data" / "postmaster.pid").read_text().splitlines()
    postmaster = int(lines[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    return [postmaster, *map(int, children)]
