"""Results that come between two blocks share the transaction that is made before the next."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inferd.settlement import posting
from inferd.settlement.engine import Settlement
from inferd.settlement.intervals import rhythm_s
from inferd.settlement.settings import PausedReason
from tests.settlement.scripted import ScriptedRpc, no_answer
from tests.settlement.world import World

INTERVAL_S = 5
GATHERS = {"delay_price_wei_per_s": 10**18, "guard_s": 6.0, "lead_s": 1.5, "refunds": False}
"""Each result is worth a post of its own."""


class Clock:
    """What the node's clock shows: the chain's time at first, then what the test says."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def with_rhythm(world: World, clock: Clock, ids: int = 3) -> tuple[Settlement, list[int]]:
    """A chain of 5-s blocks with open requests, seen at the time of its head."""
    await world.rpc.request("anvil_setBlockTimestampInterval", [INTERVAL_S])
    requests = await world.submit(ids)
    head = await world.mine(30)
    settlement = world.settlement(now=clock, **GATHERS)
    clock.now_s = float(head.timestamp_s)
    return settlement, requests


async def posts(world: World) -> list[int]:
    """How many results each post has, in the order in which they were made."""
    rows = await world.pool.fetch(
        "SELECT count(*) AS results FROM node.tx_intent i JOIN node.tx_item t ON t.intent_id = i.id"
        " WHERE i.kind = 'post' GROUP BY i.id ORDER BY i.id"
    )
    return [row["results"] for row in rows]


async def test_three_that_finish_between_two_blocks_go_out_together(world: World) -> None:
    clock = Clock()
    settlement, ids = await with_rhythm(world, clock)
    head = await world.index()
    began_s = clock.now_s
    for part_s, request_id in zip((0.5, 1.5, 3.0), ids, strict=True):
        clock.now_s = began_s + part_s
        await world.compute([request_id], age_s=0)
        assert await settlement.step(head) == began_s + 3.5
        assert await posts(world) == []
    assert "wait for others that come before the next block" in settlement.status.posting
    clock.now_s = began_s + 3.5
    assert await settlement.step(head) is None
    assert await posts(world) == [3]
    await world.tick(settlement)
    assert set((await world.statuses()).values()) == {"fulfilled"}


async def test_one_that_comes_after_the_decision_waits_for_the_next(world: World) -> None:
    clock = Clock()
    settlement, ids = await with_rhythm(world, clock, 2)
    head, began_s = await world.index(), clock.now_s
    await world.compute(ids[:1], age_s=0)
    await settlement.step(head)
    clock.now_s = began_s + 4.0
    await settlement.step(head)
    await world.compute(ids[1:], age_s=0)
    assert await settlement.step(head) == began_s + 8.5
    assert await posts(world) == [1]
    clock.now_s = began_s + INTERVAL_S
    await world.tick(settlement)
    assert await posts(world) == [1]
    clock.now_s = began_s + 8.5
    await settlement.step(await world.index())
    assert await posts(world) == [1, 1]


async def test_where_the_block_fails_to_come_it_is_decided_with_the_one_after(world: World) -> None:
    clock = Clock()
    settlement, ids = await with_rhythm(world, clock, 2)
    head, began_s = await world.index(), clock.now_s
    await world.compute(ids[:1], age_s=0)
    clock.now_s = began_s + 4.0
    await settlement.step(head)
    clock.now_s = began_s + 20.0
    await world.compute(ids[1:], age_s=0)
    await settlement.step(head)
    assert await posts(world) == [1, 1]


async def test_a_block_that_comes_early_does_not_put_it_off_again(world: World) -> None:
    clock = Clock()
    settlement, ids = await with_rhythm(world, clock)
    await world.compute(ids, age_s=0)
    await settlement.step(await world.index())
    clock.now_s += 1.0
    await world.tick(settlement)
    assert await posts(world) == [3]


async def test_trouble_behind_it_does_not_make_it_miss_its_moment(world: World) -> None:
    clock = Clock()
    diary = await world.new_diary()
    owed = await world.ask_by(diary)
    await world.compute([owed])
    await world.tick(world.settlement(), 2)
    rpc = ScriptedRpc(world.rpc)
    _, ids = await with_rhythm(world, clock)
    settlement = world.settlement(rpc, now=clock, **GATHERS)
    await world.compute(ids, age_s=0)
    head, began_s = await world.index(), clock.now_s
    rpc.always("call", no_answer)
    assert await settlement.step(head) == began_s + 3.5
    assert settlement.status.paused_reason is PausedReason.RPC_TROUBLE
    # Where nothing was decided, there is no moment: it is not due again and again.
    rpc.always("balance", no_answer)
    clock.now_s = began_s + 4.0
    assert await settlement.step(head) is None


async def test_a_moment_that_comes_within_a_step_is_not_over_for_who_was_put_off_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that may not share a transaction, the first is put off and the second is not."""
    monkeypatch.setattr(posting, "companies", lambda found, _: [(one,) for one in found])
    clock = Clock()
    settlement, ids = await with_rhythm(world, clock, 2)
    head, began_s = await world.index(), clock.now_s
    await world.compute(ids, age_s=0)

    def passing() -> float:
        put_off = "wait for others" in settlement.status.posting or clock.now_s > began_s
        return began_s + (3.6 if put_off else 3.4)

    settlement._poster._now = passing
    assert await settlement.step(head) == began_s + 3.5
    assert await posts(world) == [1]
    clock.now_s = began_s + 3.6
    await settlement.step(head)
    assert await posts(world) == [1, 1]


async def test_a_near_deadline_does_not_wait(world: World) -> None:
    clock = Clock()
    settlement, _ = await with_rhythm(world, clock, 1)
    (urgent,) = await world.submit(1, lifetime_s=16)
    await world.compute([urgent], age_s=0)
    head = await world.mine()
    clock.now_s = float(head.timestamp_s)
    await settlement.step(head)
    assert await posts(world) == [1]


async def test_a_chain_without_a_rhythm_has_none_to_wait_for(world: World) -> None:
    clock = Clock()
    settlement, ids = await with_rhythm(world, clock)
    await world.rpc.request("anvil_removeBlockTimestampInterval", [])
    for step_s in (1, 30, 2, 70, 9, 1, 44, 3) * 3:
        await world.rpc.request("evm_increaseTime", [step_s])
        await world.rpc.request("anvil_mine", [1])
    head = await world.index()
    clock.now_s = float(head.timestamp_s)
    for made, request_id in enumerate(ids, start=1):
        await world.compute([request_id], age_s=0)
        await settlement.step(head)
        assert await posts(world) == [1] * made


@pytest.mark.parametrize(
    ("steps_s", "rhythm"),
    [
        ([], 0.0),
        ([12, 12, 12], 0.0),
        ([12] * 4, 12.0),
        ([12] * 15 + [24, 36] * 2, 12.0),
        ([0, 1] * 10, 0.0),
        ([2] * 20, 2.0),
        ([11, 12, 13, 12, 15, 9], 12.0),
        ([1, 30, 2, 70, 9, 1, 44, 3], 0.0),
        ([3600] * 20, 0.0),
    ],
)
def test_rhythm(steps_s: Sequence[int], rhythm: float) -> None:
    blocks, at_s = [(0, 1_000)], 1_000
    for number, step_s in enumerate(steps_s, start=1):
        at_s += step_s
        blocks.append((number, at_s))
    assert rhythm_s(blocks) == rhythm
