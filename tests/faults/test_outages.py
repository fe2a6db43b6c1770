"""What the daemon stands on goes away and comes back; it goes on by itself and says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inferd.node.postgres import EmbeddedPostgres
from tests.faults.proxy import TcpProxy
from tests.harness import FEE_WEI, OWNER, POSTER, System, account
from tests.indexer.scripted import result, scripted_node

_OUTAGE_S = 20


async def test_chain_away_for_20_seconds(world: System, empty_database: str) -> None:
    async with TcpProxy(world.anvil.config.port) as proxy:
        world.rpc_url = proxy.url
        node = world.start_node("node", empty_database)
        await node.until_ready()
        before = await world.ask("before the outage")
        await proxy.down()
        await node.until_not_ready("rpc_unreachable")
        during = await world.ask("during the outage")
        await asyncio.sleep(_OUTAGE_S)
        assert node.process.poll() is None
        await proxy.up()
        await node.until_ready()
        for asked in (before, during):
            await node.until_state(asked.request_id, "settled")
        assert node.stop() == 0
    assert await world.credit_wei(POSTER) + await world.credit_wei(OWNER) == 2 * FEE_WEI


async def test_endpoint_far_behind_what_is_indexed__said_and_waited_out(
    world: System, empty_database: str
) -> None:
    """No reorganisation, and no error of any call: nothing else would tell of it."""
    behind = False
    asked = [["latest", False], ["finalized", False]]

    async def script(body: Any) -> Any:
        if behind and isinstance(body, dict) and body["params"] in asked:
            return result(body, await world.rpc.request(body["method"], ["0x1", False]))
        return None

    async with scripted_node(world.anvil.url, script) as slow:
        world.rpc_url = slow.url
        await world.rpc.request("anvil_mine", [hex(20)])
        node = world.start_node("node", empty_database)
        await node.until_ready()
        behind = True
        await node.until_not_ready("endpoint_behind")
        behind = False
        await node.until_ready()
        assert node.stop() == 0


@pytest.fixture
def own_postgres(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A server this test may stop."""
    server = EmbeddedPostgres(postgres.folder / tmp_path.name, durable=True)
    server.ensure_running()
    yield server
    server.stop()


async def test_database_restarted(world: System, own_postgres: EmbeddedPostgres) -> None:
    node = world.start_node("node", own_postgres.url)
    await node.until_ready()
    before = await world.ask("before the restart")
    own_postgres.stop()
    await node.until_not_ready("database_unreachable")
    during = await world.ask("during the restart")
    assert node.process.poll() is None
    own_postgres.ensure_running()
    await node.until_ready()
    for asked in (before, during):
        await node.until_state(asked.request_id, "settled")
    assert node.stop() == 0
    assert await world.credit_wei(POSTER) + await world.credit_wei(OWNER) == 2 * FEE_WEI


async def test_poster_without_funds_computes_stops_sending_and_resumes(
    world: System, empty_database: str
) -> None:
    poster = account(POSTER).address
    await world.rpc.request("anvil_setBalance", [poster, "0x1"])
    node = world.start_node("node", empty_database)
    asked = await world.ask("nobody can pay for this")
    await node.until_state(asked.request_id, "computed")
    await node.until_not_ready("insufficient_funds")
    status, health = await node.get("/healthz")
    assert status == 200
    assert health["problems"][0]["next_action"].startswith("Send funds")
    assert await world.rpc.nonce(bytes.fromhex(poster[2:]), "pending") == 0
    await world.rpc.request("anvil_setBalance", [poster, hex(10**18)])
    await node.until_state(asked.request_id, "settled")
    await node.until_ready()
    assert node.stop() == 0


async def test_standby_takes_over_within_15_seconds(world: System, empty_database: str) -> None:
    first = world.start_node("first", empty_database)
    await first.until_ready()
    second = world.start_node("second", empty_database)
    await second.until_not_ready("standby")
    one = await world.ask("served by the first")
    await first.until_state(one.request_id, "settled")
    assert not second.events("job_started")
    first.kill()
    two = await world.ask("served by the second")
    await second.until_ready(timeout_s=15)
    await second.until_state(two.request_id, "settled")
    assert second.stop() == 0
    assert await world.credit_wei(POSTER) + await world.credit_wei(OWNER) == 2 * FEE_WEI


async def test_sigterm_ends_in_order_while_working(world: System, empty_database: str) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    await world.ask("interrupted")
    assert node.stop(timeout_s=10) == 0
    assert "Traceback" not in node.log_text()
