"""What the next block asks for gas, as the head, its parent and the node tell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.rpc import FeeHistory, RpcError
from indexer.rpc.market import next_base_fee_of, recent_tip, suggested_tip
from indexer.types import BlockRef, Hash32, Wei
from inferd.settlement.chain import Sight, look
from inferd.settlement.rollups import Rollup
from scheduler.gas import base_fee_bound, next_base_fee
from tests.settlement.scripted import ScriptedRpc, answer, error
from tests.settlement.world import GWEI, World

NO_METHOD = error("the method does not exist/is not available", -32601)
MOST_TIP_WEI = 10 * GWEI


def history(
    *tips: int, fullness: tuple[float, ...] | None = None, base_fees: tuple[int, ...] = ()
) -> FeeHistory:
    return FeeHistory(
        7,
        tuple(Wei(fee) for fee in base_fees),
        fullness or (0.5,) * len(tips),
        tuple((Wei(tip),) for tip in tips),
    )


async def seen(world: World, rpc: ScriptedRpc, head: BlockRef) -> Sight:
    rollup = Rollup(rpc, world.contracts.chain_id)
    return await look(rpc, world.pool, world.poster.address, head, 2, rollup, MOST_TIP_WEI)


def block(number: int, base_fee_wei: int) -> BlockRef:
    return BlockRef(number, Hash32(bytes(32)), 0, Wei(base_fee_wei), 30_000_000)


async def test_a_head_that_follows_the_rule_needs_no_word_of_the_node(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    await world.submit(2)
    head = await world.mine(2)
    sight = await seen(world, rpc, head)
    assert sight.market.base_fee_wei == next_base_fee(head.base_fee_wei, 0, head.gas_limit)
    assert rpc.count("fee_history") == 0
    assert await world.rpc.fee_history(1, newest=head.number) is not None
    mined = await world.mine()
    assert mined.base_fee_wei == sight.market.base_fee_wei


@pytest.mark.parametrize(
    ("told", "taken"),
    [
        (2 * GWEI + 1, 2 * GWEI + 1),
        (2 * GWEI, 2 * GWEI),
        (40 * GWEI, 4 * GWEI),
        (0, GWEI),
    ],
)
async def test_where_it_does_not_the_node_is_believed_within_bounds(
    world: World, told: int, taken: int
) -> None:
    rpc = ScriptedRpc(world.rpc)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(2 * GWEI)])
    head = await world.mine()
    assert head.base_fee_wei == 2 * GWEI
    of_chain = FeeHistory(head.number, (head.base_fee_wei, Wei(told)), (0.0,), ())
    rpc.always("fee_history", answer(of_chain))
    assert (await seen(world, rpc, head)).market.base_fee_wei == taken


async def test_without_a_history_the_rule_has_the_last_word(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(2 * GWEI)])
    head = await world.mine()
    rpc.always("fee_history", NO_METHOD)
    by_rule = next_base_fee(head.base_fee_wei, 0, head.gas_limit)
    assert (await seen(world, rpc, head)).market.base_fee_wei == by_rule
    rpc.always("fee_history", answer(history(base_fees=(GWEI, GWEI))))  # of other blocks
    assert (await seen(world, rpc, head)).market.base_fee_wei == by_rule
    unknown = BlockRef(
        head.number, Hash32(b"\x01" * 32), head.timestamp_s, head.base_fee_wei, head.gas_limit
    )
    rpc.always("request", answer("0x0"))
    bound = base_fee_bound(head.base_fee_wei, 1)
    assert (await seen(world, rpc, unknown)).market.base_fee_wei == bound


async def test_a_base_fee_of_nothing_is_not_a_chain_without_one(world: World) -> None:
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", ["0x0"])
    head = await world.mine()
    assert head.base_fee_wei == 0
    request_ids = await world.submit(1)
    await world.compute(request_ids)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", ["0x0"])
    head = await world.mine()
    sight = await seen(world, ScriptedRpc(world.rpc), head)
    assert sight.market.dynamic
    assert sight.market.base_fee_wei <= 1
    settlement = world.settlement()
    await settlement.step(head)
    (attempt,) = await world.attempts()
    assert attempt["raw"][0] == 2
    for _ in range(3):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", ["0x0"])
        await world.tick(settlement)
    assert await world.fulfilled_events() == dict.fromkeys(request_ids, 1)


class Node:
    """What it suggests, and what its blocks took."""

    def __init__(self, suggested: int | None, recent: FeeHistory | RpcError) -> None:
        self.suggested, self.recent = suggested, recent

    async def max_priority_fee(self) -> Wei | None:
        return None if self.suggested is None else Wei(self.suggested)

    async def fee_history(self, *asked: Any) -> FeeHistory:
        if isinstance(self.recent, RpcError):
            raise self.recent
        return self.recent


async def test_a_suggested_tip_is_believed_up_to_a_bound() -> None:
    calm = history(1 * GWEI, 3 * GWEI, 2 * GWEI)
    none = RpcError(-32601, "no such method")
    assert await suggested_tip(Node(5, none), 10) == 5
    assert await suggested_tip(Node(900 * GWEI, calm), MOST_TIP_WEI) == 2 * GWEI
    assert await suggested_tip(Node(None, calm), MOST_TIP_WEI) == 2 * GWEI
    assert await suggested_tip(Node(11, history(20)), 10) == 11
    assert await suggested_tip(Node(900 * GWEI, none), MOST_TIP_WEI) == 900 * GWEI
    assert await suggested_tip(Node(None, none), MOST_TIP_WEI) == 0
    with pytest.raises(RpcError):
        await suggested_tip(Node(None, RpcError(-32603, "internal error")), MOST_TIP_WEI)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.sampled_from([0.0, 0.3, 1.0]))))
def test_empty_blocks_say_nothing_of_tips(blocks: list[tuple[int, float]]) -> None:
    fullness = tuple(full for _, full in blocks)
    tip = recent_tip(history(*(tip for tip, _ in blocks), fullness=fullness))
    offered = sorted(tip for tip, full in blocks if full)
    assert tip == (offered[len(offered) // 2] if offered else None)


def test_a_history_is_of_the_block_that_is_asked_for() -> None:
    known = history(base_fees=(5, 6, 7))
    assert next_base_fee_of(known, block(7, 5)) == 6
    assert next_base_fee_of(known, block(8, 6)) == 7
    assert next_base_fee_of(known, block(8, 5)) is None
    assert next_base_fee_of(known, block(9, 7)) is None
    assert next_base_fee_of(known, block(6, 5)) is None
