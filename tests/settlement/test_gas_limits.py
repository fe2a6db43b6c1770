"""Storage can turn dearer between the estimate and the block: no result is blamed for that."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from indexer.types import BlockRef, Hash32, Wei
from inferd.settlement.chain import Sight
from inferd.settlement.fees import Market
from inferd.settlement.launch import fresh_slots, gas_cap, gas_limit
from scheduler.gas import calldata_floor
from scheduler.model import GasModel
from tests.settlement.scripted import ScriptedRpc
from tests.settlement.world import ETHER, World


def test_limit_covers_every_slot_that_may_be_fresh_by_then() -> None:
    assert gas_limit(100_000, 0, 10**6) == 120_000
    assert gas_limit(100_001, 0, 10**6) == 120_002
    assert gas_limit(100_000, 0, 10**6, slots=3) == 100_000 + 3 * 17_100
    assert gas_limit(900_000, 0, 10**7, slots=3) == 1_080_000
    assert gas_limit(100_000, 200_000, 10**6, slots=3) == 200_000
    assert gas_limit(100_000, 0, 130_000, slots=3) == 130_000
    assert fresh_slots(2, [1, 255]) == 3
    assert fresh_slots(2, [255, 256, 512]) == 5


@given(
    st.integers(21_000, 10**8),
    st.integers(0, 10**8),
    st.integers(21_000, 10**8),
    st.integers(0, 300),
    st.binary(max_size=4_000),
)
def test_limit_is_between_what_a_node_takes_at_least_and_at_most(
    estimate: int, expected: int, cap: int, slots: int, calldata: bytes
) -> None:
    floor = calldata_floor(calldata)
    limit = gas_limit(estimate, expected, cap, slots=slots, floor=floor)
    assert limit <= cap
    assert limit == cap or limit >= max(floor, estimate * 6 / 5, expected)
    assert floor >= 21_000 + 10 * len(calldata)
    assert calldata_floor(calldata + b"\x00") == floor + 10
    assert calldata_floor(calldata + b"\x01") == floor + 40


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_cap_is_the_least_of_all_caps(max_gas: int, block_gas_limit: int) -> None:
    head = BlockRef(1, Hash32(bytes(32)), 0, Wei(1), block_gas_limit)
    sight = Sight(head, Market(1, 1), 0, 0, 0, 0)
    assert gas_cap(max_gas, sight) == min(max_gas, block_gas_limit, 16_777_216)


async def test_a_limit_at_the_floor_is_taken_by_a_node(world: World) -> None:
    """A call whose execution is cheap and whose bytes are many: the node wants the floor."""
    noop = b"\x01" * 5_000
    sender = world.requester
    await world.automine(True)
    receipt = await sender.send(sender.address, noop)
    assert receipt.gas_used == calldata_floor(noop)
    await world.automine(False)


async def test_owner_and_poster_withdraw_in_the_block_of_the_post(world: World) -> None:
    settlement = world.settlement(gas_window=3)
    for _ in range(6):  # until the gas model knows what a post costs where no slot is fresh
        await world.compute(await world.submit(1))
        await world.tick(settlement, 3)
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    await settlement.step(await world.index())
    await world.withdraw_first(0)
    await world.tick(settlement, 3)
    assert (await world.items())[request_id] == ["settled"]
    assert settlement.status.failed_transactions == 0
    last = (await world.attempts())[-1]
    assert last["status"] == 1


async def test_requester_withdraws_in_the_block_of_its_refund(world: World) -> None:
    settlement = world.settlement()
    for _ in range(2):
        ids = await world.submit(2, lifetime_s=5)
        await world.rpc.request("evm_increaseTime", [10])
        await settlement.step(await world.mine())
        if await world.credit(world.requester.address):
            await world.withdraw_first(1)
        await world.tick(settlement, 3)
    assert {(await world.items())[one][0] for one in ids} == {"refunded"}
    assert settlement.status.failed_transactions == 0


async def test_out_of_gas_is_answered_by_a_higher_limit_and_blames_nobody(world: World) -> None:
    ids = await world.submit(2)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)

    async def far_too_little(real: Any, *args: Any) -> int:
        estimate: int = await real(*args)
        return estimate // 3

    rpc.always("estimate_gas", far_too_little)
    settlement = world.settlement(rpc, gas_prior=GasModel(21_000, 1, 1), max_item_failures=1)
    await world.tick(settlement, 10)
    assert settlement.status.failed_transactions >= 1
    assert settlement.status.abandoned == 0
    failed, *_, done = await world.intents()
    assert (failed["state"], failed["outcome"]) == ("failed", "out_of_gas")
    assert (done["state"], done["gas_limit"] // failed["gas_limit"]) == ("confirmed", 2)
    assert await world.items() == {one: ["out_of_gas", "settled"] for one in ids}
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await world.credit(world.poster.address) == 2 * ETHER // 100 // 5


async def test_a_revert_that_is_not_for_gas_is_retried_apart_and_ends(world: World) -> None:
    """Our contract has no such revert; whatever it is, it must not burn the poster's money on."""
    ids = await world.submit(2)
    await world.compute(ids)
    settlement = world.settlement(max_item_failures=2)
    results = "0x" + world.contracts.results.hex()
    code = await world.rpc.request("eth_getCode", [results, "latest"])
    for _ in range(12):
        await settlement.step(await world.index())
        await world.rpc.request("anvil_setCode", [results, "0x5f5ffd"])  # reverts at once
        await world.mine()
        await world.rpc.request("anvil_setCode", [results, code])
    assert [intent["outcome"] for intent in await world.intents()] == ["reverted"] * 3
    counts = await world.pool.fetch(
        "SELECT count(*) AS n FROM node.tx_item GROUP BY intent_id ORDER BY intent_id"
    )
    assert [row["n"] for row in counts] == [2, 1, 1]  # together, then each alone
    assert await world.items() == {one: ["reverted", "abandoned"] for one in ids}
    assert (settlement.status.abandoned, settlement.status.failed_transactions) == (2, 3)


async def test_what_burns_all_the_gas_there_may_be_is_given_up(world: World) -> None:
    """A higher limit is the answer as long as there is one; after that its results are to blame."""
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    settlement = world.settlement(max_item_failures=1, max_gas=250_000)
    results = "0x" + world.contracts.results.hex()
    code = await world.rpc.request("eth_getCode", [results, "latest"])
    for _ in range(10):
        await settlement.step(await world.index())
        await world.rpc.request("anvil_setCode", [results, "0xfe"])  # takes all that it is given
        await world.mine()
        await world.rpc.request("anvil_setCode", [results, code])
    limits = [intent["gas_limit"] for intent in await world.intents()]
    assert limits[0] < limits[-1] == 250_000
    assert await world.items() == {request_id: [*["out_of_gas"] * (len(limits) - 1), "abandoned"]}
