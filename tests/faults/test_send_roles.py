"""Transactions go to relays whose pools nobody sees, the chain is read elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from indexer.database import Pool
from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil
from inferd.chain.transact import Sender
from inferd.settlement.engine import Settlement
from inferd.settlement.settings import PausedReason
from tests.faults.private_relay import PrivateRelay
from tests.faults.rpc_faults import ErrorObject, HangUp, NullResult
from tests.faults.rpc_plans import Always, Calm, InOrder
from tests.faults.rpc_proxy import RpcProxy, rpc_proxy
from tests.settlement.world import GWEI, World, build_world

SEND = frozenset({"eth_sendRawTransaction"})
LOOK_UP = frozenset({"eth_getTransactionReceipt", "eth_getTransactionByHash"})


@pytest.fixture
async def world(anvil: Anvil, pool: Pool) -> AsyncIterator[World]:
    async with Rpc([anvil.url]) as rpc:
        yield await build_world(anvil, rpc, pool)


@dataclass
class Stage:
    """Two relays before one chain, and the client that sends to them and reads from the chain."""

    world: World
    relays: tuple[PrivateRelay, PrivateRelay]
    proxies: tuple[RpcProxy, RpcProxy]
    rpc: Rpc

    def settlement(self, **settings: Any) -> Settlement:
        return self.world.settlement(self.rpc, pool_visible=False, **settings)

    async def include(self, relay: int = 0) -> None:
        await self.relays[relay].include(self.world.rpc)

    async def ready(self) -> int:
        (request_id,) = await self.world.submit(1)
        await self.world.compute([request_id])
        return request_id

    async def settled_once(self, request_id: int) -> None:
        assert await self.world.fulfilled_events() == {request_id: 1}
        assert await self.world.posted() == 1
        assert [intent["outcome"] for intent in await self.world.intents()] == ["done"]
        assert {attempt["nonce"] for attempt in await self.world.attempts()} == {0}


@pytest.fixture
async def stage(world: World) -> AsyncIterator[Stage]:
    url = world.anvil.url
    relays = PrivateRelay(), PrivateRelay()
    async with (
        rpc_proxy(url, Always([relays[0]])) as first,
        rpc_proxy(url, Always([relays[1]])) as second,
        Rpc([url], send_urls=[first.url, second.url], timeout_s=2) as rpc,
    ):
        yield Stage(world, relays, (first, second), rpc)


async def test_an_unseen_transaction_is_left_alone_until_it_is_overdue(stage: Stage) -> None:
    request_id = await stage.ready()
    settlement = stage.settlement()
    await settlement.step(await stage.world.index())
    await settlement.step(await stage.world.index())
    await stage.world.tick(settlement)
    (attempt,) = await stage.world.attempts()
    assert (attempt["state"], attempt["sends"]) == ("broadcast", 1)
    assert stage.relays[0].taken == 1
    await stage.world.tick(settlement)
    cheap, dear = await stage.world.attempts()
    assert (cheap["nonce"], cheap["state"]) == (dear["nonce"], "replaced")
    assert dear["max_fee_wei"] * 8 >= cheap["max_fee_wei"] * 9
    await stage.include()
    await stage.world.tick(settlement, 3)
    await stage.settled_once(request_id)
    assert stage.relays[1].taken == 0


async def test_a_relay_that_loses_all_gets_the_same_nonce_again(stage: Stage) -> None:
    """At the cap there is no dearer transaction: the same bytes, every second block."""
    request_id = await stage.ready()
    head = await stage.world.index()
    settlement = stage.settlement(max_fee_per_gas_wei=2 * head.base_fee_wei + GWEI)
    await settlement.step(head)
    for _ in range(6):
        stage.relays[0].held.clear()
        await stage.world.tick(settlement)
    attempts = await stage.world.attempts()
    assert len(await stage.world.intents()) == 1
    assert {attempt["nonce"] for attempt in attempts} == {0}
    assert 3 <= stage.relays[0].taken <= 4
    await stage.include()
    await stage.world.tick(settlement, 3)
    await stage.include()
    await stage.world.tick(settlement, 3)
    await stage.settled_once(request_id)


async def test_a_restart_sends_the_same_bytes_once_more(stage: Stage) -> None:
    request_id = await stage.ready()
    await stage.settlement().step(head := await stage.world.index())
    again = stage.settlement()
    await again.step(head)
    await again.step(head)
    (attempt,) = await stage.world.attempts()
    assert (attempt["state"], attempt["sends"], stage.relays[0].taken) == ("broadcast", 2, 2)
    await stage.include()
    await stage.world.tick(again, 3)
    await stage.settled_once(request_id)


async def test_after_a_reorg_the_relay_gets_the_bytes_at_once(stage: Stage) -> None:
    request_id = await stage.ready()
    settlement = stage.settlement()
    await settlement.step(await stage.world.index())
    await stage.include()
    await stage.world.tick(settlement)
    assert [intent["state"] for intent in await stage.world.intents()] == ["mined"]
    await settlement.step(await stage.world.reorg(1))
    (attempt,) = await stage.world.attempts()
    assert (attempt["state"], stage.relays[0].taken) == ("broadcast", 2)
    await stage.include()
    await stage.world.tick(settlement, 3)
    await stage.settled_once(request_id)


async def test_the_older_of_two_in_different_pools_is_mined(stage: Stage) -> None:
    request_id = await stage.ready()
    settlement = stage.settlement()
    await settlement.step(await stage.world.index())
    stage.proxies[0].plan = Always([HangUp(unasked=True)])
    await stage.world.tick(settlement, 2)
    assert [relay.taken for relay in stage.relays] == [1, 1]
    await stage.include(0)
    await stage.world.tick(settlement, 3)
    await stage.settled_once(request_id)
    states = [attempt["state"] for attempt in await stage.world.attempts()]
    assert states == ["mined", "replaced"]


async def test_an_answer_lost_by_one_relay_sends_the_same_bytes_to_the_next(stage: Stage) -> None:
    request_id = await stage.ready()
    first = stage.relays[0]
    stage.proxies[0].plan = Always([first, HangUp()], SEND)
    settlement = stage.settlement()
    await settlement.step(await stage.world.index())
    assert stage.relays[0].held == stage.relays[1].held != []
    assert (await stage.world.attempts())[0]["state"] == "broadcast"
    await stage.include(0)
    await stage.include(1)
    await stage.world.tick(settlement, 3)
    await stage.settled_once(request_id)


async def test_no_relay_answers__nothing_is_lost_and_no_other_endpoint_gets_it(
    stage: Stage,
) -> None:
    request_id = await stage.ready()
    for proxy in stage.proxies:
        proxy.plan = Always([HangUp(unasked=True)], SEND)
    settlement = stage.settlement()
    await settlement.step(await stage.world.index())
    assert settlement.status.paused_reason is PausedReason.RPC_TROUBLE
    await stage.world.tick(settlement)
    assert (await stage.world.rpc.request("txpool_status"))["pending"] == "0x0"
    (attempt,) = await stage.world.attempts()
    assert (attempt["state"], attempt["nonce"]) == ("unknown", 0)
    for proxy, relay in zip(stage.proxies, stage.relays, strict=True):
        proxy.plan = Always([relay])
    await stage.world.tick(settlement)
    await stage.include(0)
    await stage.include(1)
    await stage.world.tick(settlement, 4)
    await stage.settled_once(request_id)


async def test_a_refusal_counts_though_another_relay_is_silent(stage: Stage) -> None:
    """Else a price that is too low would never be raised while one relay is away."""
    request_id = await stage.ready()
    too_cheap = ErrorObject(-32000, "transaction underpriced")
    stage.proxies[0].plan = InOrder([too_cheap], SEND)
    stage.proxies[1].plan = Always([HangUp(unasked=True)])
    settlement = stage.settlement()
    await settlement.step(await stage.world.index())
    (attempt,) = await stage.world.attempts()
    assert "underpriced" in attempt["error"]
    stage.proxies[0].plan = Always([stage.relays[0]])
    await stage.world.tick(settlement)
    assert len(await stage.world.attempts()) == 2
    await stage.include()
    await stage.world.tick(settlement, 3)
    await stage.settled_once(request_id)


async def test_a_read_node_that_lags_behind_the_sending_one(world: World) -> None:
    """It is mined where it was sent to; for the other node there is no such transaction yet."""
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    async with (
        rpc_proxy(world.anvil.url) as reading,
        Rpc([reading.url], send_urls=[world.anvil.url]) as rpc,
    ):
        settlement = world.settlement(rpc, pool_visible=False)
        head = await world.index()
        await settlement.step(head)
        await world.rpc.request("anvil_mine", [1])
        reading.plan = Always([NullResult()], LOOK_UP)
        await settlement.step(head)
        restarted = world.settlement(rpc, pool_visible=False)
        await restarted.step(head)
        (attempt,) = await world.attempts()
        assert "nonce too low" in attempt["error"]
        assert attempt["state"] == "broadcast"
        # Its nonce is spent in the newest block, by whom does not show yet.
        await restarted.step(await world.index())
        assert [intent["state"] for intent in await world.intents()] == ["broadcast"]
        reading.plan = Calm()
        await world.tick(restarted, 2)
    assert await world.fulfilled_events() == {request_id: 1}
    assert [intent["outcome"] for intent in await world.intents()] == ["done"]
    assert await world.posted() == 1


async def test_commands_count_the_nonces_that_the_read_node_does_not_see(stage: Stage) -> None:
    world = stage.world
    account = world.anvil.config.account(5)
    sender = Sender(stage.rpc, account, world.contracts.chain_id)
    sends = [asyncio.create_task(sender.send(sender.address, b"")) for _ in range(3)]
    async with asyncio.timeout(20):
        while len(stage.relays[0].held) < 3:
            await asyncio.sleep(0.01)
    await stage.include()
    await world.rpc.request("anvil_mine", [1])
    receipts = await asyncio.gather(*sends)
    assert len({receipt.tx_hash for receipt in receipts}) == 3
