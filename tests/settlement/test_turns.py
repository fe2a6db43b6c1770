"""A rival who is first again and again: what we lose teaches us to wait, and what to count on."""

from __future__ import annotations

import pytest

from inferd.settlement.engine import Settlement
from inferd.settlement.rivalry import MEMORY_BLOCKS, WIDEST_BLOCKS
from tests.settlement.rival import Rival
from tests.settlement.world import ETHER, GWEI, POSTER_BPS, World

_EAGER = {"guard_s": 2.0, "delay_price_wei_per_s": ETHER, "confirmations": 1}
_ALREADY = "skipped:already_settled"


async def _race(world: World, rival: Rival, settlement: Settlement, requests: int = 1) -> bool:
    """More requests; whether we sent something for them before the rival's post was mined."""
    ids = await world.submit(requests)
    await world.compute(ids)
    before = len(await world.intents())
    await settlement.step(await world.index())
    await world.rpc.send_raw_transaction(await rival.signed_post(ids))
    await world.tick(settlement)
    assert {(await world.statuses())[one] for one in ids} == {"fulfilled"}
    return len(await world.intents()) > before


async def _has_lost(world: World, settlement: Settlement) -> Rival:
    rival = await Rival(world).register()
    assert await _race(world, rival, settlement, 6)
    await world.tick(settlement, 2)
    return rival


async def test_who_loses_waits_and_saves_its_gas(world: World) -> None:
    settlement = world.settlement(**_EAGER)
    rival = await _has_lost(world, settlement)
    later = [await _race(world, rival, settlement) for _ in range(8)]
    assert sum(later) <= 4  # a wait can be none; five of eight are so once in ten thousand times
    assert {outcome for each in (await world.items()).values() for outcome in each} == {_ALREADY}
    assert await world.credit(world.poster.address) == 0


async def test_what_the_rival_leaves_is_posted_within_the_window(world: World) -> None:
    settlement = world.settlement(**_EAGER)
    await _has_lost(world, settlement)
    ids = await world.submit(8)
    await world.compute(ids)
    await settlement.step(await world.index())
    assert "waiting for a turn, as others were first" in settlement.status.posting
    assert settlement.status.ready > 0
    await world.tick(settlement, WIDEST_BLOCKS + 1)
    assert {(await world.statuses())[one] for one in ids} == {"fulfilled"}
    items = await world.items()
    assert all(items[one] == ["settled"] for one in ids)
    assert await world.posted() > 2  # each at its own turn


async def test_a_deadline_comes_before_a_turn(world: World) -> None:
    settlement = world.settlement(**_EAGER)
    await _has_lost(world, settlement)
    ids = await world.submit(8)
    await world.compute(ids)
    head = await world.index()
    near = world.settlement(**{**_EAGER, "guard_s": 1e9})
    await near.step(head)
    assert {item for item in await world.items() if item in ids} == set(ids)


async def test_after_a_while_without_a_post_nobody_waits(world: World) -> None:
    settlement = world.settlement(**_EAGER)
    await _has_lost(world, settlement)
    await world.mine(MEMORY_BLOCKS)
    ids = await world.submit(8)
    await world.compute(ids)
    await settlement.step(await world.index())
    assert {item for item in await world.items() if item in ids} == set(ids)


@pytest.mark.parametrize("lost", [False, True])
async def test_what_pays_only_for_the_first_is_not_sent_by_a_likely_second(
    world: World, lost: bool
) -> None:
    settlement = world.settlement(**_EAGER)
    # The slots of the credits are written before.
    await world.compute(await world.submit(1))
    await world.tick(settlement, 3)
    await _has_lost(world, settlement) if lost else None
    head = await world.mine()
    gas = await settlement.gas_model()
    single_gas = gas.fixed_gas + gas.per_group_gas + gas.per_result_gas
    single_wei = single_gas * (head.base_fee_wei + settlement.status.tip_wei)
    fee_wei = single_wei * 3 // 2 * 10_000 // POSTER_BPS // GWEI * GWEI
    (request_id,) = await world.submit(1, fee_wei=fee_wei)
    await world.compute([request_id])
    near = world.settlement(**{**_EAGER, "guard_s": 1e9})
    await near.step(await world.index())
    assert (request_id in await world.items()) == (not lost)


async def test_a_rival_seen_in_the_pool_is_left_the_result(world: World) -> None:
    settlement = world.settlement(**_EAGER)
    rival = await _has_lost(world, settlement)
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    await world.rpc.send_raw_transaction(await rival.signed_post([request_id]))
    near = world.settlement(**{**_EAGER, "guard_s": 1e9})
    await near.step(await world.index())
    assert request_id not in await world.items()
    await world.tick(near, 2)
    assert (await world.statuses())[request_id] == "fulfilled"
