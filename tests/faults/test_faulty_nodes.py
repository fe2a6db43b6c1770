"""Settlement through nodes that lose, lag, refuse and forget; their pools obey geth's rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from indexer.rpc import Rpc
from inferd.settlement.engine import Settlement
from inferd.settlement.settings import PausedReason
from scheduler.model import GasModel
from tests.faults.exchange import Exchange
from tests.faults.geth_pool import GethPool, read
from tests.faults.rpc_faults import Fault, HangUp, HttpStatus, NullResult
from tests.faults.rpc_plans import Always, Calm, Plan
from tests.faults.rpc_proxy import rpc_proxy
from tests.settlement.conftest import anvil, slots_in_an_epoch, world
from tests.settlement.world import ETHER, GWEI, World

__all__ = ["anvil", "slots_in_an_epoch", "world"]

SEND = frozenset({"eth_sendRawTransaction"})
RECEIPT = frozenset({"eth_getTransactionReceipt"})
LOOK_UP = RECEIPT | {"eth_getTransactionByHash"}
FEE_WEI = ETHER // 10


@dataclass
class Node:
    """A plan: the node's own pool, and after it whatever else befalls the answer."""

    pool: GethPool = field(default_factory=GethPool)
    also: Plan = field(default_factory=Calm)
    away: bool = False

    def faults(self, exchange: Exchange) -> Sequence[Fault]:
        if self.away:
            return [HangUp(unasked=True)]
        return [self.pool, *self.also.faults(exchange)]


@dataclass
class Stage:
    """Two nodes with different pools before one chain; the second is used where the first fails."""

    world: World
    nodes: tuple[Node, Node]
    rpc: Rpc

    @property
    def node(self) -> Node:
        return self.nodes[0]

    def settlement(self, **settings: Any) -> Settlement:
        return self.world.settlement(self.rpc, **settings)

    async def ready(self, count: int = 1, *, batchable: bool = True) -> list[int]:
        ids = await self.world.submit(count, fee_wei=FEE_WEI, batchable=batchable)
        await self.world.compute(ids)
        return ids

    async def tick(self, settlement: Settlement, blocks: int = 1, *, by: int = 0) -> None:
        for _ in range(blocks):
            await self.nodes[by].pool.mine(self.world.rpc)
            await settlement.step(await self.world.index())

    async def settled_once(self, ids: Sequence[int], transactions: int = 1) -> None:
        world = self.world
        assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
        assert await world.posted() == transactions
        assert [intent["outcome"] for intent in await world.intents()] == ["done"] * transactions
        nonces = {attempt["nonce"] for attempt in await world.attempts()}
        assert nonces == set(range(transactions))
        assert await world.credit(world.poster.address) == len(ids) * FEE_WEI // 5


@pytest.fixture
async def stage(world: World) -> AsyncIterator[Stage]:
    nodes = Node(), Node()
    async with (
        rpc_proxy(world.anvil.url, nodes[0]) as first,
        rpc_proxy(world.anvil.url, nodes[1]) as second,
        Rpc([first.url, second.url], timeout_s=2) as rpc,
    ):
        yield Stage(world, nodes, rpc)


@pytest.fixture
async def alone(world: World) -> AsyncIterator[Stage]:
    """The same with one node, which nobody stands in for."""
    node = Node()
    async with rpc_proxy(world.anvil.url, node) as proxy, Rpc([proxy.url], timeout_s=2) as rpc:
        yield Stage(world, (node, node), rpc)


async def test_response_lost_after_acceptance(alone: Stage) -> None:
    ids = await alone.ready()
    alone.node.also = Always([HangUp()], SEND)
    settlement = alone.settlement()
    await settlement.step(head := await alone.world.index())
    assert [intent["state"] for intent in await alone.world.intents()] == ["unknown"]
    alone.node.also = Calm()
    await settlement.step(head)
    (attempt,) = await alone.world.attempts()
    assert (attempt["state"], attempt["sends"]) == ("broadcast", 1)
    await alone.tick(settlement, 3)
    await alone.settled_once(ids)
    assert set(alone.node.pool.refused) <= {"already known"}


async def test_already_known(alone: Stage) -> None:
    """Sent, the answer lost, and not shown either: the same bytes are sent again."""
    ids = await alone.ready()
    alone.node.also = Always([HangUp()], SEND)
    await alone.settlement().step(head := await alone.world.index())
    alone.node.also = Always([NullResult()], LOOK_UP)
    settlement = alone.settlement()
    await settlement.step(head)
    assert alone.node.pool.refused[-1] == "already known"
    (attempt,) = await alone.world.attempts()
    assert attempt["state"] == "broadcast"
    assert settlement.status.last_error is None
    alone.node.also = Calm()
    await alone.tick(settlement, 3)
    await alone.settled_once(ids)


