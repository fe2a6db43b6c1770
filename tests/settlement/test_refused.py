"""Signed bytes that an endpoint does not take: they hold up all later ones, so they must end."""

from __future__ import annotations

from typing import Any

from indexer.rpc import RpcError
from inferd.settlement.settings import PausedReason
from tests.settlement.scripted import Script, ScriptedRpc, error, no_answer
from tests.settlement.world import GWEI, World

CAP_WEI = 1_300_000_000  # less than twice the base fee: a first attempt offers all of it
OVER_FEE_CAP = "tx fee (1.20 ether) exceeds the configured cap (1.00 ether)"


async def _one_ready(world: World, lifetime_s: int = 3_600) -> int:
    (request_id,) = await world.submit(1, lifetime_s=lifetime_s)
    await world.compute([request_id])
    return request_id


def _never_the_first(seen: list[bytes]) -> Script:
    """Refuses, for good, the first bytes that it is shown."""

    async def script(real: Any, raw: bytes) -> Any:
        seen.append(raw)
        if raw == seen[0]:
            raise RpcError(-32000, OVER_FEE_CAP)
        return await real(raw)

    return script


async def test_refused_as_too_cheap_at_the_cap_is_sent_again_each_block(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", error("transaction underpriced"))
    settlement = world.settlement(rpc, max_fee_per_gas_wei=CAP_WEI)
    head = await world.index()
    for _ in range(3):
        await settlement.step(head)
    assert rpc.count("send_raw_transaction") == 1
    assert settlement.status.paused_reason is PausedReason.GAS_PRICE_OVER_CAP
    assert settlement.status.last_error == "transaction underpriced"
    (attempt,) = await world.attempts()
    assert (attempt["max_fee_wei"], attempt["state"]) == (CAP_WEI, "signed")
    more = await world.submit(2)
    await world.compute(more)
    await world.tick(settlement, 5)
    assert settlement.status.paused_reason is None
    assert await world.fulfilled_events() == dict.fromkeys([request_id, *more], 1)


async def test_base_fee_jumps_over_the_cap_between_look_and_send(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)

    async def jump(real: Any, raw: bytes) -> Any:
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(20 * GWEI)])
        await world.rpc.request("anvil_mine", [1])
        return await real(raw)

    rpc.then("send_raw_transaction", jump)
    settlement = world.settlement(rpc, max_fee_per_gas_wei=CAP_WEI)
    await settlement.step(await world.index())
    (attempt,) = await world.attempts()
    assert "less than block base fee" in attempt["error"]
    for _ in range(6):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI // 10)])
        await world.tick(settlement)
    assert await world.fulfilled_events() == {request_id: 1}


async def test_a_price_is_raised_once_per_block_at_most(world: World) -> None:
    await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    rpc.always("send_raw_transaction", error("replacement transaction underpriced"))
    settlement = world.settlement(rpc)
    head = await world.index()
    for blocks in range(1, 4):
        for _ in range(4):
            await settlement.step(head)
        assert len(await world.attempts()) == blocks
        head = await world.mine()
    assert settlement.status.paused_reason is PausedReason.GAS_PRICE_OVER_CAP


async def test_refused_for_good_gives_its_nonce_and_its_items_back(world: World) -> None:
    request_id = await _one_ready(world)
    await world.decide([b"\x01" * 32])
    rpc = ScriptedRpc(world.rpc)
    seen: list[bytes] = []
    rpc.always("send_raw_transaction", _never_the_first(seen))
    settlement = world.settlement(rpc, max_refused_blocks=3)
    await settlement.step(await world.index())
    for _ in range(2):
        assert settlement.status.paused_reason is PausedReason.TRANSACTION_REFUSED
        assert settlement.status.last_error == OVER_FEE_CAP
        await world.tick(settlement)
    assert set(seen) == {seen[0]}
    more = await world.submit(2)
    await world.compute(more)
    await world.tick(settlement, 8)
    assert settlement.status.paused_reason is None
    assert await world.fulfilled_events() == dict.fromkeys([request_id, *more], 1)
    first, *others = await world.intents()
    assert (first["state"], first["outcome"]) == ("cancelled", "refused")
    assert {intent["state"] for intent in others} == {"confirmed"}
    refused, noop = (await world.attempts())[:2]
    assert (refused["nonce"], refused["state"]) == (0, "dropped")
    assert (noop["nonce"], noop["state"], noop["status"]) == (0, "mined", 1)
    assert noop["gas_used"] < 30_000
    assert await world.posted() == await world.pool.fetchval("SELECT next_nonce FROM node.sender")
    assert (await world.items())[request_id] == ["refused", "settled"]
    # The decisions are anchored by another post.
    assert await world.pool.fetchval("SELECT intent_id FROM node.decision") != first["id"]


