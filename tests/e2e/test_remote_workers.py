"""A daemon without workers of its own, and an agent on another machine, as far as it can tell."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address

from indexer.database import connect
from indexer.errors import ExitCode
from inferd.chain.register import register_worker
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.backends.opening import Stock
from inferd.workers.key_files import load_keys
from inferd.workers.sealing import Sealing
from inferd.workers.service.agent import Post, opened_log, serving
from inferd.workers.service.settings import AgentSettings
from tests.e2e.test_commands import run as ask_with_a_key
from tests.harness import MODEL, OWNER, POSTER, WORKERS, NodeProcess, System, account
from tests.workers.support import a_job

WORKER = account(WORKERS[0])
SECOND_MODEL = "second-model"
SECRET = "nobody else is to read these words"


async def run(node: NodeProcess, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "inferd", "--config", str(node.data_dir / "inferd.toml")),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"INFERD_NODE_URL": node.url() or "", "PATH": ""},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def an_agent(stack: AsyncExitStack, world: System, folder: Path, port: int = 0) -> str:
    """Its URL."""
    post = Post("far", PrivateKey(bytes(WORKER.key)), world.deployment.contracts, 2, 1024)
    log = opened_log(post, folder)
    stack.push_async_callback(log.close)
    settings = AgentSettings(
        port=port, metrics_port=0, operators=(to_checksum_address(account(POSTER).address),)
    )
    backends = tuple(MarkovBackend(name=name) for name in (MODEL, SECOND_MODEL))
    for backend in backends:
        stack.push_async_callback(backend.close)
    contracts = world.deployment.contracts
    keys = load_keys((), post.folder(folder) / "encryption.key")
    agent = await stack.enter_async_context(
        serving(
            post,
            Stock(backends),
            settings,
            log,
            folder=post.folder(folder),
            tokens_per_s={MODEL: 1e4},
            sealing=Sealing(keys, contracts.chain_id, contracts.requests),
        )
    )
    return agent.url


async def until_worker(node: NodeProcess, in_pool: bool, reason: str = "") -> Any:
    async def check() -> bool:
        status, body = await node.get(f"/v1/workers/{WORKER.address}")
        return status == 200 and body["in_pool"] is in_pool and reason in body["reason"]

    await node.until(check, 40, f"with the worker in={in_pool} {reason}")
    return (await node.get(f"/v1/workers/{WORKER.address}"))[1]


async def _private_answers_of_its_second_model(node: NodeProcess, database_url: str) -> None:
    """Asked in private of a worker that has its own key, through a node that has another."""
    ask = ("submit", "--model", SECOND_MODEL, "--fee", "0.01ether", "--deadline", "10m")
    asked = (*ask, "--prompt", "-", "--private", "--worker", WORKER.address, "--wait")
    code, answer, err = await ask_with_a_key(node, *asked, stdin=SECRET)
    assert code == ExitCode.OK, err
    markov = MarkovBackend(name=SECOND_MODEL)
    plain = await markov.run(a_job(text=SECRET.encode()))
    await markov.close()
    assert answer.encode() == plain.output
    # To the node's own key: only workers inside it have that, and it has none.
    code, out, err = await ask_with_a_key(
        node, *ask, "--prompt", SECRET, "--private", "--anyway", "--json"
    )
    assert code == ExitCode.OK, err
    number = json.loads(out)["id"]
    await node.until_state(number, "refused")
    _, told = await node.get(f"/v1/requests/{number}/why")
    assert told["reason"] == "model_unknown"
    assert "holds this key" in told["sentence"]
    assert told["sentence"].endswith(f"serves model {SECOND_MODEL}.")
    connection = await connect(database_url)
    tables = await connection.fetch(
        "SELECT format('%I.%I', table_schema, table_name) AS name FROM information_schema.tables"
        " WHERE table_schema IN ('chain', 'node')"
    )
    for table in tables:
        for row in await connection.fetch(f"SELECT t::text AS text FROM {table['name']} t"):
            assert SECRET not in row["text"]
            assert SECRET.encode().hex() not in row["text"]
            assert plain.output.hex() not in row["text"]
    await connection.close()
    assert SECRET not in node.log_text()


async def test_requests_are_settled_by_a_worker_of_another_machine(
    world: System, empty_database: str, tmp_path: Path
) -> None:
    node = world.start_node(
        "node",
        empty_database,
        models=(),
        sections="[pool]\nheartbeat_s = 0.2\nstale_after_s = 5",
    )
    asked = await world.ask("before there is anybody")
    async with AsyncExitStack() as stack:
        url = await an_agent(stack, world, tmp_path)
        await register_worker(
            world.sender(OWNER),
            WORKER,
            [MODEL, SECOND_MODEL],
            2,
            1024,
            None,
            world.deployment.contracts,
            endpoint=url,
        )
        await until_worker(node, True)
        await node.until_ready()
        await node.until_state(asked.request_id, "settled")
        for number in range(3):
            await world.ask(f"again {number}")
        for number in range(1, 4):
            await node.until_state(asked.request_id + number, "settled")
        shown = await until_worker(node, True)
        (model,) = [one for one in shown["models"] if one["model"] == MODEL]
        assert (model["model"], model["good"], model["lies"]) == (MODEL, 4, 0)
        assert shown["heartbeat_age_s"] < 5
        assert abs(shown["skew_ms"]) <= shown["skew_error_ms"] + 5

        await _private_answers_of_its_second_model(node, empty_database)
        code, out, err = await run(node, "workers")
        assert code == 0, err
        assert "yes" in out
        code, out, err = await run(node, "workers", "show", WORKER.address)
        assert code == 0, err
        assert "gets work" in out
        assert "4 good, 0 late, 0 failed" in out
        assert "private inputs to key 0x" in out
        code, out, _ = await run(node, "workers", "--json")
        assert WORKER.address in {one["address"] for one in json.loads(out)["workers"]}

        code, _, err = await run(node, "workers", "show", "0x" + "12" * 20)
        assert code == ExitCode.CONFIGURATION
        assert "has no worker" in err

        code, _, err = await run(node, "workers", "suspend", WORKER.address, "--reason", "test")
        assert code == 0, err
        await until_worker(node, False, "it is suspended: test")
        code, _, err = await run(node, "workers", "resume", WORKER.address)
        assert code == 0, err
        await until_worker(node, True)

        config = node.data_dir / "inferd.toml"
        text = config.read_text()
        config.write_text(text.replace("[pool]", f"[pool]\ndeny = ['{WORKER.address}']"))
        node.process.send_signal(signal.SIGHUP)
        await until_worker(node, False, "`pool.deny` names it")
        config.write_text(text)
        node.process.send_signal(signal.SIGHUP)
        await until_worker(node, True)
    # The agent is gone: what is asked meanwhile waits for it.
    await until_worker(node, False, "its heartbeats have stopped")
    waiting = await world.ask("while it is away")
    await node.until_state(waiting.request_id, "waiting")
    async with AsyncExitStack() as stack:
        await an_agent(stack, world, tmp_path, port=int(url.rpartition(":")[2]))
        await node.until_state(waiting.request_id, "settled")
        assert node.stop() == 0
    connection = await connect(empty_database)
    workers = await connection.fetch("SELECT DISTINCT worker FROM node.result")
    await connection.close()
    assert ["0x" + row["worker"].hex() for row in workers] == [WORKER.address.lower()]
