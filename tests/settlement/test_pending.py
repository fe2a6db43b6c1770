"""Behind transactions of ours, what is sent is tried on the pending state as well."""

from __future__ import annotations

import pytest

from indexer.rpc import RpcError
from indexer.types import ZERO_HASH
from inferd.chain.signers import LocalSigner
from inferd.protocol import calls
from inferd.protocol.result import ResultItem, pack_items
from tests.settlement.scripted import ScriptedRpc
from tests.settlement.world import GWEI, World


async def _rival_posts(world: World, request_id: int) -> None:
    """Somebody else's post of our result is pooled, at a price that is mined first."""
    row = await world.pool.fetchrow("SELECT * FROM node.result WHERE request_id = $1", request_id)
    item = ResultItem(request_id, row["commitment"], row["digest"])
    rival = LocalSigner(world.anvil.config.account(3))
    signed = await rival.sign(
        {
            "type": 2,
            "chainId": world.contracts.chain_id,
            "nonce": 0,
            "to": world.contracts.results,
            "value": 0,
            "data": calls.post([(pack_items([item]), [row["signature"]])], ZERO_HASH),
            "gas": 300_000,
            "maxFeePerGas": 100 * GWEI,
            "maxPriorityFeePerGas": 50 * GWEI,
        }
    )
    await world.rpc.send_raw_transaction(signed.raw)


@pytest.mark.parametrize("in_flight", [True, False])
async def test_what_the_next_block_settles_is_dropped_and_the_rest_sent(
    world: World, in_flight: bool
) -> None:
    first = await world.submit(1) if in_flight else []
    await world.submit(3)
    await world.compute(first)
    settlement = world.settlement()
    await settlement.step(await world.index())  # it stays pooled
    ids = await _asked_without_a_block(world)
    await _rival_posts(world, ids[0])
    await settlement.step(await world.index())
    newest = (await world.intents())[-1]
    items = await world.pool.fetch(
        "SELECT request_id FROM node.tx_item WHERE intent_id = $1 ORDER BY 1", newest["id"]
    )
    expected = ids[1:] if in_flight else ids
    assert [item["request_id"] for item in items] == expected
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == dict.fromkeys([*first, *ids], 1)


async def _asked_without_a_block(world: World) -> list[int]:
    """They were asked before, and are computed only now: nothing of ours is mined in between."""
    rows = await world.pool.fetch(
        "SELECT id FROM chain.request r WHERE NOT EXISTS"
        " (SELECT FROM node.result n WHERE n.request_id = r.id) ORDER BY id"
    )
    ids = [row["id"] for row in rows]
    await world.compute(ids)
    return ids


async def test_a_node_without_a_pending_state_is_no_hindrance(world: World) -> None:
    ids = await world.submit(2, batchable=False)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)

    async def only_blocks(real: object, *args: object, **kwargs: object) -> object:
        if kwargs.get("block") == "pending":
            raise RpcError(-32602, "pending state is not available")
        return await world.rpc.call(*args, **kwargs)  # type: ignore[arg-type]

    rpc.always("call", only_blocks)
    settlement = world.settlement(rpc, max_in_flight=1)
    await settlement.step(await world.index())
    await world.settlement(rpc, max_in_flight=2).step(await world.index())
    assert len(await world.intents()) == 2
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
