"""Thousands of random faults and reorganisations; at the end the tables are the chain's.

`INFERD_SOAK_STEPS` says how much happens on each chain and `INFERD_SOAK_SEEDS` on how many;
HYPOTHESIS_PROFILE=deep is ten times as much. A failure names its seed: the same seed brings the
same transactions and the same die for faults, though not the same timing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import indexer.follow
import indexer.rpc.bucket
from indexer.database import Pool
from indexer.errors import RpcUnreachable
from indexer.follow import Indexer
from indexer.recheck import Recheck
from indexer.rpc import Rpc, RpcError
from indexer.verify import Verifier, choose_range
from inferd.chain.anvil import load_anvil_config, start_anvil
from tests.faults.dialects import RangeDialect
from tests.faults.exchange import Exchange
from tests.faults.receipts import assert_equal, read_chain, read_tables
from tests.faults.restless_chain import KEEP_STATES, RestlessChain
from tests.faults.rpc_faults import (
    AnswerFrom,
    ChangeLog,
    Delay,
    ErrorObject,
    HangUp,
    HttpStatus,
    LagHead,
    NoTag,
    NullResult,
    OmitAnswer,
    OmitLogs,
    RefuseRange,
    Repeat,
    RepeatLogs,
    ReverseLogs,
    Shuffle,
    Silence,
    Truncate,
)
from tests.faults.rpc_plans import AtRandom, Calm, Chance
from tests.faults.rpc_proxy import RpcProxy, rpc_proxy
from tests.indexer.conftest import fresh_pool
from tests.indexer.world import World, build_world, caught_up, differences, index_once, tables

__all__ = ["fresh_pool"]

_DEEP = 10 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 1
STEPS = int(os.environ.get("INFERD_SOAK_STEPS", "300")) * _DEEP
SEEDS = range(int(os.environ.get("INFERD_SOAK_SEEDS", "3")))
SEGMENT = 25
LOGS = frozenset(["eth_getLogs"])
FINAL_AFTER_BLOCKS = 32
"""More than the deepest reorganisation: what is final stays."""


class GivenUp:
    """A node that still believes in the branch that was given up last."""

    def __init__(self, chain: RestlessChain) -> None:
        self._chain = chain

    async def answer(self, body: Any, exchange: Exchange) -> Any:
        fork = self._chain.fork
        return await (fork.answer(body, exchange) if fork else exchange.ask(body))


def chances(chain: RestlessChain) -> list[Chance]:
    wrong_blocks = [ChangeLog("blockHash", "0x" + "dd" * 32), ChangeLog("blockNumber", "0xffffff")]
    wrong_logs = [ChangeLog("address", "0x" + "ee" * 20), ChangeLog("logIndex", "0x0")]
    lies = [*wrong_blocks, *wrong_logs, ChangeLog("removed", True), RepeatLogs(), ReverseLogs()]
    return [
        *(Chance(HangUp(share), weight=4) for share in (0.0, 0.3, 0.9)),
        Chance(HangUp(unasked=True), weight=4),
        Chance(Truncate(), weight=4),
        Chance(Delay(0.005), weight=8),
        Chance(Silence(), weight=2),
        *(Chance(Shuffle(seed), weight=4) for seed in range(3)),
        Chance(Repeat(), weight=4),
        Chance(OmitAnswer(), weight=4),
        Chance(NullResult(), weight=12),
        *(Chance(HttpStatus(status), weight=3) for status in (429, 413, 500, 503)),
        Chance(ErrorObject(-32005, "rate limit exceeded"), weight=6),
        *(Chance(RefuseRange(dialect, 20), LOGS, weight=2) for dialect in RangeDialect),
        *(Chance(lie, LOGS, weight=8) for lie in lies),
        Chance(OmitLogs(), LOGS, weight=12),
        *(Chance(LagHead(blocks), weight=8, calls=6) for blocks in (1, 3, 8)),
        Chance(NoTag("finalized"), weight=4),
        Chance(AnswerFrom(GivenUp(chain)), weight=16, calls=12),
    ]


@dataclass
class Soak:
    """One chain, one index, and what lies between them."""

    world: World
    chain: RestlessChain
    proxy: RpcProxy
    pool: Pool
    die: random.Random
    restarts: int = 0
    indexers: list[Indexer] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def indexing(self, rpc: Rpc) -> AsyncIterator[Indexer]:
        """An indexer that is started again whenever it gives up before it has begun."""
        indexer = self.world.indexer(self.pool, rpc=rpc, poll_interval_s=0.005)
        self.indexers.append(indexer)
        task = asyncio.create_task(self._keep_running(indexer))
        self.tasks.add(task)
        try:
            yield indexer
            self.assert_running()
        finally:
            self.tasks.discard(task)
            task.cancel()
            _, running = await asyncio.wait({task}, timeout=20)
            assert not running, "it was told to stop and did not"

    def assert_running(self) -> None:
        """Raises what an indexer ended with."""
        for task in self.tasks:
            assert not task.done(), task.result()

    async def _keep_running(self, indexer: Indexer) -> None:
        while True:
            try:
                await indexer.run()
            except (RpcUnreachable, RpcError):
                self.restarts += 1
                await asyncio.sleep(0.005)

    async def exchanged(self, count: int) -> None:
        """Waits until the proxy has served so many more: a pace that no busy machine changes."""
        target = self.proxy.exchanges + count
        async with asyncio.timeout(60):
            while self.proxy.exchanges < target:
                self.assert_running()
                await asyncio.sleep(0.001)

    async def segment(self, rpc: Rpc) -> None:
        """Between a start and a stop; now and then with a second indexer on the same tables."""
        async with contextlib.AsyncExitStack() as running:
            await running.enter_async_context(self.indexing(rpc))
            if self.die.random() < 0.3:
                await running.enter_async_context(self.indexing(rpc))
            for _ in range(SEGMENT):
                await self.chain.step()
                await self.exchanged(self.die.choice([0, 1, 5, 20, 40]))
        for _ in range(self.die.choice([0, 0, 4])):
            await self.chain.step()
        if self.die.random() < 0.3:
            await self.chain.far_ahead()


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trouble is tried again at once, and asking for fewer calls leaves many: thousands of faults
    fit a minute."""
    monkeypatch.setattr(indexer.rpc.bucket, "_FIRST_MIN_PER_S", 900.0)
    monkeypatch.setattr(indexer.rpc.bucket, "_CUT", 1.0)
    monkeypatch.setattr(indexer.follow, "_FIRST_BACKOFF_S", 0.001)
    monkeypatch.setattr(indexer.follow, "_MAX_BACKOFF_S", 0.004)


