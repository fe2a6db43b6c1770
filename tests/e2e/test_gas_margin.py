"""A daemon on a chain whose base fee is volatile."""

from __future__ import annotations

from tests.harness import System

GWEI = 10**9
_LOW, _HIGH = 2 * GWEI, 6 * GWEI


async def test_a_request_that_takes_long_is_told_the_margin_that_it_has_to_cover(
    world: System, empty_database: str
) -> None:
    await world.rpc.request("evm_setIntervalMining", [0])
    await world.rpc.request("anvil_setBlockTimestampInterval", [1])
    for number in range(240):
        fee_wei = _LOW if number % 40 < 20 else _HIGH
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(fee_wei)])
        await world.mine()
    await world.rpc.request("evm_setIntervalMining", [1])
    node = world.start_node(
        "node", empty_database, sections="[scheduling]\ninclusion_s = 120\nbase_fee_quantile = 0.9"
    )
    await node.until_ready()
    asked = await world.ask("worth little", fee_wei=1_000 * GWEI)
    await node.until_state(asked.request_id, "waiting")
    _, told = await node.get(f"/v1/requests/{asked.request_id}/why")
    assert told["reason"] == "gas_too_dear_now"
    assert told["numbers"]["horizon_blocks"] == "64"
    assert int(told["numbers"]["margin_ppm"]) >= 2_900_000, "three times, but for rounding"
    assert "times its share of the post's gas, within 64 blocks)" in told["sentence"]
    assert node.stop() == 0
