"""Base fees of a market, block by block: no post at a loss, and no deadline lost that could have
been met within the cap."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from indexer.types import Wei
from inferd.chain.requester import submit_many
from inferd.protocol.request import RequestParams, model_id
from tests.settlement.scripted import ScriptedRpc, answer
from tests.settlement.world import GWEI, POSTER_BPS, World

_BLOCK_S = 12
_MWEI = 10**6
_BPS = 10_000
_TIP_WEI = 5 * _MWEI
_SINGLE_GAS = 62_000
"""Of a post of one result, once the slots of the credits are written; 58,300 as measured."""
_NOTHING_GAS = 22_000
_SETTLING_BLOCKS = 12
_RHYTHM_BLOCKS = 22
"""Blocks before the series: how far apart they are is measured on these."""

_RECORDED_MWEI = (
    *(
        78,
        71,
        65,
        73,
        78,
        70,
        73,
        77,
        79,
        74,
        69,
        75,
        78,
        82,
        77,
        77,
        74,
        77,
        75,
        71,
        70,
        70,
        71,
        69,
    ),
    *(
        71,
        67,
        69,
        67,
        68,
        62,
        58,
        64,
        60,
        65,
        63,
        59,
        54,
        55,
        62,
        62,
        66,
        63,
        58,
        59,
        55,
        56,
        63,
        66,
    ),
    *(
        65,
        65,
        67,
        65,
        66,
        61,
        63,
        60,
        68,
        75,
        76,
        76,
        71,
        76,
        75,
        69,
        64,
        72,
        76,
        73,
        69,
        77,
        73,
        74,
    ),
    *(
        69,
        73,
        73,
        73,
        72,
        72,
        72,
        66,
        72,
        71,
        66,
        67,
        59,
        65,
        65,
        69,
        67,
        68,
        68,
        69,
        67,
        70,
        62,
        70,
    ),
    *(66, 73, 68, 74, 78, 77, 68, 62, 64, 72, 79, 81, 84, 86, 80, 86, 93, 88, 99, 97, 103, 93, 103),
    98,
)
"""Base fees of Ethereum's blocks from 24,338,039 on, of 2026-01-29, rounded."""


def recorded() -> list[int]:
    return [mwei * _MWEI for mwei in _RECORDED_MWEI]