@pytest.mark.usefixtures("in_a_hurry")
@pytest.mark.timeout(300 * _DEEP)
@pytest.mark.parametrize("seed", SEEDS)
async def test_soak__random_faults_and_reorganisations__tables_are_the_chain(
    pool: Pool, fresh_pool: Pool, tmp_path: Path, seed: int
) -> None:
    config = replace(
        load_anvil_config(), port=0, block_time_s=0, slots_in_an_epoch=FINAL_AFTER_BLOCKS // 2
    )
    with start_anvil(config, log=tmp_path / "anvil.log", extra_arguments=KEEP_STATES) as anvil:
        async with (
            Rpc([anvil.url]) as direct,
            rpc_proxy(anvil.url) as proxy,
            Rpc([proxy.url], timeout_s=0.5) as rpc,
        ):
            world = await build_world(anvil, direct)
            chain = RestlessChain(world, seed)
            await chain.begin()
            plan = AtRandom(seed, 0.25, chances(chain))
            soak = Soak(world, chain, proxy, pool, random.Random(seed))
            while chain.done.total() < STEPS:
                proxy.plan = plan
                await soak.segment(rpc)
                proxy.plan = Calm()
                if soak.die.random() < 0.5:
                    await settled(soak, rpc)
            await settled(soak, rpc)
            repaired = await rechecked(direct, soak)
            print(f"seed {seed}: {dict(chain.done)}, {proxy.exchanges} exchanges, {plan.told},")
            print(
                f"{soak.restarts} restarts, {sum(i.status.reorgs for i in soak.indexers)} reorgs,"
            )
            print(f"{repaired} final blocks repaired")
            said = await read_chain(direct.request, world.contracts)
            assert_equal(await read_tables(pool), said)
            whole = await choose_range(pool, world.contracts, None, None)
            async for part in Verifier(direct, pool, world.contracts).verify(whole):
                assert part.differences == ()
            await index_once(world, fresh_pool)
            assert differences(await tables(pool), await tables(fresh_pool)) == {}
            assert said.requests, "nothing was left to compare"
            kinds = {type(chance.fault).__name__ for chance in plan.chances}
            assert len(kinds - plan.told.keys()) <= 1, "some faults never came"
            assert plan.told.total() > STEPS
            assert sum(indexer.status.reorgs for indexer in soak.indexers) > STEPS / 30


async def settled(soak: Soak, rpc: Rpc) -> None:
    async with soak.indexing(rpc) as indexer:
        waiting = asyncio.create_task(caught_up(indexer, soak.world, timeout_s=60))
        await asyncio.wait({waiting, *soak.tasks}, return_when=asyncio.FIRST_COMPLETED)
        soak.assert_running()
        await waiting


async def rechecked(rpc: Rpc, soak: Soak) -> int:
    """What was kept back from a range of final blocks shows here at the latest."""
    recheck = Recheck(rpc, soak.pool, soak.world.contracts)
    while await recheck.step():
        pass
    return recheck.status.repaired_blocks