async def test_nonce_too_low_for_our_own_mined_transaction(alone: Stage) -> None:
    ids = await alone.ready()
    alone.node.also = Always([HangUp()], SEND)
    settlement = alone.settlement()
    await settlement.step(head := await alone.world.index())
    await alone.node.pool.mine(alone.world.rpc)
    alone.node.also = Always([NullResult()], LOOK_UP)
    await settlement.step(head)
    assert alone.node.pool.refused[-1].startswith("nonce too low")
    (attempt,) = await alone.world.attempts()
    assert "nonce too low" in attempt["error"]
    alone.node.also = Calm()
    await settlement.step(await alone.world.index())
    await alone.tick(settlement, 2)
    await alone.settled_once(ids)


async def test_underpriced_by_the_pool_s_least_tip(alone: Stage) -> None:
    ids = await alone.ready()
    alone.node.pool.min_tip_wei = 3 * GWEI
    settlement = alone.settlement()
    await settlement.step(await alone.world.index())
    assert [text.partition(":")[0] for text in alone.node.pool.refused] == [
        "transaction underpriced"
    ]
    await alone.tick(settlement, 16)
    await alone.settled_once(ids)


@pytest.mark.parametrize(
    ("fee_percent", "tip_percent"), [(104, 80), (80, 104)], ids=["max_fee", "tip"]
)
async def test_replacement_underpriced_on_either_field(
    alone: Stage, fee_percent: int, tip_percent: int
) -> None:
    """Somebody with our key was there first: in one field ours is less than a tenth dearer."""
    ids = await alone.ready()
    settlement = alone.settlement()
    alone.node.also = Always([HangUp(unasked=True)], SEND)
    await settlement.step(head := await alone.world.index())
    (ours,) = await alone.world.attempts()
    pool = alone.node.pool
    pool.held.clear()
    foreign = await alone.world.poster.sign(
        {
            "type": 2,
            "chainId": alone.world.contracts.chain_id,
            "nonce": 0,
            "to": alone.world.poster.address,
            "value": 0,
            "data": b"",
            "gas": 21_000,
            "maxFeePerGas": ours["max_fee_wei"] * fee_percent // 100,
            "maxPriorityFeePerGas": ours["priority_fee_wei"] * tip_percent // 100,
        }
    )
    theirs = read(foreign.raw)
    pool.held[theirs.slot] = theirs
    alone.node.also = Calm()
    await settlement.step(head)
    assert pool.refused[-1] == "replacement transaction underpriced"
    for _ in range(3):
        await alone.world.rpc.request("anvil_mine", [1])  # nothing that is pooled fits into it
        await settlement.step(await alone.world.index())
    assert pool.held[theirs.slot].may_replace(theirs)
    await alone.tick(settlement, 3)
    await alone.settled_once(ids)


async def test_every_replacement_is_one_that_geth_takes(alone: Stage) -> None:
    ids = await alone.ready()
    settlement = alone.settlement()
    await settlement.step(await alone.world.index())
    for _ in range(8):
        await alone.world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(40 * GWEI)])
        await alone.tick(settlement)
    assert len(await alone.world.attempts()) >= 2
    assert alone.node.pool.refused == []
    await alone.world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
    await alone.tick(settlement, 3)
    await alone.settled_once(ids)


async def test_posts_that_share_a_pool_never_overdraw_the_account(alone: Stage) -> None:
    """geth adds up all that it holds of a sender: what would be refused is not signed."""
    ids = await alone.ready(1, batchable=False)
    settlement = alone.settlement(max_in_flight=5)
    await settlement.step(await alone.world.index())
    (first,) = await alone.world.attempts()
    most_wei = first["max_fee_wei"] * first["gas_limit"]
    await alone.world.set_balance(5 * most_wei // 2)
    ids += await alone.ready(3, batchable=False)
    await settlement.step(await alone.world.index())
    assert len(alone.node.pool.held) == len(await alone.world.attempts()) == 2
    assert settlement.status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    for _ in range(3):
        await alone.world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(4 * GWEI)])
        await alone.tick(settlement)
    await alone.world.set_balance(ETHER)
    await alone.tick(settlement, 8)
    assert set(alone.node.pool.refused) <= {"already known"}
    await alone.settled_once(ids, 4)


async def test_future_nonce_refused(world: World) -> None:
    """The first is in the pool of a relay that is away; the other takes no nonce after a gap."""
    nodes = Node(), Node(GethPool(gapless=True))
    async with (
        rpc_proxy(world.anvil.url, nodes[0]) as first,
        rpc_proxy(world.anvil.url, nodes[1]) as second,
        Rpc([world.anvil.url], send_urls=[first.url, second.url], timeout_s=2) as rpc,
    ):
        stage = Stage(world, nodes, rpc)
        ids = await stage.ready()
        settlement = stage.settlement(pool_visible=False)
        await settlement.step(await world.index())
        nodes[0].away = True
        more = await stage.ready()
        await settlement.step(await world.index())
        assert nodes[1].pool.refused[:1] == ["nonce too high"]
        assert settlement.status.paused_reason is PausedReason.TRANSACTION_REFUSED
        await stage.tick(settlement, 8, by=1)
        await stage.settled_once([*ids, *more], 2)


