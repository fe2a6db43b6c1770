"""A daemon whose workers, all elsewhere, lie, hang, break off, are busy or slow; and a good one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from aiohttp import web
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address

from indexer.database import connect
from inferd.chain.register import register_worker
from inferd.protocol.typed_data import domain_separator
from inferd.protocol.worker_api import JobDone, JobId
from inferd.protocol.worker_api_signing import worker_domain
from tests.harness import MODEL, OWNER, NodeProcess, System, account
from tests.workers.remote.scripted import Fault, ScriptedWorker, listening

_LIAR, _HANGS, _BREAKS, _BUSY, _GOOD = 5, 6, 7, 8, 9
_REQUESTS = 12


def lies(job: JobId, done: JobDone) -> JobDone:
    """Another output than it signed."""
    return msgspec.structs.replace(done, output=b"something else")


async def hangs(request: web.Request) -> web.StreamResponse | None:
    await asyncio.Event().wait()
    return None


async def breaks(request: web.Request) -> web.StreamResponse | None:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"state": "done", "digest": "0x')
    assert request.transport is not None
    request.transport.abort()
    return response


async def busy(request: web.Request) -> web.StreamResponse | None:
    return web.json_response(
        {"code": "busy", "message": ""}, status=503, headers={"Retry-After": "1"}
    )


class Always(list[Fault]):
    """The same for every call."""

    def pop(self, _: Any = 0) -> Fault:
        return self[0]


async def hired(
    stack: AsyncExitStack, world: System, index: int, spoil: Callable[[ScriptedWorker], None]
) -> ScriptedWorker:
    contracts = world.deployment.contracts
    worker = ScriptedWorker(
        PrivateKey(bytes(account(index).key)),
        slots=2,
        model=MODEL,
        results_domain=domain_separator(contracts.chain_id, contracts.results),
        api_domain=worker_domain(contracts.chain_id, contracts.results),
    )
    spoil(worker)
    await stack.enter_async_context(listening(worker))
    await register_worker(
        world.sender(OWNER), account(index), [MODEL], 2, 1024, None, contracts, endpoint=worker.url
    )
    return worker


async def until_all_in(node: NodeProcess, addresses: set[str]) -> None:
    async def check() -> bool:
        status, body = await node.get("/v1/workers")
        if status != 200:
            return False
        given = {one["address"] for one in body["workers"] if one["in_pool"]}
        return addresses <= given

    await node.until(check, 60, "with all workers in the pool")


async def test_every_request_is_settled_once_by_the_good_one(
    world: System, empty_database: str
) -> None:
    node = world.start_node(
        "node", empty_database, models=(), sections="[pool]\nheartbeat_s = 0.5\nstale_after_s = 30"
    )
    async with AsyncExitStack() as stack:
        liar = await hired(stack, world, _LIAR, lambda one: setattr(one, "mangle", lies))
        hung = await hired(
            stack, world, _HANGS, lambda one: setattr(one, "faults", Always([hangs]))
        )
        for index, fault in ((_BREAKS, breaks), (_BUSY, busy)):
            faults = Always([fault])
            await hired(
                stack, world, index, lambda one, faults=faults: setattr(one, "faults", faults)
            )
        good = await hired(stack, world, _GOOD, lambda one: None)
        await until_all_in(
            node,
            {
                to_checksum_address(account(index).address)
                for index in (_LIAR, _HANGS, _BREAKS, _BUSY, _GOOD)
            },
        )
        asked = [await world.ask(f"prompt {number}") for number in range(_REQUESTS)]
        for one in asked:
            await node.until_state(one.request_id, "settled", timeout_s=150)
        _, body = await node.get(f"/v1/workers/0x{liar.address.hex()}")
        assert body["models"][0]["lies"] > 0
        assert body["models"][0]["good"] == 0
        assert any("the digest is not the output's" in one["failure"] for one in body["failures"])
        _, body = await node.get(f"/v1/workers/{account(_BUSY).address}")
        (model,) = body["models"]
        assert model["failed"] + model["timeouts"] + model["lies"] == 0, "busy costs nothing"
        assert node.stop() == 0
    connection = await connect(empty_database)
    paid = await connection.fetch(
        "SELECT worker, sum(results)::int AS results FROM chain.payment WHERE role = 'worker'"
        " GROUP BY worker"
    )
    assert [(row["worker"], row["results"]) for row in paid] == [(good.address, _REQUESTS)]
    settled = await connection.fetchval(
        "SELECT count(*) FROM chain.request WHERE status = 'fulfilled'"
    )
    assert settled == _REQUESTS
    assert await connection.fetchval("SELECT count(DISTINCT worker) FROM node.result") == 1
    await connection.close()
    assert hung.computed == []
