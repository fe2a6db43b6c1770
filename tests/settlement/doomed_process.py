"""A process that settles what is in the tables, and dies where it is told to.

It has the lock and the fence of a daemon, mines its own blocks, and indexes them. What befalls the
chain is a script by numbers of blocks, which goes on in the next process: the price of gas leaps
while the first post and refund wait, and a reorganisation takes blocks away.
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
from inferd.chain.transact import Sender
from inferd.node.leader import become_leader
from inferd.settlement.engine import Settlement
from inferd.settlement.keys import LocalSigner
from inferd.settlement.settings import SettlementSettings
from inferd.settlement.state import LIVE_SQL
from tests.settlement.watched_io import Watch, WatchedCalls, WatchedPool
from tests.settlement.world import GWEI, POST_AT_ONCE, POSTER_BPS, World

SPIKE = range(2, 4)
REORG_AT, REORG_DEPTH = 7, 4
MAX_TICKS = 30
_SPIKE_WEI, _CALM_WEI = 20 * GWEI, GWEI

_OPEN = (
    "SELECT (SELECT count(*) FROM chain.request WHERE status = 'pending')"
    f" + (SELECT count(*) FROM node.tx_intent WHERE {LIVE_SQL})"
    " + (SELECT count(*) FROM chain.request WHERE status = 'fulfilled' AND delivery = 2"
    "    AND callback_delivered_block IS NULL)"
)


@dataclass(frozen=True)
class Order:
    """What a process is told; `folder` has the number of the newest tick, and what was passed."""

    url: str
    database: str
    contracts: Contracts
    genesis_hash: Hash32
    worker_secrets: tuple[bytes, ...]
    folder: Path
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
            rpc=WatchedCalls(rpc, "rpc", watch),
            db=WatchedPool(pool, watch),  # type: ignore[arg-type]
            contracts=order.contracts,
            signer=WatchedCalls(world.poster, "signer", watch),
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
            await watch.all_of(settlement.step(await _block(world, tick)))
            if tick > REORG_AT + REORG_DEPTH and not await pool.fetchval(_OPEN):
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


async def _block(world: World, tick: int) -> Any:
    price_wei = _SPIKE_WEI if tick in SPIKE else _CALM_WEI
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(price_wei)])
    return await (world.reorg(REORG_DEPTH) if tick == REORG_AT else world.mine())


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
