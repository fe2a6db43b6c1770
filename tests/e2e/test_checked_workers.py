"""A daemon without workers of its own, honest strangers, and liars whose signatures are good."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address

from indexer.database import connect
from indexer.types import Address
from inferd.chain.register import register_worker
from inferd.protocol.typed_data import domain_separator, group_digest, recover
from inferd.protocol.worker_api_signing import worker_domain
from tests.e2e.test_hostile_workers import until_all_in
from tests.e2e.test_remote_workers import run
from tests.harness import MODEL, NodeProcess, System, account
from tests.workers.remote.scripted import ScriptedWorker, listening, signed

_LIAR, _GOOD, _OTHER, _NEW_LIAR = 10, 11, 12, 13
_OWNERS = {_LIAR: 14, _GOOD: 15, _OTHER: 16, _NEW_LIAR: 17}
_REQUESTS = 6
_SECTIONS = f"""
[pool]
heartbeat_s = 0.5
stale_after_s = 30
[checks]
spot_ppm = 1_000_000
[[checks.models]]
name = "{MODEL}"
deterministic = true
"""


async def hired(
    stack: AsyncExitStack, world: System, index: int, lie: bytes | None = None
) -> ScriptedWorker:
    """Each has another owner."""
    contracts = world.deployment.contracts
    domain = domain_separator(contracts.chain_id, contracts.results)
    worker = ScriptedWorker(
        PrivateKey(bytes(account(index).key)),
        slots=2,
        model=MODEL,
        results_domain=domain,
        api_domain=worker_domain(contracts.chain_id, contracts.results),
    )
    if lie is not None:
        worker.mangle = lambda job, done: signed(job, lie, worker.key, domain)
    await stack.enter_async_context(listening(worker))
    await register_worker(
        world.sender(_OWNERS[index]),
        account(index),
        [MODEL],
        2,
        1024,
        None,
        contracts,
        endpoint=worker.url,
    )
    return worker


async def until_suspended(node: NodeProcess, worker: ScriptedWorker) -> Any:
    path = f"/v1/workers/0x{worker.address.hex()}"

    async def check() -> bool:
        status, body = await node.get(path)
        return status == 200 and body["suspended"] is not None and not body["in_pool"]

    await node.until(check, 90, "with the liar suspended")
    return (await node.get(path))[1]


def verified(body: Any, worker: ScriptedWorker) -> Any:
    """The newest record of the API or the command, its signature checked from it alone."""
    record = body["records"][0]
    domain = domain_separator(
        body["domain"]["chain_id"], Address(bytes.fromhex(body["domain"]["verifying_contract"][2:]))
    )
    accused = record["accused"]
    items = bytes.fromhex(accused["items"][2:])
    signature = bytes.fromhex(accused["signature"][2:])
    assert recover(group_digest(domain, items), signature) == worker.address  # type: ignore[arg-type]
    return record


async def test_liars_are_caught_by_another_workers_answer_and_by_a_known_one(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database, models=(), sections=_SECTIONS)
    async with AsyncExitStack() as stack:
        liar = await hired(stack, world, _LIAR, b"a lie")
        good = await hired(stack, world, _GOOD)
        other = await hired(stack, world, _OTHER)
        workers = (_LIAR, _GOOD, _OTHER)
        await until_all_in(node, {to_checksum_address(account(index).address) for index in workers})
        asked = [await world.ask(f"prompt {number}") for number in range(_REQUESTS)]
        for one in asked:
            await node.until_state(one.request_id, "settled", timeout_s=150)
        shown = await until_suspended(node, liar)
        assert shown["suspended_by"] == "inferd"
        assert shown["disagreements"][0]["kind"] == "spot"
        assert shown["checks"][0]["failed"] >= 1
        assert shown["models"][0]["lies"] >= 1
        _, body = await node.get(f"/v1/workers/0x{liar.address.hex()}/evidence")
        record = verified(body, liar)
        assert (record["kind"], record["decided"]) == ("spot", True)
        for honest in (good, other):
            _, told = await node.get(f"/v1/workers/0x{honest.address.hex()}")
            assert told["suspended"] is None
            assert [check["failed"] for check in told["checks"]] == [0]

        new = await hired(stack, world, _NEW_LIAR, b"another lie")
        question = ("--model", MODEL, "--prompt", "what is right?", "--max-tokens", "8")
        answer = ("--expect", "answer to what is right?")
        code, _, err = await run(node, "canary", "add", *question, *answer)
        assert code == 0, err
        shown = await until_suspended(node, new)
        assert shown["disagreements"][0]["kind"] == "canary"
        code, out, err = await run(
            node, "workers", "evidence", to_checksum_address(new.address), "--json"
        )
        assert code == 0, err
        record = verified(json.loads(out), new)
        assert (record["kind"], record["on_chain"]) == ("canary", False)
        code, out, _ = await run(node, "workers", "show", to_checksum_address(new.address))
        assert "(canary): 0 passed, 1 failed" in out
        assert 'inferd_checks_total{kind="canary",outcome="failed"} 1.0' in await node.get_text(
            "/metrics"
        )
        assert node.stop() == 0
    connection = await connect(empty_database)
    paid = await connection.fetch("SELECT DISTINCT worker FROM chain.payment WHERE role = 'worker'")
    assert {row["worker"] for row in paid} <= {good.address, other.address}
    settled = await connection.fetchval(
        "SELECT count(*) FROM chain.request WHERE status = 'fulfilled'"
    )
    assert settled == _REQUESTS
    await connection.close()
