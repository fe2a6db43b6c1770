"""Settlement by several processes at the same time, each with keys of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from indexer.database import Fence, Pool
from indexer.types import HOUR_S, Address
from inferd.chain.signers import SignedTx, TransactionSigner
from inferd.node.leader import SETTLING, Leadership, LostLeadership, become_part, poster_role
from inferd.node.part import SharedLocks
from inferd.settlement.engine import Settlement
from inferd.settlement.orders import Order, answer_of, give
from inferd.settlement.purse import spent_on_work_wei
from tests.settlement.test_posters import Posters, posters
from tests.settlement.world import World

__all__ = ["posters"]

CHAIN_ID = 31337


class Meeting:
    """A signer that signs its first when the other one is about to as well, if that can be."""

    def __init__(self, signer: TransactionSigner, here: asyncio.Event, there: asyncio.Event):
        self._signer, self._here, self._there = signer, here, there

    @property
    def address(self) -> Address:
        return self._signer.address

    async def sign(self, transaction: Mapping[str, Any]) -> SignedTx:
        if not self._here.is_set():
            self._here.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._there.wait()
        return await self._signer.sign(transaction)


def process(
    world: World, leadership: Leadership, signer: TransactionSigner, **settings: int
) -> Settlement:
    """Settlement in a process with that key."""

    async def claim(poster: Address) -> Fence | None:
        return await leadership.claim(poster_role(CHAIN_ID, poster))

    return world.settlement(
        signers=[signer],
        claim=claim,
        fence=leadership.fence_in_turn,
        sharing=SharedLocks(leadership, CHAIN_ID),
        **settings,
    )


async def part_with(database: str, signer: TransactionSigner) -> Leadership:
    return await become_part(database, "settler", [], [poster_role(CHAIN_ID, signer.address)])


@asynccontextmanager
async def both(database: str, posters: Posters) -> AsyncIterator[tuple[Leadership, Leadership]]:
    async with AsyncExitStack() as stack:
        found = []
        for signer in (posters.first, posters.second):
            leadership = await part_with(database, signer)
            stack.push_async_callback(leadership.release)
            found.append(leadership)
        one, other = found
        yield one, other


async def committed_wei(world: World) -> int:
    async with world.pool.acquire() as connection:
        return await spent_on_work_wei(connection, HOUR_S)


async def test_what_may_be_spent_holds_for_all_processes_together(
    world: World, posters: Posters, database: str
) -> None:
    await posters.ready(1)
    await world.tick(posters.settlement, 4)
    (attempt,) = await world.attempts()
    one_wei = attempt["max_fee_wei"] * attempt["gas_limit"]
    cap_wei = await committed_wei(world) + 7 * one_wei // 2
    await posters.ready(8)
    here, there = asyncio.Event(), asyncio.Event()
    signers = Meeting(posters.first, here, there), Meeting(posters.second, there, here)
    async with both(database, posters) as leaderships:
        settlements = [
            process(world, leadership, signer, max_in_flight=8, cap_wei_per_hour=cap_wei)
            for leadership, signer in zip(leaderships, signers, strict=True)
        ]
        for _ in range(3):
            head = await world.index()
            await asyncio.gather(*(settlement.step(head) for settlement in settlements))
            assert await committed_wei(world) <= cap_wei
        # With room for eight, both together begin what one alone could.
        assert 3 <= await posters.live_items() < 8


async def test_processes_with_keys_of_their_own_settle_each_result_once(
    world: World, posters: Posters, database: str
) -> None:
    ids = await posters.ready(8)
    async with both(database, posters) as leaderships:
        settlements = [
            process(world, leadership, signer, max_in_flight=2)
            for leadership, signer in zip(leaderships, (posters.first, posters.second), strict=True)
        ]
        head = await world.index()
        for _ in range(8):
            await asyncio.gather(*(settlement.step(head) for settlement in settlements))
            head = await world.mine()
        assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
        assert await posters.sent() == [4, 4]
        # What one has seen to be final, the other forgets as well.
        await world.rpc.request("anvil_mine", [hex(100)])
        for _ in range(3):
            head = await world.index()
            for settlement in settlements:
                await settlement.step(head)
        assert [settlement.status.ended for settlement in settlements] == [[], []]


async def test_a_key_whose_process_is_away_is_followed_and_left_to_the_next(
    world: World, posters: Posters, database: str
) -> None:
    ids = await posters.ready(2)
    async with both(database, posters) as (one, other):
        settlement = process(world, one, posters.first, max_in_flight=2)
        gone = process(world, other, posters.second, max_in_flight=2)
        await gone.step(await world.index())
        await other.release()
        async with asyncio.timeout(60):
            while await one.is_elsewhere(poster_role(CHAIN_ID, posters.second.address)):
                await asyncio.sleep(0.05)
        for _ in range(4):
            await settlement.step(await world.mine())
        assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
        assert await posters.sent() == [0, 2]
        # It has given the lock back: the next process with the key need not wait.
        async with asyncio.timeout(60):
            successor = await part_with(database, posters.second)
        await successor.release()


async def test_an_order_about_a_key_of_another_process_is_left_to_it(
    world: World, posters: Posters, database: str
) -> None:
    await posters.ready(1)
    async with both(database, posters) as (one, other):
        settlement = process(world, one, posters.first, max_in_flight=0)
        its = process(world, other, posters.second, max_in_flight=2)
        head = await world.index()
        await its.step(head)
        ((intent_id,),) = await world.pool.fetch("SELECT id FROM node.tx_intent")
        async with world.pool.acquire() as connection:
            order = await give(connection, Order.CANCEL, intent_id, "test")
        await settlement.step(head)
        async with world.pool.acquire() as connection:
            assert await answer_of(connection, order) is None
        await its.step(head)
        async with world.pool.acquire() as connection:
            assert "takes its nonce" in (await answer_of(connection, order) or "")


async def test_who_lost_its_turn_unnoticed_writes_nothing(
    world: World, posters: Posters, pool: Pool, database: str
) -> None:
    async with both(database, posters) as (one, other):
        async with one.turn(SETTLING):
            waiting = asyncio.create_task(_turn_of(other))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            async with pool.acquire() as connection, connection.transaction():
                await one.fence_in_turn(connection)
            await pool.execute("UPDATE node.leader SET epoch = epoch + 1 WHERE role = $1", SETTLING)
            with pytest.raises(LostLeadership, match=SETTLING):
                async with pool.acquire() as connection, connection.transaction():
                    await one.fence_in_turn(connection)
        async with asyncio.timeout(30):
            await waiting


async def _turn_of(leadership: Leadership) -> None:
    async with leadership.turn(SETTLING):
        pass
