"""`inferd index ...` on a real chain and database, beside a node and without one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from indexer.database import Pool, open_pool
from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil
from inferd.node.leader import LostLeadership, become_leader
from inferd.node.rebuild import rebuild
from inferd.node.settings import IndexSettings
from inferd.protocol.deployment import load_deployment
from tests.cli.stage import Stage
from tests.cli.support import Cli
from tests.indexer.world import World, differences, index_once, tables

T = TypeVar("T")
_LAUNCHER = str(Path(__file__).with_name("dying_command.py"))


@pytest.fixture
def own_database(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("INFERD_DATABASE_URL", database)
    return database


@pytest.fixture
def asked(stage: Stage, cli: Cli) -> Stage:
    """Two requests, one of them settled, deep below the head."""
    for prompt in ("one", "two"):
        arguments = ("--model", "markov", "--prompt", prompt, "--fee", "0.01ether")
        assert cli("submit", *arguments, "--deadline", "1h").code == 0
    stage.settle(1, b"answer")
    stage.do(lambda rpc: rpc.request("anvil_mine", [hex(250)]))
    return stage


def on(url: str, act: Callable[[Pool], Awaitable[T]]) -> T:
    async def work() -> T:
        pool = await open_pool(url, max_size=3)
        try:
            return await act(pool)
        finally:
            await pool.close()

    return asyncio.run(work())


def world_of(rpc: Rpc) -> World:
    deployment = load_deployment(Path("deployment.json"))
    return World(rpc, deployment.contracts, deployment.genesis_hash, [])  # type: ignore[arg-type]


def index(stage: Stage, url: str) -> None:
    async def act(rpc: Rpc) -> None:
        pool = await open_pool(url, max_size=3)
        await index_once(world_of(rpc), pool)
        await pool.close()

    stage.do(act)


def content(url: str) -> dict[str, Any]:
    found = on(url, tables)
    # A fresh index and one that followed the chain remember headers from different blocks on.
    return found | {"block": found["block"][-50:]}


def execute(url: str, statement: str) -> None:
    on(url, lambda pool: pool.execute(statement))


def test_verify_and_repair(asked: Stage, cli: Cli, own_database: str) -> None:
    cli("index", "verify").refused(75, "no block is indexed yet")
    index(asked, own_database)
    whole = content(own_database)

    clean = cli("index", "verify")
    assert clean.code == 0
    assert clean.stdout.startswith("blocks ")
    assert clean.stdout.endswith("read: the tables are as the chain says\n")
    assert "verifying: " in clean.stderr

    execute(own_database, "DELETE FROM chain.log WHERE kind = 'InferenceFulfilled'")
    broken = cli("index", "verify")
    assert broken.code == 3
    lines = broken.stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["missing_log", "wrong_request:", "blocks"]
    assert lines[1] == "wrong_request: request 1"
    assert broken.stderr.splitlines()[-2:] == [
        "error: 2 rows are not what the chain says",
        "help: `inferd index repair` mends them, also beside a running node",
    ]

    found = cli("index", "verify", "--json")
    assert found.code == 3
    body = json.loads(found.stdout)
    assert list(body) == [
        "schema_version",
        "first_block",
        "last_block",
        "read_blocks",
        "differences",
    ]
    assert body["differences"][1] == {
        "kind": "wrong_request",
        "block_number": None,
        "subject": "request 1",
    }
    number = body["differences"][0]["block_number"]
    assert cli("index", "verify", "--to", "3").code == 0
    assert cli("index", "verify", "--from", str(number), "--to", str(number)).code == 3
    cli("index", "verify", "--to", "99999").refused(1, "not all indexed")

    mended = cli("index", "repair", "--json")
    assert mended.code == 0
    assert json.loads(mended.stdout)["differences"] == body["differences"]
    assert cli("index", "verify").code == 0
    assert differences(content(own_database), whole) == {}


def test_quarantine(asked: Stage, cli: Cli, own_database: str) -> None:
    index(asked, own_database)
    whole = content(own_database)
    assert cli("index", "quarantine").stdout == "no log is quarantined\n"
    execute(
        own_database,
        "WITH gone AS (DELETE FROM chain.log WHERE kind = 'Staked' RETURNING *)"
        " INSERT INTO chain.quarantine SELECT block_hash, log_index, block_number, tx_hash,"
        " tx_index, address, topics, data, E'too new\\n' FROM gone",
    )
    listed = cli("index", "quarantine")
    assert listed.code == 0
    assert listed.stdout.endswith(": too new\\x0a\n")
    (item,) = json.loads(cli("index", "quarantine", "--json").stdout)["quarantined"]
    assert item["reason"] == "too new\n"
    replayed = cli("index", "quarantine", "--replay")
    assert replayed.stdout == "1 logs were read again, 0 are left\n"
    assert differences(content(own_database), whole) == {}


def test_rebuild_without_a_node(asked: Stage, cli: Cli, own_database: str) -> None:
    index(asked, own_database)
    whole = content(own_database)
    execute(own_database, "UPDATE chain.cursor SET block_hash = '\\x77'")
    execute(own_database, "UPDATE chain.block SET hash = '\\x77' || hash")
    execute(own_database, "UPDATE chain.request SET fee_wei = 1")
    done = cli("index", "rebuild", "--json")
    assert done.code == 0, done.stderr
    head = asked.do(lambda rpc: rpc.header("latest"))
    assert head is not None
    assert json.loads(done.stdout) == {"schema_version": 1, "indexed_block": head.number}
    assert differences(content(own_database), whole) == {}


async def test_rebuild_beside_a_leader__is_displaced_before_anything_is_gone(
    asked_async: tuple[Anvil, str],
) -> None:
    anvil, database = asked_async
    leader = await become_leader(database, "node")
    pool = await open_pool(database)
    async with Rpc([anvil.url]) as rpc:
        world = world_of(rpc)
        await index_once(world, pool)
        whole = await tables(pool)
        head = await world.head()
        notes: list[str] = []
        work = asyncio.create_task(
            rebuild(
                rpc,
                pool,
                world.contracts,
                database_url=database,
                genesis_hash=world.genesis_hash,
                settings=IndexSettings(),
                target=head.number,
                tell=lambda number: None,
                note=notes.append,
            )
        )
        async with asyncio.timeout(20):
            while not notes:
                await asyncio.sleep(0.05)
        assert await pool.fetchval("SELECT count(*) FROM chain.log") == 0
        with pytest.raises(LostLeadership):
            async with pool.acquire() as connection, connection.transaction():
                await leader.fence(connection)
        await leader.release()
        successor = await become_leader(database, "node again")
        await index_once(world, pool, fence=successor.fence)
        assert await work == head.number
        assert differences(await tables(pool), whole) == {}
        await successor.release()
    await pool.close()


@pytest.fixture
def asked_async(asked: Stage, own_database: str) -> tuple[Anvil, str]:
    return asked.anvil, own_database


@pytest.mark.parametrize("point", ["repair:1", "rebuild:1", "rebuild:3", "emptied:1"])
def test_killed(point: str, asked: Stage, cli: Cli, own_database: str) -> None:
    """SIGKILL in the middle; the same command again ends it."""
    index(asked, own_database)
    whole = content(own_database)
    execute(own_database, "DELETE FROM chain.log WHERE kind <> 'Staked'")
    execute(own_database, "UPDATE chain.request SET fee_wei = 1")
    command = "repair" if point.startswith("repair") else "rebuild"
    process = subprocess.run(
        [sys.executable, _LAUNCHER, point, "index", command],
        capture_output=True,
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert cli("index", command).code == 0
    assert cli("index", "verify").code == 0
    assert differences(content(own_database), whole) == {}


def test_tables_of_another_release(deployed: Anvil, cli: Cli, own_database: str) -> None:
    execute(own_database, "DELETE FROM public.inferd_migration WHERE version > 1")
    cli("index", "verify").refused(1, "needs", "inferd node")
    execute(
        own_database,
        "INSERT INTO public.inferd_migration (component, version) VALUES ('chain', 99)",
    )
    cli("index", "verify").refused(1, "99")


def test_a_database_without_tables(
    deployed: Anvil, cli: Cli, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERD_DATABASE_URL", empty_database)
    cli("index", "verify").refused(1, "version 0")


def test_the_index_of_another_deployment(asked: Stage, cli: Cli, own_database: str) -> None:
    index(asked, own_database)
    execute(own_database, "UPDATE chain.source SET requests = '\\x00'")
    cli("index", "repair").refused(1, "another deployment")
