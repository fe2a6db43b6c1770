"""Indexes the chain from nothing, by the running node where there is one and else by itself."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from indexer.database import Pool
from indexer.follow import Indexer
from indexer.rebuild import empty_tables
from indexer.rpc import Rpc
from indexer.store import load_cursor
from indexer.types import Contracts, Hash32
from inferd.node.leader import Leadership, become_leader, displace_leader
from inferd.node.settings import IndexSettings

_LOOK_EVERY_S = 0.2
_NO_LEADER_WITHIN_S = 3.0


async def rebuild(
    rpc: Rpc,
    pool: Pool,
    contracts: Contracts,
    *,
    database_url: str,
    genesis_hash: Hash32,
    settings: IndexSettings,
    target: int,
    tell: Callable[[int], None],
    note: Callable[[str], None],
) -> int:
    """Empties the tables and returns the newest indexed block once `target` is indexed again.

    `tell` hears of each block that the tables reach. In between no decision is made on tables that
    are not whole: a running node is displaced by the very transaction that empties them, and rests
    until it has caught up. Raises what the indexer raises, DatabaseUnreachable.
    """
    holder = f"{socket.gethostname()}:{os.getpid()} (rebuild)"
    leadership = await _lead_if_nobody_does(database_url, holder)
    if leadership is None:
        async with pool.acquire() as connection, connection.transaction():
            await displace_leader(connection, holder)
            await empty_tables(connection)
        note("a node is running: it indexes the chain anew; leaving this command does not stop it")
        return await _reached(pool, target, tell)
    try:
        async with pool.acquire() as connection, connection.transaction():
            await leadership.fence(connection)
            await empty_tables(connection)
        indexer = Indexer(
            rpc,
            pool,
            contracts,
            genesis_hash=genesis_hash,
            window_blocks=settings.window_blocks,
            poll_interval_s=settings.poll_interval_s,
            fence=leadership.fence,
        )
        work = asyncio.create_task(indexer.run())
        watch = asyncio.create_task(_reached(pool, target, tell))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            return await watch
        finally:
            for task in (work, watch):
                task.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)
    finally:
        await leadership.release()


async def _lead_if_nobody_does(url: str, holder: str) -> Leadership | None:
    """None where another process leads, and goes on to."""
    try:
        async with asyncio.timeout(_NO_LEADER_WITHIN_S):
            return await become_leader(url, holder)
    except TimeoutError:
        return None


async def _reached(pool: Pool, target: int, tell: Callable[[int], None]) -> int:
    while True:
        async with pool.acquire() as connection:
            cursor = await load_cursor(connection)
        if cursor is not None:
            tell(cursor.number)
            if cursor.number >= target:
                return cursor.number
        await asyncio.sleep(_LOOK_EVERY_S)
