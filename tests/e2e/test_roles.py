"""A node that is split over processes: each role in one of its own, two that dispatch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address

from indexer.database import Connection, connect
from inferd.chain.register import register_worker
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.backends.opening import Stock
from inferd.workers.job import Completion, Job
from inferd.workers.service.agent import Post, opened_log, serving
from inferd.workers.service.settings import AgentSettings
from tests.harness import MODEL, OWNER, POSTER, WORKERS, NodeProcess, System, account

OPERATOR = 8
PATIENCE_S = 240.0
"""Nine processes start at about the same time, maybe on two cores that have other work."""
SETTINGS = {
    "models": (),
    "sections": f"[pool]\noperator = {{ dev_account = {OPERATOR} }}\nheartbeat_s = 0.3",
}


GONE = "abandoned: the process that dispatched it ended"
COMPUTED_BY = "SELECT dispatcher FROM node.lease WHERE state = 'active' AND dispatcher IS NOT NULL"
SENT = "SELECT id FROM node.tx_intent WHERE state IN ('signed', 'broadcast')"


class Slow(MarkovBackend):
    """Takes as long as the test says."""

    pause_s = 0.0

    async def run(self, job: Job) -> Completion:
        await asyncio.sleep(self.pause_s)
        return await super().run(job)


async def until_value(connection: Connection, query: str) -> Any:
    """The first value that the query gives."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await connection.fetchval(query)) is None:
            await asyncio.sleep(0.02)
    return found


class Cluster:
    """Processes by name, on one database."""

    def __init__(self, world: System, database: str) -> None:
        self.world, self.database = world, database
        self.processes: dict[str, NodeProcess] = {}

    def start(self, name: str, roles: str) -> NodeProcess:
        node = self.world.start_node(name, self.database, roles=roles, forked=True, **SETTINGS)
        self.processes[name] = node
        return node

    async def until_roles(self, name: str, *roles: str) -> None:
        """Until that process sees a living one for each of these."""
        node = self.processes[name]

        async def check() -> bool:
            status, body = await node.get("/v1/status")
            had = [one["roles"] for one in body["processes"]] if status == 200 else []
            return sorted(role for some in had for role in some) == sorted(roles)

        try:
            await node.until(check, PATIENCE_S, f"beside {roles}")
        except AssertionError as error:
            for other in self.processes.values():
                error.add_note(f"{other.data_dir.name}: {other.log_text()[-1500:]}")
            raise

    async def process_of(self, identity: str) -> NodeProcess:
        """The one that the others know by that id."""
        connection = await connect(self.database)
        holder = await connection.fetchval(
            "SELECT holder FROM node.process WHERE id = $1", identity
        )
        await connection.close()
        pid = int(holder.rpartition(":")[2])
        return next(node for node in self.processes.values() if node.process.pid == pid)


@pytest.fixture
async def agents(world: System, tmp_path: Path) -> AsyncIterator[Slow]:
    """Both registered workers listen as agents of their own, over one back end."""
    async with AsyncExitStack() as stack:
        backend = Slow(name=MODEL)
        stack.push_async_callback(backend.close)
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
            agent = await stack.enter_async_context(
                serving(
                    post,
                    Stock((backend,)),
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
        yield backend


async def settled_once(connection: Connection, number: int) -> None:
    """Each of so many requests is settled, and was in one transaction."""
    async with asyncio.timeout(PATIENCE_S):
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


@pytest.mark.timeout(900)
async def test_roles_in_processes_of_their_own_settle_each_request_once(
    world: System, empty_database: str, agents: Slow
) -> None:
    cluster = Cluster(world, empty_database)
    for role in ("index", "schedule", "settle", "api"):
        cluster.start(role, role)
    cluster.start("dispatch-1", "dispatch")
    cluster.start("dispatch-2", "dispatch")
    api = cluster.processes["api"]
    await cluster.until_roles("api", "index", "schedule", "dispatch", "dispatch", "settle")
    for node in cluster.processes.values():
        await node.until_ready(PATIENCE_S)
    for number in range(2):
        await world.ask(f"number {number}")
    for number in (1, 2):
        await api.until_state(number, "settled", timeout_s=PATIENCE_S)

    _, status = await api.get("/v1/status")
    assert (status["role"], status["problems"], status["warnings"]) == ("reader", [], [])
    assert status["index"]["head"] > 0
    (poster,) = status["settlement"]["posters"]
    assert poster["address"] == account(POSTER).address
    _, pool = await api.get("/v1/workers")
    assert [(one["in_pool"], one["reason"]) for one in pool["workers"]] == [(True, "")] * 2
    # Requests are the matter of the one role that answers for them.
    assert (await cluster.processes["index"].get("/v1/requests"))[0] == 404

    # One that waits for two roles, and one for all.
    standby = cluster.start("standby", "schedule,settle")
    whole = world.start_node("whole", empty_database, forked=True, **SETTINGS)
    for node in (standby, whole):
        await node.until_not_ready("standby", PATIENCE_S)
    connection = await connect(empty_database)

    # In mid-computation: the other one asks the same of the worker, and gets what it computed.
    agents.pause_s = 2.0
    for number in range(2, 5):
        await world.ask(f"number {number}")
    dying = await cluster.process_of(await until_value(connection, COMPUTED_BY))
    dying.kill()
    agents.pause_s = 0.0
    for number in (3, 4, 5):
        await api.until_state(number, "settled", timeout_s=PATIENCE_S)
    assert dying in (cluster.processes["dispatch-1"], cluster.processes["dispatch-2"])
    ended = "SELECT count(*) FROM node.lease WHERE failure = $1"
    assert await connection.fetchval(ended, GONE) > 0
    assert await connection.fetchval("SELECT max(attempt) FROM node.lease") == 1

    # With a transaction under way, and with requests that nobody has decided on.
    await world.ask("one to post")
    await until_value(connection, SENT)
    cluster.processes["settle"].kill()
    await world.ask("one to decide on")
    cluster.processes["schedule"].kill()
    await world.ask("one to be seen")
    await cluster.until_roles("api", "index", "schedule", "dispatch", "settle")
    for number in (6, 7, 8):
        await api.until_state(number, "settled", timeout_s=PATIENCE_S)
    await settled_once(connection, 8)

    # Rolling back to one daemon: it begins when the last of them has ended.
    for name in ("index", "standby"):
        assert cluster.processes[name].stop() == 0
    await whole.until_not_ready("standby", PATIENCE_S)
    dispatchers = [cluster.processes["dispatch-1"], cluster.processes["dispatch-2"]]
    dispatchers.remove(dying)
    assert dispatchers[0].stop() == 0
    await whole.until_ready(PATIENCE_S)
    await world.ask("one more")
    await whole.until_state(9, "settled", timeout_s=PATIENCE_S)
    await settled_once(connection, 9)
    await connection.close()
    assert whole.stop() == 0
    assert api.stop() == 0
