"""Requests under a dispute window: posted, held back, released once; to the wei."""

from __future__ import annotations

from inferd.settlement.settings import SettlementSettings
from inferd.settlement.terms import held_model
from tests.settlement.held import WINDOW_S, hold_states, owner_of_workers, pass_time, set_terms
from tests.settlement.world import ETHER, POSTER_BPS, World

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
    gas = await world.pool.fetchval("SELECT max(gas_used) FROM node.tx_attempt")
    model = SettlementSettings(poster_bps=POSTER_BPS).gas_prior
    assert abs(gas - held_model(model).of(1, 40)) < gas // 20
    observed = await world.pool.fetch("SELECT items FROM node.gas_observation")
    assert [row["items"] for row in observed] == [2]


async def test_what_is_due__released_once__to_the_wei(world: World) -> None:
    await set_terms(world)
    ids = await world.submit(3)
    await world.compute(ids)
    settlement = world.settlement(own_accounts=frozenset({owner_of_workers(world)}))
    await world.tick(settlement, 4)
    assert await hold_states(world) == dict.fromkeys(ids, "held")
    before = await world.credit(owner_of_workers(world))

    await pass_time(world, WINDOW_S + 1)
    await world.tick(settlement, 5)
    assert await hold_states(world) == dict.fromkeys(ids, "released")
    assert await world.credit(world.poster.address) == 3 * FEE // 5
    assert await world.credit(owner_of_workers(world)) - before == 3 * FEE * 4 // 5
    post, release = await world.intents()
    assert (post["kind"], release["kind"], release["outcome"]) == ("post", "release", "done")
    assert await world.items() == {one: ["settled", "released"] for one in ids}
    await world.tick(settlement, 3)
    assert await world.posted() == 2
