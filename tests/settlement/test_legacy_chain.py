"""A chain without EIP-1559: transactions of type 0 with a gas price, and their replacements."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
import rlp
from msgspec.structs import replace

from indexer.database import Pool
from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil, load_anvil_config, start_anvil
from inferd.chain.transact import Sender
from inferd.settlement.settings import PausedReason
from tests.faults.odd_chains import LegacyChain
from tests.faults.rpc_plans import Always
from tests.faults.rpc_proxy import rpc_proxy
from tests.settlement.scripted import ScriptedRpc, error
from tests.settlement.world import ETHER, GWEI, World, build_world


@pytest.fixture
def chain() -> LegacyChain:
    return LegacyChain()


@pytest.fixture
async def world(anvil: Anvil, pool: Pool, chain: LegacyChain) -> AsyncIterator[World]:
    async with rpc_proxy(anvil.url, Always([chain])) as proxy, Rpc([proxy.url]) as rpc:
        yield await build_world(anvil, rpc, pool)


def _gas_price(raw: bytes) -> int:
    return int.from_bytes(rlp.decode(raw)[1], "big")


async def test_deploys_asks_and_settles_at_the_gas_price(world: World, chain: LegacyChain) -> None:
    ids = await world.submit(2)
    await world.compute(ids)
    settlement = world.settlement()
    await settlement.step(await world.index())
    price_wei = await world.rpc.gas_price()
    (attempt,) = await world.attempts()
    assert (attempt["max_fee_wei"], attempt["priority_fee_wei"]) == (price_wei, price_wei)
    assert settlement.status.tip_wei == price_wei
    assert _gas_price(attempt["raw"]) == price_wei
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    (attempt,) = await world.attempts()
    assert attempt["effective_gas_price_wei"] == price_wei
    paid_wei = attempt["gas_used"] * price_wei
    assert await world.rpc.balance(world.poster.address) == 10_000 * ETHER - paid_wei
    assert settlement.status.gas_spent_wei == paid_wei
    assert len(chain.raws) > 8
    assert all(raw[0] >= 0xC0 for raw in chain.raws)


async def test_replacement_raises_the_gas_price_by_an_eighth(world: World) -> None:
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    settlement = world.settlement(max_priority_fee_wei=0)
    await settlement.step(await world.index())
    (first,) = await world.attempts()
    for _ in range(4):  # the price it offers is not enough any more
        await world.rpc.request(
            "anvil_setNextBlockBaseFeePerGas", [hex(int(first["max_fee_wei"]) + GWEI)]
        )
        await settlement.step(await world.mine())
    attempts = await world.attempts()
    assert len(attempts) > 1
    for before, after in pairwise(attempts):
        assert after["max_fee_wei"] * 8 >= before["max_fee_wei"] * 9
        assert after["priority_fee_wei"] == after["max_fee_wei"] == _gas_price(after["raw"])
    assert {attempt["nonce"] for attempt in attempts} == {0}
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == {request_id: 1}


async def test_a_gas_price_over_the_cap_is_waited_out(world: World) -> None:
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    price_wei = await world.rpc.gas_price()
    settlement = world.settlement(max_fee_per_gas_wei=price_wei - 1)
    await settlement.step(await world.index())
    assert settlement.status.paused_reason is PausedReason.GAS_PRICE_OVER_CAP
    assert await world.attempts() == []


async def test_a_nonce_that_is_given_up_is_spent_at_a_gas_price_too(
    world: World, chain: LegacyChain
) -> None:
    """Where the cap leaves no room, what is without effect offers what was offered before."""
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    rpc = ScriptedRpc(world.rpc)
    rpc.always("send_raw_transaction", error("this node is in a bad mood"))
    price_wei = await world.rpc.gas_price()
    settlement = world.settlement(rpc, max_fee_per_gas_wei=price_wei, max_refused_blocks=2)
    await world.tick(settlement, 4)
    first, noop = await world.attempts()
    assert (first["nonce"], noop["nonce"]) == (0, 0)
    assert noop["max_fee_wei"] == first["max_fee_wei"] == _gas_price(noop["raw"])
    rpc.always("send_raw_transaction", None)
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == {request_id: 1}
    assert all(raw[0] >= 0xC0 for raw in chain.raws)


async def test_a_command_sends_on_a_chain_before_london(tmp_path: Path) -> None:
    config = replace(load_anvil_config(), port=0, block_time_s=0, hardfork="berlin")
    with start_anvil(config, log=tmp_path / "anvil.log") as anvil:
        async with Rpc([anvil.url]) as rpc:
            header = await rpc.header("latest")
            assert header is not None
            assert not header.has_base_fee
            sender = Sender(rpc, config.account(0), config.chain_id)
            receipt = await sender.send(sender.address, b"", value_wei=1)
            assert receipt.succeeded
            assert receipt.effective_gas_price_wei == await rpc.gas_price()
