"""A daemon whose workers pull: two agents that listen nowhere, and one is killed in mid-job."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from indexer.database import connect
from inferd.chain.register import register_worker
from inferd.protocol.worker_api import PULL
from tests.forks import Forked
from tests.harness import MODEL, OWNER, POSTER, WORKERS, NodeProcess, System, account, address
from tests.workers.pull import slow_markov
from tests.workers.pull.redis_server import PASSWORD, RedisServer, redis_server

_REQUESTS = 6
_SETTINGS = """
rpc_urls = ["{rpc_url}"]
deployment_file = "{folder}/deployment.json"
data_dir = "{place}"
[pull]
url_file = "{place}/broker.url"
[agent]
metrics_port = 0
operators = ["{operator}"]
[[workers]]
name = "home"
backend = "markov"
model = "{model}"
slots = 2
memory_mb = 1024
endpoint = "pull:"
key = {{ dev_account = {number} }}
owner = {{ dev_account = {owner} }}
"""


def an_agents_folder(world: System, redis: RedisServer, number: int) -> Path:
    place = world.folder / f"agent-{number}"
    place.mkdir()
    (place / "broker.url").write_text(redis.admit(address(number)))
    (place / "inferd.toml").write_text(
        _SETTINGS.format(
            rpc_url=world.rpc_url,
            folder=world.folder,
            place=place,
            operator=account(POSTER).address,
            model=MODEL,
            number=number,
            owner=OWNER,
        )
    )
    return place


@contextlib.contextmanager
def an_agent(place: Path) -> Iterator[Forked]:
    process = Forked(
        ["--config", str(place / "inferd.toml"), "worker"],
        place / "agent.log",
        {**os.environ, "COMPUTED": str(place / "computed")},
        slow_markov.slow_down,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def until_in_pool(node: NodeProcess, number: int) -> None:
    async def check() -> bool:
        status, body = await node.get(f"/v1/workers/{account(number).address}")
        return status == 200 and body["in_pool"] is True

    await node.until(check, 90, f"with worker {number}")


async def test_one_of_two_is_killed_and_each_request_is_settled_once(
    world: System, empty_database: str, tmp_path: Path
) -> None:
    with redis_server(tmp_path / "redis") as redis, contextlib.ExitStack() as stack:
        (tmp_path / "broker.url").write_text(redis.operator_url())
        node = world.start_node(
            "node",
            empty_database,
            models=(),
            forked=True,
            sections=f'[pull]\nurl_file = "{tmp_path}/broker.url"\n[pool]\nheartbeat_s = 0.5',
        )
        places = [an_agents_folder(world, redis, number) for number in WORKERS]
        for number in WORKERS:
            await register_worker(
                world.sender(OWNER),
                account(number),
                [MODEL],
                2,
                1024,
                None,
                world.deployment.contracts,
                endpoint=PULL,
            )
        doomed = stack.enter_context(an_agent(places[0]))
        await until_in_pool(node, WORKERS[0])
        for number in range(_REQUESTS):
            await world.ask(f"request {number}")

        async def computing() -> bool:
            # The first two lines are the check at the start.
            computed = places[0] / "computed"
            return computed.exists() and computed.read_text().count("\n") > 2

        await node.until(computing, 90, "asking the first worker")
        doomed.kill()
        doomed.wait()
        for place in places:
            stack.enter_context(an_agent(place))
        await until_in_pool(node, WORKERS[1])
        for number in range(1, _REQUESTS + 1):
            await node.until_state(number, "settled", timeout_s=120)
        shown = (await node.get(f"/v1/workers/{account(WORKERS[0]).address}"))[1]
        assert shown["endpoint"] == "pull:"
        assert [model["lies"] for model in shown["models"]] == [0]
        assert node.stop(30) == 0
    connection = await connect(empty_database)
    # Both workers may have answered one of them, and one answer is paid.
    answered = await connection.fetchval("SELECT count(DISTINCT request_id) FROM node.result")
    paid = await connection.fetchval("SELECT sum(results) FROM chain.payment WHERE role = 'worker'")
    await connection.close()
    assert answered == paid == _REQUESTS
    for log in (node.log, *(place / "agent.log" for place in places)):
        assert PASSWORD not in log.read_text(errors="replace")
