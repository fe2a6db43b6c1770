"""SIGKILL before and after every await of settlement's I/O; the next process ends the work, once.

The points are found by a run to the end, which fails where anything of settlement waits for what
is not watched. HYPOTHESIS_PROFILE=deep takes them all, `INFERD_KILL_POINTS=mark_sent` those with
that in their names.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from eth_utils.crypto import keccak
from msgspec.structs import replace

from indexer.database import connect, open_pool
from indexer.rpc import Rpc
from indexer.types import Address
from inferd.chain.anvil import Anvil, load_anvil_config, start_anvil
from inferd.node.postgres import EmbeddedPostgres
from tests.conftest import database_url
from tests.faults.restless_chain import KEEP_STATES
from tests.settlement.doomed_process import STORIES, Order, Story, processes, run
from tests.settlement.world import ETHER, POSTER_BPS, World, build_world

_FEE_WEI = ETHER // 10
_PARTS = 2
"""Tests that share the points, since two run at once."""
_USUAL_SHARE = 48
"""One of so many points is tried where nobody asks for all of them, beside those at stake: all take
a second and more each."""
_AT_STAKE = re.compile(r"(before|after) (rpc\.send_raw_transaction|signer\.sign)|after COMMIT")
_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
_NO_IO = {
    "build_groups": "gathers tasks, in which every call is watched",
    "load_decisions": "a thread hashes what was read",
    "load_ready": "a thread makes results of the rows that were read",
    "Poster._decide": "a thread decides on them",
}
"""Functions that may wait for something other than I/O."""
_USUAL_WAY = (
    "Poster._try > Lanes.launch > Launcher.launch > Sender.send",
    "Refunder.refund > Lanes.launch > Launcher.launch > Sender.send",
    "Deliverer._launch > Lanes.launch > Launcher.launch > Sender.send",
    "Outbox.mark_mined",
    "Outbox.close",
)
_WAYS = {
    "dear gas and a reorganisation": (
        "Outbox.add_replacement",
        "Outbox.mark_unmined",
        "Outbox.mark_dropped",
        "Outbox.reopen",
    ),
    "a foreign transaction and lost answers": (
        "Outbox.mark_refused",
        "Outbox.mark_unanswered",
        "Outbox.mark_found",
        "Outbox.mark_unknown",
        "Follower._give_back",
        "Outbox.finalise",
    ),
}
"""What a run that nobody kills comes past, beside the usual way."""
_WITHIN_S = 120
_FULFILLED = "0x" + keccak(text="InferenceFulfilled(uint256,address,bytes32)").hex()


@dataclass
class Stage:
    """Chain and tables as they are before the first step, again and again."""

    world: World
    postgres: EmbeddedPostgres
    template: str
    folder: Path
    ids: list[int]
    expired: int
    diary: Address
    workers: tuple[bytes, ...]
    story: Story
    snapshot: str = ""

    async def fresh(self) -> tuple[str, Path]:
        """A database and a folder of their own, and the chain taken back."""
        rpc = self.world.rpc
        if self.snapshot:
            assert await rpc.request("evm_revert", [self.snapshot])
            await rpc.request("anvil_dropAllTransactions", [])
        self.snapshot = str(await rpc.request("evm_snapshot"))
        name = f"run_{secrets.token_hex(6)}"
        admin = await connect(self.postgres.url)
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {self.template}")
        await admin.close()
        folder = self.folder / name
        folder.mkdir()
        return name, folder

    async def drop(self, name: str) -> None:
        admin = await connect(self.postgres.url)
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()

    async def process(self, name: str, folder: Path, die_at: str | None = None) -> int:
        """Runs one to its end; returns its exit code, which is negative for a signal."""
        world = self.world
        order = Order(
            url=world.anvil.url,
            database=database_url(self.postgres, name),
            contracts=world.contracts,
            genesis_hash=world.genesis_hash,
            worker_secrets=self.workers,
            folder=folder,
            story=self.story,
            die_at=die_at,
        )
        process = processes().Process(target=run, args=(order,))
        process.start()
        await asyncio.to_thread(process.join, _WITHIN_S)
        if process.is_alive():
            process.kill()
            raise AssertionError(f"it hangs: {die_at or 'nobody kills it'}")
        return int(process.exitcode)


@pytest.fixture(params=STORIES)
def story(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def anvil(tmp_path: Path, story: str) -> Iterator[Anvil]:
    """Its chain is taken back and reorganised some thousand blocks in all."""
    slots = 1 if STORIES[story].until_final else 32
    config = replace(load_anvil_config(), port=0, block_time_s=0, slots_in_an_epoch=slots)
    log = tmp_path / "anvil.log"
    with start_anvil(config, log=log, extra_arguments=KEEP_STATES) as running:
        yield running


@pytest.fixture
async def stage(
    story: str, anvil: Anvil, database: str, postgres: EmbeddedPostgres, tmp_path: Path
) -> AsyncIterator[Stage]:
    pool = await open_pool(database)
    async with Rpc([anvil.url]) as rpc:
        world = await build_world(anvil, rpc, pool)
        diary = await world.new_diary()
        ids = [*await world.submit(2, fee_wei=_FEE_WEI)]
        ids.append(await world.ask_by(diary, fee_wei=_FEE_WEI))
        (expired,) = await world.submit(1, fee_wei=_FEE_WEI, lifetime_s=2)
        await world.compute(ids[:1], 0)
        await world.compute(ids[1:], 1)
        await world.decide([b"\x01" * 32])
        await rpc.request("evm_increaseTime", [10])
        await world.mine(4)  # as many as a reorganisation takes away without harm to the requests
        await pool.close()
        name = urlsplit(database).path.removeprefix("/")
        secrets_ = tuple(key.to_bytes() for key in world.worker_keys.values())
        yield Stage(world, postgres, name, tmp_path, ids, expired, diary, secrets_, STORIES[story])


async def _assert_done(stage: Stage, name: str) -> None:
    world, ids = stage.world, stage.ids
    assert await _fulfilled_on_chain(world) == ids
    answer = f"answer {ids[-1]}".encode()
    assert await world.answer_of(stage.diary, ids[-1]) == answer
    paid_wei = len(ids) * _FEE_WEI
    assert await world.credit(world.poster.address) == paid_wei * POSTER_BPS // 10_000
    assert await world.credit(world.requester.address) == _FEE_WEI
    posted = await world.posted()
    foreign = int(stage.story.foreign_at > 0)
    # One post, one delivery and one refund, whatever was begun twice: no gas is paid for nothing.
    assert posted == foreign + 3
    connection = await connect(database_url(stage.postgres, name))
    try:
        rows = await connection.fetch("SELECT id, status::text AS s FROM chain.request")
        assert {row["id"]: row["s"] for row in rows} == {
            **dict.fromkeys(ids, "fulfilled"),
            stage.expired: "refunded",
        }
        assert await connection.fetchval("SELECT next_nonce FROM node.sender") == posted
        assert not await connection.fetchval("SELECT count(*) FROM node.tx_item WHERE live")
        nonces = await connection.fetch("SELECT DISTINCT nonce FROM node.tx_attempt")
        assert {row["nonce"] for row in nonces} | set(range(foreign)) == set(range(posted))
        mined = await connection.fetch(
            "SELECT nonce, count(*) AS n FROM node.tx_attempt WHERE state = 'mined' GROUP BY 1"
        )
        assert {row["nonce"]: row["n"] for row in mined} == dict.fromkeys(range(foreign, posted), 1)
        live = "state IN ('planned', 'signed', 'unknown', 'broadcast', 'mined')"
        assert not await connection.fetchval(f"SELECT count(*) FROM node.tx_intent WHERE {live}")
    finally:
        await connection.close()


async def _fulfilled_on_chain(world: World) -> list[int]:
    logs: list[dict[str, Any]] = await world.rpc.request(
        "eth_getLogs",
        [
            {
                "fromBlock": "0x0",
                "toBlock": "latest",
                "address": "0x" + world.contracts.requests.hex(),
                "topics": [_FULFILLED],
            }
        ],
    )
    return sorted(int(entry["topics"][1], 16) for entry in logs)


async def _whole(stage: Stage) -> dict[str, Any]:
    """A run that nothing happens to: what it passed."""
    name, folder = await stage.fresh()
    assert await stage.process(name, folder) == 0
    await _assert_done(stage, name)
    await stage.drop(name)
    passed: dict[str, Any] = json.loads((folder / "passed.json").read_text())
    return passed


def _chosen(points: list[str], part: int) -> list[str]:
    """Round each send and signature, after each commit, and a spread of all others; or what is
    asked for."""
    asked = os.environ.get("INFERD_KILL_POINTS")
    if asked is not None or _DEEP:
        chosen = [point for point in points if (asked or "") in point]
    else:
        chosen = [point for point in points if _AT_STAKE.match(point) or _drawn(point)]
    return chosen[part::_PARTS]


def _drawn(point: str) -> bool:
    return zlib.crc32(point.encode()) % _USUAL_SHARE == 0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(_PARTS))
async def test_killed_at_every_await__the_next_process_ends_it_once(
    stage: Stage, story: str, part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    passed = await _whole(stage)
    assert set(passed["unwatched"]) <= set(_NO_IO)
    points = passed["points"]
    for what in _USUAL_WAY + _WAYS[story]:
        assert any(what in point for point in points), what
    chosen = _chosen(points, part)
    processes_run = 0
    for point in chosen:
        name, folder = await stage.fresh()
        assert await stage.process(name, folder, point) == -signal.SIGKILL, point
        assert await stage.process(name, folder) == 0, point
        processes_run += 2
        try:
            await _assert_done(stage, name)
        except AssertionError as error:
            raise AssertionError(f"killed {point}: {error}") from error
        await stage.drop(name)
    with capsys.disabled():
        print(
            f"\n{story}: {len(chosen)} of {len(points)} points ({passed['awaits']} awaits):"
            f" {processes_run} processes, {len(chosen)} histories that ended as they should"
        )
