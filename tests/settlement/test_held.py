"""Requests under a dispute window: posted, held back, released once; to the wei."""

from __future__ import annotations

from inferd.settlement.terms import HELD_GAS
from tests.settlement.held import hold_states, set_terms
from tests.settlement.world import ETHER, World

FEE = ETHER // 100


async def test_results_under_a_window__posted_apart_from_others__held(world: World) -> None:
    plain = await world.submit(2)
    await set_terms(world)
    held = await world.submit(40)
    await world.compute([*plain, *held])
    settlement = world.settlement()
    await world.tick(settlement, 4)

    assert set((await world.statuses()).values()) == {"fulfilled"}
    assert await world.posted() == 2
    assert await hold_states(world) == dict.fromkeys(held, "held")
    assert await world.credit(world.poster.address) == 2 * FEE // 5
    rows = await world.pool.fetch(
        "SELECT i.reason, a.gas_used, a.gas_limit, i.inputs->>'estimated_gas' AS e, i.inputs, (SELECT count(*) FROM node.tx_item t WHERE t.intent_id = i.id) AS n FROM node.tx_intent i JOIN node.tx_attempt a ON a.intent_id = i.id"
    )
    for row in rows:
        print(dict(row))
    print(HELD_GAS, await settlement.gas_model())
    observed = await world.pool.fetch("SELECT items FROM node.gas_observation")
    assert [row["items"] for row in observed] == [2]
