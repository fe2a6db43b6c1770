"""Requests whose inputs are elsewhere: named by URI, fetched, computed, settled."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from inferd.chain.requester import submit
from inferd.inputs.source import input_of
from inferd.protocol.request import InputKind, RequestParams, model_id
from tests.harness import FEE_WEI, MODEL, System

_CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
PROMPT = b"the road goes ever on"


@pytest.fixture
async def shelf() -> AsyncIterator[str]:
    """URL of a server that has the prompt, as itself and as a gateway of IPFS."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=PROMPT)

    app = web.Application()
    app.router.add_get("/prompt", answer)
    app.router.add_get(f"/ipfs/{_CID}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_inputs_named_by_uri_are_settled(
    world: System, empty_database: str, shelf: str
) -> None:
    node = world.start_node(
        "node", empty_database, sections=f'[inputs]\nipfs_gateway = "{shelf}"\n'
    )
    await node.until_ready()
    inline = (await world.ask(PROMPT.decode())).request_id
    encoded = base64.b64encode(PROMPT).decode()
    uris = (f"{shelf}/prompt", f"ipfs://{_CID}", f"data:;base64,{encoded}")
    asked = [await _ask(world, uri) for uri in uris]
    for request_id in (inline, *asked):
        await node.until_state(request_id, "settled")
    for request_id in asked:
        _, result = await node.get(f"/v1/results/{request_id}")
        assert base64.b64decode(result["output_base64"])
        assert result["tx_hash"]
    away = await _ask(world, f"{shelf}/nowhere")
    await node.until_state(away, "waiting")
    _, told = await node.get(f"/v1/requests/{away}/why")
    assert told["reason"] == "input_awaited"
    assert node.stop() == 0


async def _ask(world: System, uri: str) -> int:
    head = await world.rpc.header("latest")
    assert head is not None
    params = RequestParams(
        model_id(MODEL),
        8,
        head.timestamp_s + 600,
        0,
        input_of(PROMPT, uri),
        input_kind=InputKind.URI,
    )
    submitted = await submit(world.requester, world.deployment.contracts, params, FEE_WEI)
    return submitted.request_id
