"""The main job: asked on chain, answered on chain, paid once."""

from __future__ import annotations

import asyncio
import base64
import json

from eth_utils.crypto import keccak

from inferd.chain.anvil import free_port
from inferd.chain.requester import check_result
from tests.harness import FEE_WEI, OWNER, POSTER, NodeProcess, System


async def test_answers_depend_on_the_prompt_and_are_settled_and_paid(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    first = await world.ask("the quick brown fox")
    second = await world.ask("the quick brown fix")
    outputs = []
    for asked in (first, second):
        view = await node.until_state(asked.request_id, "settled")
        _, result = await node.get(f"/v1/results/{asked.request_id}")
        output = base64.b64decode(result["output_base64"])
        checked = await check_result(
            world.rpc, world.deployment.contracts, asked.request_id, output
        )
        assert view["digest"] == "0x" + keccak(output).hex() == "0x" + checked.digest.hex()
        assert view["worker"] == "0x" + checked.worker.hex()
        outputs.append(output)
    assert outputs[0] != outputs[1]
    poster_wei, owner_wei = await world.credit_wei(POSTER), await world.credit_wei(OWNER)
    assert poster_wei + owner_wei == 2 * FEE_WEI
    assert poster_wei == 2 * FEE_WEI * 2000 // 10_000
    assert node.stop() == 0


async def test_one_trace_id_from_the_event_to_the_transaction(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    asked = await world.ask("follow me")
    view = await node.until_state(asked.request_id, "settled")
    await node.until(lambda: _has(node, "mined"), 30, "logged as mined")
    assert node.stop() == 0

    trace_id = asked.commitment.hex()[:16]
    for event in ("request_indexed", "decided", "job_started", "result_stored"):
        assert [line["trace_id"] for line in node.events(event)] == [trace_id], event
    for event in ("sent", "mined"):
        line = node.events(event)[0]
        assert line["trace_ids"] == [trace_id]
        assert line["tx_hash"] == view["tx_hash"]


async def _has(node: NodeProcess, event: str) -> bool:
    return bool(node.events(event))


async def test_endpoints_are_shown_and_counted(world: System, empty_database: str) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    node = world.start_node(
        "node",
        empty_database,
        environment={
            "INFERD_RPC_URLS": json.dumps([dead, world.rpc_url]),
            "INFERD_RPC_WS_URLS": json.dumps([world.rpc_url.replace("http", "ws")]),
        },
    )
    await node.until_ready()
    asked = await world.ask("through the second one")
    await node.until_state(asked.request_id, "settled")
    _, status = await node.get("/v1/status")
    first, second, heads = status["index"]["endpoints"]
    assert (first["endpoint"], first["state"]) == (dead, "resting")
    assert "does not answer" in first["reason"]
    assert (second["endpoint"], second["state"]) == (world.rpc_url, "in_use")
    assert second["latency_ms"] > 0
    assert heads["state"] == "live"
    assert status["index"]["range_blocks"] > 0
    text = await node.get_text("/metrics")
    labels = f'endpoint="{world.rpc_url}",method="eth_getLogs"'
    assert f'inferd_rpc_calls_total{{{labels},outcome="ok"}}' in text
    assert f"inferd_rpc_seconds_count{{{labels}}}" in text
    assert f'inferd_rpc_calls_total{{endpoint="{dead}",method="eth_chainId",' in text
    assert f'inferd_rpc_endpoint_up{{endpoint="{dead}"}} 0.0' in text
    assert f'inferd_rpc_endpoint_up{{endpoint="{world.rpc_url}"}} 1.0' in text
    assert "inferd_heads_live 1.0" in text
    assert 'outcome="unreachable"' in text
    assert node.stop() == 0


async def test_metrics_count_what_happened(world: System, empty_database: str) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    asked = await world.ask("count me")
    await node.until_state(asked.request_id, "settled")
    await asyncio.sleep(1)
    text = await node.get_text("/metrics")
    for line in (
        "inferd_ready 1.0",
        "inferd_leader 1.0",
        'inferd_decisions_total{reason="assigned"} 1.0',
        "inferd_quarantined_logs 0.0",
    ):
        assert line in text.splitlines()
    assert node.stop() == 0
