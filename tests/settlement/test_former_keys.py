"""The operator changed the poster's key while something was on its way under the old one."""

from __future__ import annotations

from typing import Any

from inferd.chain.signers import LocalSigner
from inferd.settlement.settings import PausedReason
from tests.settlement.scripted import ScriptedRpc, error
from tests.settlement.world import ETHER, GWEI, World

NO_FUNDS = "insufficient funds for gas * price + value"


def _take_another_key(world: World) -> None:
    world.poster = LocalSigner(world.anvil.config.account(8))


async def test_what_the_old_key_cannot_pay_for_goes_to_the_new_one(world: World) -> None:
    ids = await world.submit(1)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", error(NO_FUNDS))
    settlement = world.settlement(rpc)
    await settlement.step(await world.index())
    await world.set_balance(0)
    await world.tick(settlement, 2)
    assert settlement.status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    _take_another_key(world)
    settlement = world.settlement()
    await world.tick(settlement)
    assert settlement.status.paused_reason is None
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    old, new = await world.intents()
    assert (old["state"], old["outcome"]) == ("cancelled", "former_key")
    assert (new["state"], new["sender"]) == ("confirmed", world.poster.address)
    assert await world.items() == {ids[0]: [None, "settled"]}


async def test_what_is_refused_for_the_old_key_goes_to_the_new_one(world: World) -> None:
    ids = await world.submit(1)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)
    old = world.poster

    async def not_from_the_old_key(real: Any, raw: bytes) -> Any:
        (attempt,) = await world.pool.fetch(
            "SELECT sender FROM node.tx_attempt WHERE raw = $1", raw
        )
        return await (error("forbidden")(real) if attempt["sender"] == old.address else real(raw))

    rpc.always("send_raw_transaction", not_from_the_old_key)
    await world.settlement(rpc).step(await world.index())
    _take_another_key(world)
    settlement = world.settlement(rpc)
    await world.tick(settlement)
    assert (settlement.status.paused_reason, settlement.status.last_error) == (None, None)
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_what_waits_in_a_pool_at_too_low_a_price_goes_to_the_new_key(world: World) -> None:
    ids = await world.submit(1)
    await world.compute(ids)
    await world.settlement(max_fee_per_gas_wei=3 * GWEI).step(await world.index())
    _take_another_key(world)
    settlement = world.settlement()
    for _ in range(7):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(4 * GWEI)])
        await world.tick(settlement)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    # When gas is cheap again, the old bytes are mined after all, and settle nothing.
    for _ in range(3):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
        await world.tick(settlement)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await world.credit(world.poster.address) == ETHER // 100 // 5


async def test_what_expired_under_the_old_key_is_refunded_by_the_new_one(world: World) -> None:
    ids = await world.submit(1, lifetime_s=100)
    await world.compute(ids)
    await world.settlement(max_fee_per_gas_wei=3 * GWEI).step(await world.index())
    _take_another_key(world)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(10 * GWEI)])
    await world.rpc.request("evm_increaseTime", [200])
    settlement = world.settlement()
    for _ in range(4):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(10 * GWEI)])
        await world.tick(settlement)
    assert await world.statuses() == {ids[0]: "refunded"}
    assert [intent["state"] for intent in await world.intents()] == ["cancelled", "confirmed"]
