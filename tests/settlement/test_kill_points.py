"""SIGKILL around every await of settlement's I/O; the next process ends the work, once.

The points are found by a run to the end, which fails where anything of settlement waits for what
is not watched. A process is killed before each await, when it comes there for the first time, and
after each that has an effect outside of it, a commit or a send, every time: between two of these
nothing changes but what dies with it.

HYPOTHESIS_PROFILE=deep takes them all, `INFERD_KILL_POINTS='after|at the'` those that the
expression is found in: these are all that leave different tables and chains behind.
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
from msgspec.structs import replace

from indexer.database import Connection, connect, open_pool
from indexer.rpc import Rpc
from indexer.types import Address
from inferd.chain.anvil import Anvil, load_anvil_config, start_anvil
from inferd.node.account_rows import load_report
from inferd.node.accounts import Period
from inferd.node.postgres import EmbeddedPostgres
from inferd.settlement.state import LIVE_SQL
from tests.conftest import database_url
from tests.faults.restless_chain import KEEP_STATES
from tests.settlement.doomed_process import MAX_TICKS, Order, processes, run
from tests.settlement.ledger import Ledger, read_ledger
from tests.settlement.poison import Poison
from tests.settlement.rival import Rival
from tests.settlement.stories import POSTERS, STORIES, Story, signer_of
from tests.settlement.world import ETHER, POSTER_BPS, World, build_world

_FEE_WEI = ETHER // 10
_STATE_SHARE, _USUAL_SHARE = 8, 96
"""One of so many points is tried where nobody asks for all of them, of those with a state of their
own and of all others: all take a second each."""
_OWN_STATE = re.compile("after|at the")
_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
_PARTS = 2 if _DEEP else 1
"""Tests that share the points of a story, since several run at once."""
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
_WITHIN_S = 120


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
    first_block: int
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
    told = STORIES[story]
    pool = await open_pool(database)
    async with Rpc([anvil.url]) as rpc:
        world = await build_world(anvil, rpc, pool)
        if told.rival:
            await Rival(world).register()
        diary = await world.new_diary()
        ids = [*await world.submit(2, fee_wei=_FEE_WEI)]
        ids.append(await world.ask_by(diary, fee_wei=_FEE_WEI))
        (expired,) = await world.submit(1, fee_wei=_FEE_WEI, lifetime_s=2)
        await world.compute(ids[:1], 0)
        await world.compute(ids[1:], 1)
        await world.decide([b"\x01" * 32])
        if told.poison_until:
            marker = await pool.fetchval(
                "SELECT commitment FROM chain.request WHERE id = $1", ids[1]
            )
            await Poison(world, world.contracts.results, [marker], step=4).take_effect()
        await rpc.request("evm_increaseTime", [10])
        # As many as a reorganisation takes away without harm to the requests.
        first_block = (await world.mine(4)).number + 1
        await pool.close()
        yield Stage(
            world,
            postgres,
            urlsplit(database).path.removeprefix("/"),
            tmp_path,
            ids,
            expired,
            diary,
            tuple(key.to_bytes() for key in world.worker_keys.values()),
            told,
            first_block,
        )


async def _assert_done(stage: Stage, name: str) -> None:
    world, ids, story = stage.world, stage.ids, stage.story
    posters = [signer_of(world, account).address for account in POSTERS]
    ledger = await read_ledger(world, posters, stage.first_block)
    assert ledger.fulfilled == ids
    answer = f"answer {ids[-1]}".encode()
    assert await world.answer_of(stage.diary, ids[-1]) == answer
    # Each is paid for once: by us, or by the rival.
    shares_wei = (len(ids) - story.rival) * _FEE_WEI * POSTER_BPS // 10_000
    assert sum([await world.credit(poster) for poster in posters]) == shares_wei
    assert await world.credit(world.requester.address) == _FEE_WEI
    connection = await connect(database_url(stage.postgres, name))
    try:
        await _assert_tables_are_the_chain(stage, connection, ledger)
        report = await load_report(connection, Period.around(0, 2**40), frozenset(posters))
        assert report.total.poster_fees_wei == shares_wei
    finally:
        await connection.close()


async def _assert_tables_are_the_chain(
    stage: Stage, connection: Connection, ledger: Ledger
) -> None:
    ids, story = stage.ids, stage.story
    rows = await connection.fetch("SELECT id, status::text AS s FROM chain.request")
    assert {row["id"]: row["s"] for row in rows} == {
        **dict.fromkeys(ids, "fulfilled"),
        stage.expired: "refunded",
    }
    assert not await connection.fetchval("SELECT count(*) FROM node.tx_item WHERE live")
    assert not await connection.fetchval(f"SELECT count(*) FROM node.tx_intent WHERE {LIVE_SQL}")
    attempts = await connection.fetch("SELECT sender, nonce, hash, state FROM node.tx_attempt")
    ours = {row["hash"] for row in attempts}
    foreign = set(ledger.cost_wei) - ours
    assert len(foreign) == int(story.foreign_at > 0 and not story.foreign_leaves)
    # What the outbox takes for mined is what the chain has of us: so much gas was paid, no more.
    mined = {row["hash"]: row for row in attempts if row["state"] == "mined"}
    assert set(mined) == set(ledger.cost_wei) - foreign
    assert len(mined) in story.transactions
    report = await load_report(connection, Period.around(0, 2**40), frozenset())
    assert report.total.gas_wei == sum(ledger.cost_wei[tx_hash] for tx_hash in mined)
    # Nonces without a gap: all that were reserved are mined, and each of ours as it is noted. Those
    # of a key that is no longer here are free for whoever has it.
    present = signer_of(stage.world, story.key_at(MAX_TICKS)).address
    for row in await connection.fetch("SELECT address, next_nonce FROM node.sender"):
        spent = len(ledger.nonces[row["address"]])
        assert set(ledger.nonces[row["address"]]) == set(range(spent))
        assert spent == row["next_nonce"] or row["address"] != present
    for row in mined.values():
        assert ledger.nonces[row["sender"]][row["nonce"]] == row["hash"]


async def _outcomes(stage: Stage, name: str) -> set[tuple[str, str]]:
    connection = await connect(database_url(stage.postgres, name))
    try:
        rows = await connection.fetch("SELECT kind, outcome FROM node.tx_intent")
    finally:
        await connection.close()
    return {(row["kind"], row["outcome"]) for row in rows}


async def _whole(stage: Stage) -> dict[str, Any]:
    """A run that nothing happens to: what it passed."""
    name, folder = await stage.fresh()
    assert await stage.process(name, folder) == 0
    done = {(kind, "done") for kind in ("post", "deliver", "refund")}
    assert await _outcomes(stage, name) == done | set(stage.story.outcomes)
    await _assert_done(stage, name)
    await stage.drop(name)
    passed: dict[str, Any] = json.loads((folder / "passed.json").read_text())
    return passed


def _chosen(story: str, points: list[str], part: int) -> list[str]:
    """A spread of them, which is another one in each story; or what is asked for."""
    asked = os.environ.get("INFERD_KILL_POINTS")
    if asked is not None or _DEEP:
        chosen = [point for point in points if re.search(asked or "", point)]
    else:
        chosen = [point for point in points if _is_drawn(story, point)]
    return chosen[part::_PARTS]


def _is_drawn(story: str, point: str) -> bool:
    share = _STATE_SHARE if _OWN_STATE.match(point) else _USUAL_SHARE
    return zlib.crc32(f"{story}: {point}".encode()) % share == 0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(_PARTS))
async def test_killed_at_every_await__the_next_process_ends_it_once(
    stage: Stage, story: str, part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    passed = await _whole(stage)
    assert set(passed["unwatched"]) <= set(_NO_IO)
    points = passed["points"]
    for what in _USUAL_WAY + stage.story.ways:
        assert any(what in point for point in points), what
    for what in stage.story.never:
        assert not any(what in point for point in points), what
    chosen = _chosen(story, points, part)
    failed = []
    for point in chosen:
        try:
            await _killed(stage, point)
        except AssertionError as error:
            failed.append(f"killed {point}: {error}")
    assert not failed, "\n".join(failed)
    with capsys.disabled():
        print(
            f"\n{story}: {len(chosen)} of {len(points)} points ({passed['awaits']} awaits):"
            f" {2 * len(chosen)} processes, {len(chosen)} histories that ended as they should"
        )


async def _killed(stage: Stage, point: str) -> None:
    name, folder = await stage.fresh()
    assert await stage.process(name, folder, point) == -signal.SIGKILL, "it was not met"
    assert await stage.process(name, folder) == 0, "it comes to no end"
    await _assert_done(stage, name)
    await stage.drop(name)
