"""An OP-stack chain: what it takes for bytes counts in every decision, and in the accounts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.database import Pool
from indexer.rpc import Rpc, RpcError
from indexer.types import Address, BlockRef
from inferd.chain.anvil import Anvil
from inferd.settlement.data_fee import (
    OPERATOR_SAMPLE_GAS,
    DataPrice,
    as_gas,
    data_price,
    samples,
)
from inferd.settlement.delivery_gas import DELIVER_GAS, claim_bytes, claim_gas
from inferd.settlement.engine import Settlement
from inferd.settlement.rollups import GAS_PRICE_ORACLE, Rollup
from inferd.settlement.settings import PausedReason
from scheduler.gas import next_base_fee
from scheduler.model import GasModel
from tests.faults.odd_chains import OpChain
from tests.faults.rpc_plans import Always
from tests.faults.rpc_proxy import rpc_proxy
from tests.settlement.scripted import Real, ScriptedRpc, error
from tests.settlement.stand_ins import hexed, put, set_up
from tests.settlement.world import ETHER, GWEI, World, build_world

REVENUE_WEI = ETHER // 100 // 5
WEI = st.integers(0, 10**18)


@dataclass
class Prices:
    """What the oracle of the chain goes by."""

    world: World

    async def set(
        self, l1_gwei: int, *, scalar: int = 0, constant: int = 0, isthmus: bool = True
    ) -> None:
        types = ("uint256", "uint256", "uint256", "bool")
        values = (l1_gwei * GWEI, scalar, constant, isthmus)
        await set_up(self.world, GAS_PRICE_ORACLE, types, *values)


@pytest.fixture
async def world(anvil: Anvil, pool: Pool) -> AsyncIterator[World]:
    chain = OpChain(hexed(GAS_PRICE_ORACLE))
    async with rpc_proxy(anvil.url, Always([chain])) as proxy, Rpc([proxy.url]) as rpc:
        world = await build_world(anvil, rpc, pool)
        await put(world, "GasPriceOracle", GAS_PRICE_ORACLE)
        yield world


@pytest.fixture
def prices(world: World) -> Prices:
    return Prices(world)


async def _one_ready(world: World) -> int:
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    return request_id


async def test_accounts_are_those_of_the_receipt_and_the_oracle(
    world: World, prices: Prices
) -> None:
    await prices.set(30, scalar=123_457, constant=1_000_003)
    request_id = await _one_ready(world)
    settlement = world.settlement()
    await world.tick(settlement, 4)
    (attempt,) = await world.attempts()
    receipt = await world.rpc.receipt(attempt["hash"])
    assert receipt is not None
    operator_wei = receipt.gas_used * 123_457 // 10**6 + 1_000_003
    assert receipt.l1_fee_wei > 10**11
    assert attempt["data_fee_wei"] == receipt.l1_fee_wei + operator_wei
    assert settlement.status.gas_spent_wei == (
        receipt.gas_used * receipt.effective_gas_price_wei + attempt["data_fee_wei"]
    )
    assert await world.fulfilled_events() == {request_id: 1}


async def test_what_a_reorganisation_takes_was_not_paid_and_is_kept_for_again(
    world: World, prices: Prices
) -> None:
    await prices.set(30, scalar=123_457)
    await _one_ready(world)
    settlement = world.settlement(confirmations=8)
    await settlement.step(await world.index())
    (sent,) = await world.attempts()
    await world.tick(settlement)
    (mined,) = await world.attempts()
    assert 0 < mined["data_fee_wei"] < sent["data_fee_wei"]
    # The first branch without it; the next ones have it again, when the fee is another.
    await settlement.step(await world.reorg(1))
    (unmined,) = await world.attempts()
    assert (unmined["state"], unmined["gas_used"]) == ("broadcast", None)
    assert unmined["data_fee_wei"] == sent["data_fee_wei"]
    await prices.set(60, scalar=123_457)
    await world.tick(settlement, 3)
    (attempt,) = await world.attempts()
    receipt = await world.rpc.receipt(attempt["hash"])
    assert receipt is not None
    operator_wei = receipt.gas_used * 123_457 // 10**6
    assert attempt["data_fee_wei"] == receipt.l1_fee_wei + operator_wei


async def test_an_endpoint_that_forgot_the_state_of_its_block_holds_up_nothing(
    world: World, prices: Prices
) -> None:
    """Of the block that a transaction is in, as after some minutes without this node."""
    await prices.set(30, scalar=123_457, constant=1_000_003)
    request_id = await _one_ready(world)
    rpc = ScriptedRpc(world.rpc)

    async def forgetful(real: Real, to: Address, data: bytes, **options: Any) -> Any:
        if to == GAS_PRICE_ORACLE and isinstance(options["block"], bytes):
            raise RpcError(-32000, "missing trie node 5123 (path ) state 0x5123 is not available")
        return await real(to, data, **options)

    rpc.always("call", forgetful)
    settlement = world.settlement(rpc)
    await world.tick(settlement, 4)
    assert settlement.status.paused_reason is None
    assert await world.fulfilled_events() == {request_id: 1}
    (attempt,) = await world.attempts()
    assert attempt["state"] == "mined"
    receipt = await world.rpc.receipt(attempt["hash"])
    assert receipt is not None
    operator_wei = receipt.gas_used * 123_457 // 10**6 + 1_000_003
    assert attempt["data_fee_wei"] == receipt.l1_fee_wei + operator_wei


async def test_the_bytes_of_calls_to_come_count_in_what_the_balance_has_to_pay(
    world: World, prices: Prices
) -> None:
    await prices.set(30, scalar=10**6)
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    await world.compute([request_id])
    asked = await world.pool.fetchrow("SELECT * FROM chain.request")
    content_bytes = len(asked["input"]) + len(f"answer {request_id}")

    async def waiting_wei(settlement: Settlement, head: BlockRef, content_bytes: int) -> int:
        await settlement.step(head)
        projection = settlement.status.projection
        assert projection is not None
        data = await Rollup(world.rpc, 31337).data_price(head)
        gas = DELIVER_GAS + claim_gas(asked["callback_gas_limit"], content_bytes)
        data_wei = data.of(claim_bytes(content_bytes), gas)
        next_wei = next_base_fee(head.base_fee_wei, 0, head.gas_limit)
        gas_wei = gas * (next_wei + settlement.status.tip_wei)
        assert data_wei > 0
        return projection.waiting_wei - gas_wei - data_wei

    idle, head = world.settlement(max_in_flight=0), await world.mine()
    await idle.step(head)
    assert await waiting_wei(idle, head, content_bytes) == idle.status.projection.result_wei
    settlement = world.settlement()
    await settlement.step(head)
    await world.mine()
    assert (await world.statuses())[request_id] == "fulfilled"
    settlement.status.callbacks_owed = 1
    head = await world.mine()  # an empty one, as the next base fee is told by it
    assert await waiting_wei(settlement, head, content_bytes) == 0


async def test_what_earns_its_gas_and_not_its_bytes_waits(world: World, prices: Prices) -> None:
    await prices.set(1)
    request_id = await _one_ready(world)
    price = await Rollup(world.rpc, 31337).data_price(await world.index())
    dear = REVENUE_WEI // price.of(388, 0) + 1
    await prices.set(dear)
    settlement = world.settlement()
    await world.tick(settlement, 2)
    assert settlement.status.paused_reason is PausedReason.UNPROFITABLE
    assert await world.attempts() == []
    await prices.set(dear // 4)
    await world.rpc.request("evm_increaseTime", [12])
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == {request_id: 1}
    intent = (await world.intents())[0]
    assert intent["inputs"]["cost_wei"] > intent["inputs"]["data_fee_wei"] > REVENUE_WEI // 8


async def test_the_price_of_gas_that_is_offered_leaves_what_the_bytes_take(
    world: World, prices: Prices
) -> None:
    await prices.set(1)
    await _one_ready(world)
    price = await Rollup(world.rpc, 31337).data_price(await world.index())
    await prices.set(REVENUE_WEI // price.of(388, 0) // 2)
    settlement = world.settlement()
    await settlement.step(await world.index())
    (attempt,), (intent,) = await world.attempts(), await world.intents()
    inputs = intent["inputs"]
    assert (
        inputs["break_even_wei"] * inputs["estimated_gas"] + inputs["data_fee_wei"] <= REVENUE_WEI
    )
    assert inputs["data_fee_wei"] > REVENUE_WEI // 3
    assert attempt["max_fee_wei"] <= inputs["break_even_wei"]


async def test_a_replacement_leaves_what_the_bytes_take_now(world: World, prices: Prices) -> None:
    """The fee for bytes of the day it was planned says nothing when it is replaced."""
    await prices.set(1)
    await _one_ready(world)
    settlement = world.settlement(max_fee_per_gas_wei=10**12)
    await settlement.step(await world.index())
    (intent,), (first,) = await world.intents(), await world.attempts()
    planned_wei = intent["inputs"]["break_even_wei"]
    price = await Rollup(world.rpc, 31337).data_price(await world.index())
    dear = REVENUE_WEI * 9 // 10 // price.of(len(intent["calldata"]), 0)

    async def offered_at(l1_gwei: int) -> int:
        """The most that is offered after some blocks in which it is not mined."""
        await world.rpc.request("anvil_dropAllTransactions", [])
        await prices.set(l1_gwei)
        await world.rpc.request("evm_increaseTime", [12])
        for _ in range(6):
            await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(planned_wei // 2)])
            await world.tick(settlement)
        return max(int(one["max_fee_wei"]) for one in await world.attempts())

    # The price of gas is below what it could be at first, and above what nine tenths less leave.
    assert await offered_at(dear) == first["max_fee_wei"] < planned_wei // 3
    # Cheap again, it is worth what it was: nothing of the dear hour is left over.
    assert planned_wei // 2 < await offered_at(1) <= planned_wei


@pytest.mark.parametrize("planned", [False, True], ids=["new", "planned already"])
async def test_the_balance_has_to_pay_for_the_bytes_too(
    world: World, prices: Prices, planned: bool
) -> None:
    await prices.set(8_000)
    request_id = await _one_ready(world)
    head = await world.index()
    data = await Rollup(world.rpc, 31337).data_price(head)
    await world.settlement().step(head)
    (attempt,) = await world.attempts()
    kept_wei = int(attempt["data_fee_wei"])
    assert 2 * data.of(388, 0) <= kept_wei < 3 * data.of(388, 0)
    await world.pool.execute("DELETE FROM node.tx_item")
    await world.pool.execute("DELETE FROM node.tx_attempt")
    await world.pool.execute("DELETE FROM node.tx_intent")
    await world.rpc.request("anvil_dropAllTransactions", [])
    if planned:
        rpc = ScriptedRpc(world.rpc)
        rpc.then("nonce", error("not now"))
        await world.settlement(rpc).step(head)
        assert [intent["state"] for intent in await world.intents()] == ["planned"]
    await world.set_balance(int(attempt["max_fee_wei"]) * attempt["gas_limit"] + kept_wei - 1)
    settlement = world.settlement()
    await settlement.step(head)
    assert settlement.status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    assert await world.attempts() == []
    await world.set_balance(ETHER)
    await world.tick(settlement, 4)
    assert (await world.statuses())[request_id] == "fulfilled"


async def test_a_replacement_keeps_as_much_for_its_bytes(world: World, prices: Prices) -> None:
    await prices.set(8)
    await _one_ready(world)
    settlement = world.settlement()
    await settlement.step(await world.index())
    while len(await world.attempts()) < 2:
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(5 * GWEI)])
        await world.tick(settlement)
    first, second = await world.attempts()
    assert second["data_fee_wei"] >= first["data_fee_wei"] > 0


async def test_admission_sees_the_fee_as_gas(world: World, prices: Prices) -> None:
    await prices.set(8_000, scalar=10**6)
    settlement = world.settlement()
    plain = await settlement.gas_model()
    head = await world.index()
    await settlement.step(head)
    counted = await settlement.gas_model()
    price_wei = head.base_fee_wei + settlement.status.tip_wei
    data = await Rollup(world.rpc, 31337).data_price(head)
    for groups, results in ((1, 1), (3, 60)):
        gas = plain.of(groups, results)
        wei = gas * price_wei + data.of_posts().of(groups, results, gas)
        assert (
            0 <= counted.of(groups, results) * price_wei - wei < (2 + groups + results) * price_wei
        )
    assert counted.fixed_gas > plain.fixed_gas + 1_000


async def test_prices_are_asked_for_once_in_twelve_seconds(world: World, prices: Prices) -> None:
    await prices.set(30, isthmus=False)
    rpc = ScriptedRpc(world.rpc)
    rollup = Rollup(rpc, 31337)
    head = await world.index()
    before = await rollup.data_price(head)
    assert before.per_gas_wei == 0  # no fee of the operator, nor a function for it
    calls = rpc.count("call")
    await prices.set(60, isthmus=False)
    assert await rollup.data_price(await world.mine()) == before
    assert rpc.count("call") == calls
    await world.rpc.request("evm_increaseTime", [12])
    later = await rollup.data_price(await world.mine())
    assert later.per_byte_wei in range(2 * before.per_byte_wei - 2, 2 * before.per_byte_wei + 3)
    assert rpc.count("code") == 1


async def test_refunds_and_deliveries_reckon_with_their_bytes(world: World, prices: Prices) -> None:
    await prices.set(10**6)
    (request_id,) = await world.submit(1, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    settlement = world.settlement(refund_budget_wei_per_day=ETHER)
    await world.tick(settlement, 2)
    assert await world.attempts() == []
    assert settlement.status.refunds_left == 1
    await prices.set(1)
    await world.rpc.request("evm_increaseTime", [12])
    await world.tick(settlement, 20)
    assert (await world.statuses())[request_id] == "refunded"
    spent = await world.pool.fetchval("SELECT sum(data_fee_wei) FROM node.tx_attempt")
    assert spent > 0
    assert settlement.status.refund_gas_wei_per_day == settlement.status.gas_spent_wei


@given(WEI, WEI, st.integers(0, 10**12), st.integers(0, 10**6))
def test_a_price_gives_back_what_it_was_made_of(
    short_wei: int, more_wei: int, operator_wei: int, per_gas_wei: int
) -> None:
    short, long = (len(sample) for sample in samples())
    sampled_wei = operator_wei + per_gas_wei * OPERATOR_SAMPLE_GAS
    price = data_price((short_wei, short_wei + more_wei), (operator_wei, sampled_wei))
    assert price.per_gas_wei == per_gas_wei
    for size, wei in ((short, short_wei), (long, short_wei + more_wei)):
        assert price.of(size, 0) >= wei + operator_wei
    assert price.reserve(long, 10) == 2 * price.of(long, 10)


@given(
    st.builds(DataPrice, WEI, st.integers(0, 10**13), st.integers(0, 10**9)),
    st.integers(10**6, 10**12),
    st.integers(1, 10**7),
    st.integers(1, 130_000),
)
def test_admission_takes_a_call_for_no_less_than_posting_does(
    data: DataPrice, price_wei: int, gas: int, size: int
) -> None:
    """Else what no post can pay for would be computed."""
    counted = as_gas(GasModel(1, 1, 1), data, price_wei).of_later(gas, size)
    cost_wei = gas * price_wei + data.of(size, gas)
    assert 0 <= counted * price_wei - cost_wei <= (3 + size + gas // 10**6) * price_wei
    assert as_gas(GasModel(1, 1, 1), data, price_wei).of_later(0, 0) == 0


@given(WEI, WEI, st.integers(1, 5), st.integers(0, 200), st.integers(0, 10**7))
def test_the_fee_of_a_post_is_that_of_its_bytes(
    short_wei: int, more_wei: int, groups: int, results: int, gas: int
) -> None:
    price = data_price((short_wei, short_wei + more_wei), (0, 0))
    of_posts = price.of_posts()
    short, long = (len(sample) for sample in samples())
    for size, items in ((short, 1), (long, 64)):
        counted_wei = of_posts.of(1, items, 0)
        exact_wei = price.of(size, 0)
        assert exact_wei - 31 * price.per_byte_wei <= counted_wei
        assert counted_wei <= exact_wei + 31 * price.per_byte_wei
    added_wei = of_posts.of(groups, results + 1, gas) - of_posts.of(groups, results, gas)
    assert added_wei == 60 * price.per_byte_wei
