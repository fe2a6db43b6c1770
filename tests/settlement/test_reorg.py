"""A reorganisation takes the transaction with the results: the same bytes settle them again."""

from __future__ import annotations

import pytest

from tests.settlement.world import World


@pytest.mark.parametrize(
    ("blocks_after", "state_before"),
    [(0, "broadcast"), (1, "mined"), (2, "confirmed"), (6, "confirmed")],
)
async def test_reorg_over_a_post(world: World, blocks_after: int, state_before: str) -> None:
    ids = await world.submit(2)
    await world.compute(ids)
    settlement = world.settlement(confirmations=2)
    await settlement.step(await world.index())
    await world.rpc.request("anvil_mine", [1])  # the post is in this block
    if state_before != "broadcast":
        await settlement.step(await world.index())
        await world.tick(settlement, blocks_after - 1)
    (intent,) = await world.intents()
    assert intent["state"] == state_before
    (before,) = await world.attempts()

    head = await world.reorg(max(blocks_after, 1))
    assert await world.posted() == 0
    assert set((await world.statuses()).values()) == {"pending"}
    await settlement.step(head)
    (intent,) = await world.intents()
    assert intent["state"] == "broadcast"
    assert await world.pool.fetchval("SELECT count(*) FROM node.tx_item WHERE live") == 2
    await world.tick(settlement, 3)

    assert set((await world.statuses()).values()) == {"fulfilled"}
    (after,) = await world.attempts()
    assert after["raw"] == before["raw"]
    assert await world.posted() == 1
    assert [i["state"] for i in await world.intents()] == ["confirmed"]
    assert await world.items() == {one: ["settled"] for one in ids}
    # Whatever was closed, opened and closed again: it counts as often as the chain has it.
    status = settlement.status
    assert (status.confirmed_transactions, status.items_by_outcome) == (1, {"settled": 2})
    assert status.gas_spent_wei == after["gas_used"] * after["effective_gas_price_wei"]


async def test_later_work_goes_on_behind_a_transaction_that_came_back(world: World) -> None:
    (first,) = await world.submit(1)
    await world.compute([first])
    settlement = world.settlement()
    await world.tick(settlement, 4)
    (second,) = await world.submit(1)
    depth = 4  # the post, two empty blocks, and the block of the second request
    await world.reorg(depth)
    (third,) = await world.submit(1)
    assert third == second  # the id is another request's now
    await world.compute([third])
    await world.tick(settlement, 6)
    assert set((await world.statuses()).values()) == {"fulfilled"}
    assert await world.fulfilled_events() == {first: 1, third: 1}
    assert await world.posted() == 2


async def test_a_closed_transaction_that_moved_to_another_block_is_followed_there(
    world: World,
) -> None:
    ids = await world.submit(1)
    await world.compute(ids)
    settlement = world.settlement()
    await world.tick(settlement, 4)
    (before,) = await world.attempts()
    assert [intent["state"] for intent in await world.intents()] == ["confirmed"]
    # Deeper than the confirmations, and the new branch has the same bytes, in another block.
    head = await world.index()
    depth = head.number - before["mined_block"] + 1
    await world.rpc.request("anvil_reorg", [depth, [["0x" + before["raw"].hex(), 1]]])
    await world.tick(settlement, 4)
    receipt = await world.rpc.receipt(before["hash"])
    assert receipt is not None
    assert receipt.block_hash != before["mined_block_hash"]
    (after,) = await world.attempts()
    assert (after["state"], after["mined_block"]) == ("mined", receipt.block_number)
    assert after["mined_block_hash"] == receipt.block_hash
    assert [intent["state"] for intent in await world.intents()] == ["confirmed"]
    assert await world.items() == {ids[0]: ["settled"]}
    assert not await world.pool.fetchval("SELECT count(*) FROM node.tx_item WHERE live")
