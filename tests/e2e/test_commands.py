"""The commands of a requester and an operator against a real daemon."""

from __future__ import annotations

import asyncio
import json
import sys

from indexer.errors import ExitCode
from tests.harness import FEE_WEI, MODEL, POSTER, REQUESTER, NodeProcess, System


async def run(
    node: NodeProcess, *arguments: str, stdin: str = "", requester: int = REQUESTER
) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "inferd", "--config", str(node.data_dir / "inferd.toml")),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            "INFERD_NODE_URL": node.url() or "",
            "INFERD_REQUESTER__DEV_ACCOUNT": str(requester),
            "PATH": "",
        },
    )
    out, err = await process.communicate(stdin.encode())
    return process.returncode or 0, out.decode(errors="replace"), err.decode()


async def test_ask_wait_read_and_explain(world: System, empty_database: str) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    ask = ("submit", "--model", MODEL, "--fee", "0.01ether", "--deadline", "10m")

    code, answer, err = await run(node, *ask, "--prompt", "-", "--wait", stdin="from a pipe")
    assert code == ExitCode.OK, err
    assert answer
    code, again, _ = await run(node, "result", "1")
    assert (code, again) == (ExitCode.OK, answer)

    code, out, err = await run(node, *ask, "--prompt", "second", "--json")
    assert code == ExitCode.OK, err
    second = json.loads(out)["id"]
    code, out, _ = await run(node, "watch", str(second))
    assert code == ExitCode.OK
    assert "settled" in out.splitlines()[-1]
    code, out, _ = await run(node, "why", str(second), "--json")
    assert json.loads(out)["reason"] == "settled"
    code, out, err = await run(node, "cancel", str(second))
    assert code == ExitCode.CONFIGURATION
    assert err.startswith("error: ")

    code, out, err = await run(node, "withdraw", "poster", "--json")
    assert code == ExitCode.OK, err
    assert json.loads(out)["amount_wei"] == str(2 * FEE_WEI * 2000 // 10_000)
    assert await world.credit_wei(POSTER) == 0

    code, out, _ = await run(node, "status", "--json")
    status = json.loads(out)
    assert status["ready"] is True
    assert status["requests"] == {"fulfilled": 2}
    assert {worker["completed"] for worker in status["workers"]} <= {0, 1, 2}
    code, out, err = await run(node, *ask[:1], "--model", "nobody", *ask[3:], "--prompt", "x")
    assert code == ExitCode.CONFIGURATION
    assert "nobody" in err
    code, out, err = await run(node, "result", "99")
    assert code == ExitCode.CONFIGURATION
    assert out == ""
    assert node.stop() == 0
