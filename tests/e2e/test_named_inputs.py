"""Requests whose inputs are elsewhere, or for the node's eyes only: computed and settled."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web

from indexer.errors import ExitCode
from inferd.chain.requester import read_request, submit
from inferd.inputs.source import input_of
from inferd.protocol.private import is_answer
from inferd.protocol.request import InputKind, RequestParams, model_id
from tests.e2e.test_commands import run
from tests.harness import DEPLOYER, FEE_WEI, MODEL, POSTER, NodeProcess, System, account

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


async def test_inputs_that_are_elsewhere_or_private_are_settled(
    world: System, empty_database: str, shelf: str
) -> None:
    gateway = f'[inputs]\nipfs_gateway = "{shelf}"\n'
    node = world.start_node("node", empty_database, sections=gateway)
    await node.until_ready()
    await _private_inputs_are_answered_in_private(world, node)
    await _named_inputs_are_fetched(world, node, shelf)
    assert node.stop() == 0


async def _private_inputs_are_answered_in_private(world: System, node: NodeProcess) -> None:
    poster = account(POSTER).address
    secret = "nobody else is to read these words"
    ask = ("submit", "--model", MODEL, "--fee", "0.01ether", "--deadline", "10m", "--prompt", "-")
    private = (*ask, "--private", "--operator", poster)
    code, answer, err = await run(node, *private, "--wait", stdin=secret)
    assert code == ExitCode.OK, err
    assert answer
    # What the toy model says depends on the input alone.
    public = await world.ask(secret, max_tokens=0)
    await node.until_state(public.request_id, "settled")
    _, said = await node.get(f"/v1/results/{public.request_id}")
    assert base64.b64decode(said["output_base64"]) == answer.encode()
    code, out, _ = await run(node, "result", "1", "--json")
    told = json.loads(out)
    assert (told["private"], base64.b64decode(told["output_base64"])) == (True, answer.encode())
    _, stored = await node.get("/v1/results/1")
    assert is_answer(base64.b64decode(stored["output_base64"]))
    assert not [name for name in stored["manifest"] if name.endswith("_tokens")]
    code, out, err = await run(node, "result", "1", requester=DEPLOYER)
    assert (code, out) == (ExitCode.CONFIGURATION, "")
    assert "not to" in err

    # A stranger asks with a copy of the ciphertext.
    request = await read_request(world.rpc, world.deployment.contracts, 1)
    head = await world.rpc.header("latest")
    assert head is not None
    copied = replace(request.params, deadline_s=head.timestamp_s + 600)
    submitted = await submit(world.sender(DEPLOYER), world.deployment.contracts, copied, FEE_WEI)
    await node.until_state(submitted.request_id, "refused")
    _, told = await node.get(f"/v1/requests/{submitted.request_id}/why")
    assert told["reason"] == "bad_input"
    assert secret not in node.log_text()


async def _named_inputs_are_fetched(world: System, node: NodeProcess, shelf: str) -> None:
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