def spike() -> list[int]:
    """Ten times as dear within 20 full blocks, dear for some, and back as empty blocks go."""
    fees = [50 * _MWEI] * 20
    while fees[-1] < 500 * _MWEI:
        fees.append(fees[-1] * 9 // 8)
    fees += [fees[-1]] * 6
    while fees[-1] > 50 * _MWEI:
        fees.append(fees[-1] * 7 // 8)
    return fees + [50 * _MWEI] * 12


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request of the series: its result is there after `ready` blocks."""

    ready: int
    fee_wei: int
    deadline_s: int

    @property
    def revenue_wei(self) -> int:
        return self.fee_wei * POSTER_BPS // _BPS


def _requests(series: Sequence[int], begin_s: int, dice: random.Random) -> list[_Asked]:
    usual_wei = sorted(series)[len(series) // 2] * _SINGLE_GAS
    asked = []
    for block in range(_RHYTHM_BLOCKS, len(series) - _SETTLING_BLOCKS):
        if dice.random() < 0.5:
            revenue_wei = usual_wei * dice.choice([2, 5, 15, 40, 100, 400]) // 10
            lifetime_s = _BLOCK_S * dice.choice([2, 3, 5, 10, 40])
            fee_wei = -(-revenue_wei * _BPS // POSTER_BPS // GWEI) * GWEI
            asked.append(_Asked(block, fee_wei, begin_s + block * _BLOCK_S + lifetime_s))
    return asked


async def _next_base_fee(world: World, wei: int) -> None:
    """What the block after the head asks is known as soon as the head is."""
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(wei)])


@pytest.mark.parametrize(
    ("fees", "cap_times", "announced"),
    [
        pytest.param(spike(), 40, True, id="spike"),
        pytest.param(spike(), 5, True, id="spike-over-the-cap"),
        pytest.param(spike(), 40, False, id="spike-that-no-node-foresees"),
        pytest.param(recorded(), 40, True, id="recorded"),
    ],
)
async def test_a_series(world: World, fees: list[int], cap_times: int, announced: bool) -> None:
    cap_wei = fees[0] * cap_times
    series = [*[fees[0]] * _RHYTHM_BLOCKS, *fees, *[fees[-1]] * _SETTLING_BLOCKS]
    await _next_base_fee(world, GWEI)
    await world.compute(await world.submit(1))
    await world.tick(world.settlement(), 3)
    head = await world.mine()
    begin_s = head.timestamp_s + 600
    asked = _requests(series, begin_s, random.Random(len(fees)))
    await world.automine(True)
    submitted = await submit_many(
        world.requester,
        world.contracts,
        [
            RequestParams(model_id("test-model"), 16, one.deadline_s, 0, b"%d" % index)
            for index, one in enumerate(asked)
        ],
        [Wei(one.fee_wei) for one in asked],
    )
    await world.automine(False)
    await world.index()
    by_id = {one.request_id: each for one, each in zip(submitted, asked, strict=True)}

    now_s = [float(begin_s)]
    rpc = ScriptedRpc(world.rpc)
    rpc.always("max_priority_fee", answer(Wei(_TIP_WEI)))
    settlement = world.settlement(
        rpc,
        now=lambda: now_s[0],
        guard_s=12.0,
        delay_price_wei_per_s=2 * 10**10,
        max_fee_per_gas_wei=cap_wei,
        max_priority_fee_wei=20 * _TIP_WEI,
        refunds=False,
        sign_timeout_s=30.0,
    )
    await _next_base_fee(world, series[0])
    for number, following in enumerate([*series[1:], series[-1]]):
        now_s[0] = begin_s + number * _BLOCK_S
        await world.rpc.request("evm_setNextBlockTimestamp", [int(now_s[0])])
        head = await world.mine()
        assert (head.base_fee_wei, head.timestamp_s) == (series[number], now_s[0])
        if announced:
            await _next_base_fee(world, following)
        ready = [one for one, each in by_id.items() if each.ready == number]
        await world.compute(ready)
        await world.pool.execute(
            "UPDATE node.result SET computed_at = to_timestamp($1) WHERE request_id = ANY($2)",
            now_s[0],
            ready,
        )
        await settlement.step(head)
        await _next_base_fee(world, following)

    await _assert_no_post_at_a_loss(world, by_id)
    if announced:
        await _assert_no_deadline_was_lost_in_vain(world, by_id, series, begin_s, cap_wei)


async def _assert_no_post_at_a_loss(world: World, by_id: dict[int, _Asked]) -> None:
    outcomes = await world.pool.fetch("SELECT intent_id, request_id, outcome FROM node.tx_item")
    states = {one["id"]: one["state"] for one in await world.intents()}
    mined = [one for one in await world.attempts() if one["state"] == "mined"]
    assert len(mined) == await world.posted() > 1
    for attempt in mined[1:]:
        receipt = await world.rpc.receipt(attempt["hash"])
        assert receipt is not None
        items = [one for one in outcomes if one["intent_id"] == attempt["intent_id"]]
        earned_wei = sum(
            by_id[one["request_id"]].revenue_wei for one in items if one["outcome"] == "settled"
        )
        cost_wei = receipt.gas_used * receipt.effective_gas_price_wei
        if states[attempt["intent_id"]] == "cancelled":
            # Some of its items passed their time: its nonce on nothing was the smaller loss.
            assert receipt.gas_used < _NOTHING_GAS
            continue
        assert cost_wei <= earned_wei, (attempt["intent_id"], [dict(one) for one in items])


async def _assert_no_deadline_was_lost_in_vain(
    world: World, by_id: dict[int, _Asked], series: Sequence[int], begin_s: int, cap_wei: int
) -> None:
    statuses = await world.statuses()
    lost = {one: each for one, each in by_id.items() if statuses[one] != "fulfilled"}
    vain = []
    for request_id, each in lost.items():
        last = min((each.deadline_s - begin_s) // _BLOCK_S, len(series) - 1)
        for number in range(each.ready + 1, last + 1):
            price_wei = series[number] + _TIP_WEI
            if price_wei <= cap_wei and price_wei * _SINGLE_GAS <= each.revenue_wei:
                vain.append((request_id, each, number))
    print(f"{len(by_id)} asked, {len(lost)} lost, {len({v[0] for v in vain})} in vain")
    assert not vain, sorted(
        {(v[0], v[1], v[1].revenue_wei / _SINGLE_GAS / 1e6) for v in vain}, key=str
    )
