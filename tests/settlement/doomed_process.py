"""A process that settles what is in the tables, and dies where it is told to.

It has the lock and the fence of a daemon, mines its own blocks, and indexes them. What befalls the
chain is a story of `stories`, which goes on in the next process.
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

from indexer.database import Fence, open_pool
from indexer.rpc import Rpc, RpcError
from indexer.types import Address, Contracts, Hash32
from inferd.chain.anvil import Anvil, load_anvil_config
from inferd.chain.signers import LocalSigner
from inferd.chain.transact import Sender
from inferd.node.leader import become_leader
from inferd.settlement.engine import Settlement
from inferd.settlement.settings import SettlementSettings
from inferd.settlement.state import LIVE_SQL
from tests.settlement.scripted import ScriptedRpc, answer_lost
from tests.settlement.stories import POSTERS, Story, befall, signer_of
from tests.settlement.watched_io import Watch, WatchedCalls, WatchedPool
from tests.settlement.world import POST_AT_ONCE, POSTER_BPS, World

MAX_TICKS = 30
_EMPTY_POST_BYTES = 300
"""More than a transaction without effect has."""
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
    story: Story
    die_at: str | None = None


def processes() -> Any:
    """Starts processes as forks of one that has imported everything: a run is cheap."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "tests.settlement.warm"])
    return context


def run(order: Order) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    asyncio.run(_run(order))


async def _run(order: Order) -> None:
    story, watch = order.story, Watch(order.die_at)
    leadership = await become_leader(order.database, "doomed")
    pool = await open_pool(order.database, max_size=4)
    async with Rpc([order.url]) as rpc:
        world = _world(order, rpc, pool)
        counter = order.folder / "tick"
        tick = int(counter.read_text()) if counter.exists() else 0
        scripted = ScriptedRpc(rpc)
        _twist(scripted, story, tick)
        settlement, account = None, -1
        while True:
            tick += 1
            if tick > MAX_TICKS:
                raise TimeoutError("it comes to no end")
            counter.write_text(str(tick))
            if tick == story.refused_until:
                scripted.always("send_raw_transaction", None)
            if settlement is None or story.key_at(tick) != account:
                account = story.key_at(tick)
                world.poster = signer_of(world, account)
                settlement = _settlement(world, scripted, story, watch, leadership.fence)
            head = await befall(world, story, tick)
            watch.at(f"at the beginning of step {tick}")
            await watch.all_of(settlement.step(head))
            if tick > story.told_after and not await _open(world, story):
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


def _settlement(
    world: World, rpc: ScriptedRpc, story: Story, watch: Watch, fence: Fence
) -> Settlement:
    return Settlement(
        rpc=WatchedCalls(rpc, "rpc", watch),
        db=WatchedPool(world.pool, watch),  # type: ignore[arg-type]
        contracts=world.contracts,
        signers=[WatchedCalls(world.poster, "signer", watch)],
        sign_group=WatchedCalls(world, "worker", watch).sign_group,
        settings=SettlementSettings(poster_bps=POSTER_BPS, **{**POST_AT_ONCE, **story.settings}),
        fence=fence,
    )


def _twist(rpc: ScriptedRpc, story: Story, tick: int) -> None:
    """What the endpoint does to this process."""
    if story.lost_send:
        passing = [_as_it_is] * (story.lost_send - 1)
        rpc.then("send_raw_transaction", *passing, answer_lost)
    if tick + 1 < story.refused_until:
        rpc.always("send_raw_transaction", _refused_for_good)


async def _refused_for_good(real: Any, raw: bytes) -> Any:
    """But for what is without effect."""
    if len(raw) > _EMPTY_POST_BYTES:
        raise RpcError(-32000, "tx fee exceeds the configured cap")
    return await real(raw)


async def _as_it_is(real: Any, *args: Any) -> Any:
    return await real(*args)


async def _open(world: World, story: Story) -> int:
    left: int = await world.pool.fetchval(_OPEN)
    if not left and story.until_final:
        left = await world.pool.fetchval(
            "SELECT count(*) FROM node.tx_intent WHERE state <> 'final'"
        )
    return left


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
        poster=LocalSigner(config.account(POSTERS[0])),
    )