async def test_refused_and_no_longer_wanted_is_not_sent_any_more(world: World) -> None:
    request_id = await _one_ready(world, lifetime_s=300)
    rpc = ScriptedRpc(world.rpc)
    seen: list[bytes] = []
    rpc.always("send_raw_transaction", _never_the_first(seen))
    settlement = world.settlement(rpc, refunds=False)
    await settlement.step(await world.index())
    await world.rpc.request("evm_increaseTime", [600])
    await world.tick(settlement)
    assert len(seen) == 2
    await world.tick(settlement, 3)
    (intent,) = await world.intents()
    assert (intent["state"], intent["outcome"]) == ("cancelled", "not_wanted")
    assert await world.items() == {request_id: [None]}
    assert await world.posted() == 1
    assert not await world.pool.fetchval("SELECT count(*) FROM node.tx_item WHERE live")


async def test_bytes_given_up_are_mined_after_all(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    rpc.always("send_raw_transaction", error(OVER_FEE_CAP))
    settlement = world.settlement(rpc, max_refused_blocks=2)
    await world.tick(settlement, 3)
    post, noop = await world.attempts()
    assert post["nonce"] == noop["nonce"]
    await world.rpc.send_raw_transaction(post["raw"])  # by another node, which had it all along
    await world.tick(settlement, 3)
    (intent,) = await world.intents()
    assert intent["state"] == "confirmed"
    assert await world.items() == {request_id: ["settled"]}
    assert await world.fulfilled_events() == {request_id: 1}


async def test_an_item_that_no_endpoint_takes_is_given_up(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)

    async def only_small(real: Any, raw: bytes) -> Any:
        if len(raw) > 300:
            raise RpcError(-32000, "forbidden")
        return await real(raw)

    rpc.always("send_raw_transaction", only_small)
    settlement = world.settlement(
        rpc, max_refused_blocks=2, max_item_failures=2, resend_after_blocks=1
    )
    await world.tick(settlement, 16)
    assert await world.items() == {request_id: ["refused", "abandoned"]}
    assert settlement.status.abandoned == 1
    assert await world.posted() == 2


async def test_a_gap_filler_has_no_effect_to_take_away(world: World) -> None:
    """It is itself the transaction without effect: it is sent until it is taken."""
    await world.poster_transfer(0)
    await world.mine()
    request_id = await _one_ready(world)
    settlement = world.settlement()
    head = await world.index()
    await settlement.step(head)
    await world.rpc.request("anvil_reorg", [4, []])
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", *[error(OVER_FEE_CAP)] * 12)
    settlement = world.settlement(rpc, max_refused_blocks=2)
    await world.tick(settlement, 30)
    fillers = [i for i in await world.intents() if i["reason"] == "fill_nonce_gap"]
    assert [filler["state"] for filler in fillers] == ["confirmed"]
    assert request_id


async def test_a_gap_whose_bytes_nobody_takes_is_filled_by_others(world: World) -> None:
    """A foreign transaction took the nonce of a refused post, and a reorganisation takes it back
    when the same post is live under the next nonce."""
    request_id = await _one_ready(world)
    before = await world.index()
    rpc = ScriptedRpc(world.rpc)
    rpc.always("send_raw_transaction", _never_the_first([]))
    settlement = world.settlement(rpc)
    await settlement.step(before)
    await world.poster_transfer(0)
    await world.tick(settlement, 2)
    head = await world.index()
    assert [i["state"] for i in await world.intents()] == ["cancelled", "broadcast"]
    await world.rpc.request("anvil_reorg", [head.number - before.number, []])
    assert await world.posted() == 0
    await world.tick(settlement, 10)
    assert await world.fulfilled_events() == {request_id: 1}
    assert [i["reason"] for i in await world.intents()].count("fill_nonce_gap") == 1
    assert await world.posted() == await world.pool.fetchval("SELECT next_nonce FROM node.sender")


async def test_a_pool_that_takes_no_more_is_waited_for_and_nothing_is_given_up(
    world: World,
) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    no_room = error("in-flight transaction limit reached for delegated accounts")
    rpc.always("send_raw_transaction", no_room)
    settlement = world.settlement(rpc, max_refused_blocks=2, max_item_failures=1)
    await world.tick(settlement, 5)
    assert settlement.status.paused_reason is PausedReason.TRANSACTION_REFUSED
    rpc.always("send_raw_transaction", None)
    await world.tick(settlement, 4)
    assert len(await world.attempts()) == 1
    assert await world.items() == {request_id: ["settled"]}


async def test_signed_and_wanted_in_part_is_sent(world: World) -> None:
    """Another settled one of two before any endpoint had ours: the rest is worth the nonce."""
    ids = await world.submit(2)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", no_answer)
    settlement = world.settlement(rpc)
    await settlement.step(await world.index())
    await world.post_by_a_stranger(ids[0])
    await settlement.step(await world.index())
    await world.tick(settlement, 3)
    assert len(await world.attempts()) == 1
    assert await world.items() == {ids[0]: ["skipped:already_settled"], ids[1]: ["settled"]}


async def test_refusals_before_it_was_taken_count_no_more(world: World) -> None:
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc, max_refused_blocks=2)
    for _ in range(2):
        rpc.then("send_raw_transaction", error(OVER_FEE_CAP))
        await world.rpc.request("anvil_dropAllTransactions", [])
        await settlement.step(await world.mine())
        await settlement.step(await world.mine())  # now it is taken
    await world.tick(settlement, 3)
    assert len(await world.attempts()) == 1
    assert await world.items() == {request_id: ["settled"]}