async def test_pool_eviction(alone: Stage) -> None:
    ids = await alone.ready()
    settlement = alone.settlement()
    await settlement.step(head := await alone.world.index())
    (before,) = await alone.world.attempts()
    alone.node.pool.held.clear()
    await settlement.step(head)
    (after,) = await alone.world.attempts()
    assert (after["raw"], after["sends"]) == (before["raw"], 2)
    await alone.tick(settlement, 3)
    await alone.settled_once(ids)


async def test_receipt_null_then_present(alone: Stage) -> None:
    ids = await alone.ready()
    settlement = alone.settlement()
    await settlement.step(await alone.world.index())
    alone.node.also = Always([NullResult()], RECEIPT)
    await alone.tick(settlement, 4)
    assert [intent["state"] for intent in await alone.world.intents()] == ["broadcast"]
    alone.node.also = Calm()
    await alone.tick(settlement)
    await alone.settled_once(ids)


@dataclass(frozen=True)
class OldReceipt:
    """A node that still shows the receipt of a block which is no more."""

    receipt: Any

    async def apply(self, exchange: Exchange) -> None:
        await exchange.change_results(lambda call, result: result or self.receipt)


@pytest.mark.parametrize("blocks", [1, 3], ids=["mined", "confirmed"])
async def test_receipt_from_a_reorged_block(alone: Stage, blocks: int) -> None:
    ids = await alone.ready()
    settlement = alone.settlement()
    await settlement.step(await alone.world.index())
    await alone.tick(settlement, blocks)
    (attempt,) = await alone.world.attempts()
    old = await alone.world.rpc.request("eth_getTransactionReceipt", ["0x" + attempt["hash"].hex()])
    await alone.node.pool.reorg(alone.world.rpc, blocks)
    await alone.world.rpc.request("anvil_mine", [1])
    alone.node.also = Always([OldReceipt(old)], RECEIPT)
    head = await alone.world.index()
    await settlement.step(head)
    await settlement.step(head)
    assert [intent["state"] for intent in await alone.world.intents()] == ["broadcast"]
    first, *_ = await alone.world.attempts()
    assert first["sends"] == 1  # geth pooled it again by itself
    assert alone.node.pool.refused == []
    alone.node.also = Calm()
    await alone.tick(settlement, 4)
    await alone.settled_once(ids)


@dataclass(frozen=True)
class LowEstimate:
    async def apply(self, exchange: Exchange) -> None:
        await exchange.change_results(lambda call, result: hex(int(result, 16) // 3))


async def test_estimate_too_low__a_reverted_receipt_and_a_higher_limit(alone: Stage) -> None:
    ids = await alone.ready(2)
    alone.node.also = Always([LowEstimate()], frozenset({"eth_estimateGas"}))
    settlement = alone.settlement(gas_prior=GasModel(21_000, 1, 1), max_item_failures=1)
    await settlement.step(await alone.world.index())
    await alone.tick(settlement, 8)
    failed, *_, done = await alone.world.intents()
    assert (failed["state"], failed["outcome"]) == ("failed", "out_of_gas")
    assert done["outcome"] == "done"
    assert await alone.world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert settlement.status.abandoned == 0


async def test_two_nodes_with_different_pools(stage: Stage) -> None:
    """The second has never heard of it: it gets the same bytes, and whichever mines them does."""
    ids = await stage.ready()
    settlement = stage.settlement()
    await settlement.step(head := await stage.world.index())
    stage.node.away = True
    await settlement.step(head)
    await settlement.step(head)
    first, second = (list(node.pool.held.values()) for node in stage.nodes)
    assert first == second != []
    await stage.nodes[0].pool.mine(stage.world.rpc)
    stage.node.away = False
    await settlement.step(await stage.world.index())
    await stage.tick(settlement, 3, by=1)
    await stage.settled_once(ids)


@pytest.mark.parametrize("taken", [True, False])
async def test_429_in_mid_send(alone: Stage, taken: bool) -> None:
    """A gateway says it, before or after the node behind it has the transaction."""
    ids = await alone.ready()
    alone.node.also = Always([HttpStatus(429)], SEND)
    settlement = alone.settlement()
    await settlement.step(head := await alone.world.index())
    if not taken:
        alone.node.pool.held.clear()
    assert settlement.status.paused_reason is PausedReason.RPC_TROUBLE
    assert [intent["state"] for intent in await alone.world.intents()] == ["unknown"]
    alone.node.also = Calm()
    await settlement.step(head)
    await alone.tick(settlement, 4)
    await alone.settled_once(ids)
    (attempt,) = await alone.world.attempts()
    assert attempt["sends"] == (1 if taken else 2)
