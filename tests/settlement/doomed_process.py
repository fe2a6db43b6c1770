"""A process that settles what is in the tables, and dies where it is told to.

It has the lock and the fence of a daemon, mines its own blocks, and indexes them. What befalls the
chain is a story told by numbers of steps, which goes on in the next process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from eth_account import Account
from eth_keys.datatypes import PrivateKey

from indexer.database import open_pool
from indexer.rpc import Rpc
from indexer.types import Address, Contracts, Hash32
from inferd.chain.anvil import Anvil, load_anvil_config
from inferd.chain.signers import LocalSigner
from inferd.chain.transact import Sender
from inferd.node.leader import become_leader
from inferd.settlement.engine import Settlement
from inferd.settlement.settings import SettlementSettings
from inferd.settlement.state import LIVE_SQL
from tests.settlement.scripted import ScriptedRpc, answer_lost
from tests.settlement.watched_io import Watch, WatchedCalls, WatchedPool
from tests.settlement.world import GWEI, POST_AT_ONCE, POSTER_BPS, World

MAX_TICKS = 30
_SPIKE_WEI, _CALM_WEI = 20 * GWEI, GWEI

_OPEN = (
    "SELECT (SELECT count(*) FROM chain.request WHERE status = 'pending')"
    f" + (SELECT count(*) FROM node.tx_intent WHERE {LIVE_SQL})"
    " + (SELECT count(*) FROM chain.request WHERE status = 'fulfilled' AND delivery = 2"
    "    AND callback_delivered_block IS NULL)"
)


@dataclass(frozen=True)
class Story:
    """What befalls the chain, by the number of the step it is before."""

    spike: tuple[int, ...] = ()
    """Gas is dear."""
    still: tuple[int, ...] = ()
    """No block comes, and there is a step more at the same head."""
    reorg_at: int = 0
    reorg_depth: int = 0
    foreign_at: int = 0
    """Somebody with our key pools a transaction of the next nonce, dearer than any of ours."""
    lost_send: int = 0
    """Of which call that sends, counted in each process, the answer is lost."""
    until_final: bool = False

    @property
    def told_after(self) -> int:
        return max(*self.spike, *self.still, self.reorg_at + self.reorg_depth, self.foreign_at)


STORIES = {
    "dear gas and a reorganisation": Story(spike=(2, 3), reorg_at=7, reorg_depth=4),
    "a foreign transaction and lost answers": Story(
        still=(4,), foreign_at=1, lost_send=3, until_final=True
    ),
}


@dataclass(frozen=True)
class Order:
    """What a process is told; `folder` has the number of the newest tick, and what was passed."""

    url: str
    database: str
    contracts: Contracts
    genesis_hash: Hash32
    worker_secrets: tuple[bytes, ...]
    folder: Path
    story: Story
    die_at: str | None = None


def processes() -> Any:
    """Starts processes as forks of one that has imported everything: a run is cheap."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def run(order: Order) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    asyncio.run(_run(order))


async def _run(order: Order) -> None:
    watch = Watch(order.die_at)
    leadership = await become_leader(order.database, "doomed")
    pool = await open_pool(order.database, max_size=4)
    async with Rpc([order.url]) as rpc:
        world = _world(order, rpc, pool)
        settlement = Settlement(
            rpc=WatchedCalls(_endpoint(rpc, order.story), "rpc", watch),
            db=WatchedPool(pool, watch),  # type: ignore[arg-type]
            contracts=order.contracts,
            signers=[WatchedCalls(world.poster, "signer", watch)],
            sign_group=WatchedCalls(world, "worker", watch).sign_group,
            settings=SettlementSettings(poster_bps=POSTER_BPS, **POST_AT_ONCE),
            fence=leadership.fence,
        )
        counter = order.folder / "tick"
        tick = int(counter.read_text()) if counter.exists() else 0
        while True:
            tick += 1
            if tick > MAX_TICKS:
                raise TimeoutError("it comes to no end")
            counter.write_text(str(tick))
            await watch.all_of(settlement.step(await _block(world, order.story, tick)))
            if tick > order.story.told_after and not await _open(world, order.story):
                break
    passed = {
        "awaits": watch.awaits,
        "points": list(watch.points),
        "unwatched": sorted(watch.unwatched),
        "ticks": tick,
    }
    (order.folder / "passed.json").write_text(json.dumps(passed))
    await pool.close()
    await leadership.release()


def _endpoint(rpc: Rpc, story: Story) -> ScriptedRpc:
    scripted = ScriptedRpc(rpc)
    if story.lost_send:
        passing = [_as_it_is] * (story.lost_send - 1)
        scripted.then("send_raw_transaction", *passing, answer_lost)
    return scripted


async def _as_it_is(real: Any, *args: Any) -> Any:
    return await real(*args)


async def _open(world: World, story: Story) -> int:
    left: int = await world.pool.fetchval(_OPEN)
    if not left and story.until_final:
        left = await world.pool.fetchval(
            "SELECT count(*) FROM node.tx_intent WHERE state <> 'final'"
        )
    return left


async def _block(world: World, story: Story, tick: int) -> Any:
    if tick == story.foreign_at:
        head = await world.index()
        await world.poster_transfer(await world.posted())
        return head
    if tick in story.still:
        return await world.index()
    price_wei = _SPIKE_WEI if tick in story.spike else _CALM_WEI
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(price_wei)])
    return await (world.reorg(story.reorg_depth) if tick == story.reorg_at else world.mine())


def _world(order: Order, rpc: Rpc, pool: Any) -> World:
    config = load_anvil_config()
    keys = [PrivateKey(secret) for secret in order.worker_secrets]
    return World(
        anvil=Anvil(config, None, order.url),  # type: ignore[arg-type]
        rpc=rpc,
        pool=pool,
        contracts=order.contracts,
        genesis_hash=order.genesis_hash,
        requester=Sender(rpc, Account.from_key(config.account(1).key), config.chain_id),
        worker_keys={Address(key.public_key.to_canonical_address()): key for key in keys},
        poster=LocalSigner(config.account(2)),
    )
