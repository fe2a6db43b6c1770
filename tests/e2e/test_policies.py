"""Policies and limits of a real daemon: set, shown, compared, reread, and outlived by."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from indexer.database import Connection, connect
from indexer.errors import ExitCode
from tests.harness import NodeProcess, System
from tests.policies.support import install


async def run(
    node: NodeProcess, *arguments: str, environment: dict[str, str] | None = None
) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "inferd", "--config", str(node.data_dir / "inferd.toml")),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"INFERD_NODE_URL": node.url() or "", "PATH": "", **(environment or {})},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def policy_of(connection: Connection, request_id: int) -> Any:
    """How the request was assigned first."""
    return await connection.fetchrow(
        "SELECT r.policy, r.policy_id, r.fallback, d.arm FROM node.decision d"
        " JOIN node.round r ON r.id = d.round_id"
        " WHERE d.request_id = $1 AND d.kind = 'assign' ORDER BY d.id LIMIT 1",
        request_id,
    )


async def served(world: System, node: NodeProcess, connection: Connection) -> Any:
    asked = await world.ask("again")
    await node.until_state(asked.request_id, "settled")
    return await policy_of(connection, asked.request_id)


async def logged(node: NodeProcess, event: str, count: int = 1) -> None:
    async def check() -> bool:
        return len(node.events(event)) >= count

    await node.until(check, 30, f"logged as {event}")


async def test_a_policy_is_changed_kept_and_changed_back(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    connection = await connect(empty_database)
    assert (await served(world, node, connection))["policy"] == "value"

    code, out, err = await run(node, "policy", "set", "edf")
    assert code == ExitCode.OK, err
    assert out == "policy edf is in force from the next round on (experiment 2)\n"
    assert (await served(world, node, connection))["policy"] == "edf"

    assert node.stop() == 0
    node = world.start_node("node", empty_database)
    await node.until_ready()
    assert (await served(world, node, connection))["policy"] == "edf", "a restart changes nothing"

    config = node.data_dir / "inferd.toml"
    text = config.read_text()
    config.write_text(text + "[scheduling]\npolicy = 'balanced'\nweights = 'fee=1,wait=1'\n")
    node.process.send_signal(signal.SIGHUP)
    await logged(node, "settings_refused")
    assert (await served(world, node, connection))["policy"] == "edf"

    config.write_text(
        text.replace("slots = 2", "slots = 1")
        + "[scheduling]\npolicy = 'balanced'\nweights = 'fee=1,wait=1,slack=0'\n"
    )
    node.process.send_signal(signal.SIGHUP)
    await logged(node, "settings_read")
    assert node.events("settings_need_restart")[-1]["settings"] == ["workers"]
    assert (await served(world, node, connection))["policy"] == "balanced"

    code, out, err = await run(node, "policy", "show", "--json")
    assert code == ExitCode.OK, err
    shown = json.loads(out)
    assert shown["in_force"]["arms"] == [{"policy": "balanced", "share": 1}]
    assert shown["in_force"]["weights"] == {"fee": 1.0, "wait": 1.0, "slack": 0.0}
    assert [entry["source"] for entry in shown["history"]] == ["settings", "command", "settings"]
    assert "value" in shown["built_in"]
    assert shown["fallbacks"]["rounds"] == 0
    code, out, _ = await run(node, "policy", "show")
    assert out.splitlines()[0].startswith("in force   balanced (fee=1,wait=1,slack=0), set ")
    assert node.stop() == 0
    await connection.close()


async def test_settings_are_read_again_though_the_database_refuses_once(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    connection, rival = await connect(empty_database), await connect(empty_database)
    await served(world, node, connection)
    config = node.data_dir / "inferd.toml"
    config.write_text(config.read_text() + "[scheduling]\npolicy = 'edf'\n")
    async with rival.transaction():
        await rival.execute("LOCK TABLE node.policy IN EXCLUSIVE MODE")
        node.process.send_signal(signal.SIGHUP)
        while not await connection.fetchval(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO node.policy%'"
            " AND pid <> pg_backend_pid()"
        ):
            await asyncio.sleep(0.05)
    while await connection.fetchval("SELECT count(*) FROM node.policy") < 2:
        assert node.process.poll() is None, "one query that was cancelled ended the daemon"
        await asyncio.sleep(0.05)
    assert (await served(world, node, connection))["policy"] == "edf"
    assert node.stop() == 0
    await rival.close()
    await connection.close()


async def test_limits_are_read_again(world: System, empty_database: str) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    connection = await connect(empty_database)
    await served(world, node, connection)
    config = node.data_dir / "inferd.toml"
    config.write_text(
        config.read_text() + "[limits]\ntenant_tokens_per_s = 0.001\ntenant_burst_tokens = 1\n"
    )
    node.process.send_signal(signal.SIGHUP)
    await logged(node, "settings_read")
    await served(world, node, connection)
    asked = await world.ask("too much")
    await node.until_state(asked.request_id, "waiting")
    code, out, err = await run(node, "why", str(asked.request_id))
    assert code == ExitCode.OK, err
    assert "tenant_rate" in out
    assert "its requester may take 0 now" in out
    assert node.stop() == 0
    await connection.close()


async def test_two_policies_are_compared(world: System, empty_database: str) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    connection = await connect(empty_database)
    code, out, err = await run(node, "policy", "set", "--split", "value=50,balanced=50", "--json")
    assert code == ExitCode.OK, err
    assert json.loads(out)["id"] == 2
    asked = [await world.ask(f"number {number}") for number in range(6)]
    for one in asked:
        await node.until_state(one.request_id, "settled")
    rows = [await policy_of(connection, one.request_id) for one in asked]
    assert {row["policy"] for row in rows} == {"value=50,balanced=50"}
    counts = [sum(row["arm"] == arm for row in rows) for arm in (0, 1)]

    async def mined() -> bool:
        return not await connection.fetchval(
            "SELECT count(*) FROM node.tx_attempt WHERE gas_used IS NULL AND state <> 'replaced'"
        )

    await node.until(mined, 30, "paid")
    code, out, err = await run(node, "policy", "report", "--since", "1h", "--json")
    assert code == ExitCode.OK, err
    report = json.loads(out)
    assert [arm["policy"] for arm in report["arms"]] == ["value", "balanced"]
    assert [arm["requests"] for arm in report["arms"]] == counts
    assert sum(arm["settled"] for arm in report["arms"]) == 6
    assert sum(int(arm["fee_wei"]) for arm in report["arms"]) == 6 * 10**16
    gas_wei = await connection.fetchval(
        "SELECT sum(gas_used * effective_gas_price_wei) FROM node.tx_attempt WHERE state = 'mined'"
    )
    assert 0 <= gas_wei - sum(int(arm["gas_wei"]) for arm in report["arms"]) < 6
    for arm in report["arms"]:
        if arm["requests"]:
            assert arm["on_time"] == 1.0
            assert int(arm["profit_wei"]) == int(arm["fee_wei"]) - int(arm["gas_wei"])
            assert 0 <= arm["wait_p50_s"] <= arm["wait_p95_s"]
    assert not report["ratio_is_wrong"]
    code, out, _ = await run(node, "policy", "report")
    assert out.splitlines()[0].startswith("experiment 2: value=50,balanced=50, since ")
    assert out.splitlines()[3].startswith("balanced less value, per request: on time ")
    assert node.stop() == 0
    await connection.close()


async def test_a_policy_of_another_package_that_hangs_costs_nothing(
    world: System, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    environment = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    node = world.start_node("node", empty_database, environment=environment)
    await node.until_ready()
    connection = await connect(empty_database)
    for name, words in (
        ("goood", "error: there is no policy 'goood'; there are balanced, "),
        ("not-loadable", "error: the policy not-loadable cannot be loaded: OSError: its model is"),
    ):
        code, _, err = await run(node, "policy", "set", name, environment=environment)
        assert code == ExitCode.CONFIGURATION
        assert words in err
    code, _, err = await run(node, "policy", "set", "loops", environment=environment)
    assert code == ExitCode.OK, err

    async def changed() -> bool:
        return bool(node.events("policy_changed"))

    await node.until(changed, 60, "changed")
    row = await served(world, node, connection)
    assert row["policy"] == "least-requests"
    assert row["fallback"].startswith("loops ")
    text = await node.get_text("/metrics")
    assert 'inferd_policy_fallbacks_total{policy="loops"}' in text
    code, out, _ = await run(node, "policy", "show", environment=environment)
    assert "fallbacks" in out
    assert node.stop() == 0, "whatever the policy does"
    await connection.close()
