"""A node that is split over processes: each role in one of its own, two that dispatch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address

from indexer.database import Connection, connect
from inferd.chain.register import register_worker
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.service.agent import Post, opened_log, serving
from inferd.workers.service.settings import AgentSettings
from tests.harness import MODEL, OWNER, WORKERS, NodeProcess, System, account

OPERATOR = 8
SETTINGS = {
    "models": (),
    "sections": f"[pool]\noperator = {{ dev_account = {OPERATOR} }}\nheartbeat_s = 0.3",
}


class Cluster:
    """Processes by name, on one database."""

    def __init__(self, world: System, database: str) -> None:
        self.world, self.database = world, database
        self.processes: dict[str, NodeProcess] = {}

    def start(self, name: str, roles: str) -> NodeProcess:
        node = self.world.start_node(name, self.database, roles=roles, **SETTINGS)
        self.processes[name] = node
        return node

    async def until_roles(self, name: str, *roles: str) -> None:
        """Until that process sees a living one for each of these."""
        node = self.processes[name]

        async def check() -> bool:
            status, body = await node.get("/v1/status")
            had = [one["roles"] for one in body["processes"]] if status == 200 else []
            return sorted(role for some in had for role in some) == sorted(roles)

        await node.until(check, 60, f"beside {roles}")


@pytest.fixture
async def agents(world: System, tmp_path: Path) -> AsyncIterator[None]:
    """Both registered workers listen as agents of their own."""
    async with AsyncExitStack() as stack:
        for index in WORKERS:
            key = account(index)
            post = Post(
                f"far-{index}", PrivateKey(bytes(key.key)), world.deployment.contracts, 2, 1024
            )
            log = opened_log(post, tmp_path)
            stack.push_async_callback(log.close)
            settings = AgentSettings(
                port=0, metrics_port=0, operators=(to_checksum_address(account(OPERATOR).address),)
            )
            backend = MarkovBackend(name=MODEL)
            stack.push_async_callback(backend.close)
            agent = await stack.enter_async_context(
                serving(
                    post,
                    backend,
                    settings,
                    log,
                    folder=post.folder(tmp_path),
                    tokens_per_s={MODEL: 1e4},
                )
            )
            await register_worker(
                world.sender(OWNER),
                key,
                [MODEL],
                2,
                1024,
                None,
                world.deployment.contracts,
                endpoint=agent.url,
            )
        yield


async def settled_once(connection: Connection, number: int) -> None:
    """Each of so many requests is settled, and was in one transaction."""
    async with asyncio.timeout(60):
        while await connection.fetchval("SELECT count(*) FROM node.tx_item WHERE outcome IS NULL"):
            await asyncio.sleep(0.1)
    rows = await connection.fetch(
        """
        SELECT r.status, (SELECT array_agg(i.outcome) FROM node.tx_item i
                          WHERE i.request_id = r.id) AS outcomes
        FROM chain.request r ORDER BY r.id
        """
    )
    assert [(row["status"], row["outcomes"]) for row in rows] == [
        ("fulfilled", ["settled"])
    ] * number


async def test_roles_in_processes_of_their_own_settle_each_request_once(
    world: System, empty_database: str, agents: None
) -> None:
    cluster = Cluster(world, empty_database)
    for name, roles in (
        ("index", "index"),
        ("schedule", "schedule"),
        ("dispatch-1", "dispatch"),
        ("dispatch-2", "dispatch"),
        ("settle", "settle"),
        ("api", "api"),
    ):
        cluster.start(name, roles)
    api = cluster.processes["api"]
    await cluster.until_roles("api", "index", "schedule", "dispatch", "dispatch", "settle")
    for node in cluster.processes.values():
        await node.until_ready()
    asked = [await world.ask(f"number {number}") for number in range(5)]
    for one in asked:
        await api.until_state(one.request_id, "settled")
    connection = await connect(empty_database)
    await settled_once(connection, 5)
    rows = await connection.fetch("SELECT DISTINCT dispatcher FROM node.lease")
    assert all(row["dispatcher"] for row in rows)
    await connection.close()

    _, status = await api.get("/v1/status")
    assert (status["role"], status["index"]["lag_blocks"]) == ("reader", 0)
    assert status["settlement"]["confirmed"] > 0
    _, pool = await api.get("/v1/workers")
    assert [(one["in_pool"], one["reason"]) for one in pool["workers"]] == [(True, "")] * 2
    # Requests are the matter of the one role that answers for them.
    assert (await cluster.processes["index"].get("/v1/requests"))[0] == 404
    for node in cluster.processes.values():
        assert node.stop() == 0
