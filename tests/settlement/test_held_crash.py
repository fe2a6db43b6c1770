"""A process that dies at any await of a release, a dispute or the end of one: the next one ends the
work, once, and the bond is staked once."""

from __future__ import annotations

import os

import pytest

from indexer.types import DAY_S
from inferd.chain.disputes import open_dispute
from tests.settlement.held import (
    BOND,
    WINDOW_S,
    accuse,
    as_arbiter,
    hold_states,
    pass_time,
    set_terms,
)
from tests.settlement.scripted import Crash, CrashingPool, CrashingRpc, CrashPoints
from tests.settlement.test_crash import rewind
from tests.settlement.world import ETHER, World

_MAX_TICKS = 12
_USUAL_SHARE = 16
_STEP = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else _USUAL_SHARE
_STAKES = {
    "disputes": True,
    "dispute_max_bond_wei": BOND,
    "dispute_max_bonds_wei_per_day": BOND,
}
FEE = ETHER // 100


async def _run(world: World, points: CrashPoints) -> None:
    """A process from its start until all is followed to its end, or its death."""
    settlement = world.settlement(
        rpc=CrashingRpc(world.rpc, points), pool=CrashingPool(world.pool, points), **_STAKES
    )
    for _ in range(_MAX_TICKS):
        await settlement.step(await world.mine())
        states = list((await hold_states(world)).values())
        live = await world.pool.fetchval("SELECT count(*) FROM node.tx_item WHERE live")
        if states == ["released", "lapsed", "disputed"] and not live:
            return


async def test_every_crash_point(world: World) -> None:
    await set_terms(world)
    ids = await world.submit(3, lifetime_s=30 * DAY_S)
    await world.compute(ids)
    for request_id in ids[:2]:
        await world.post_proven_by(world.poster, request_id)
    await as_arbiter(world, open_dispute, ids[1])
    await pass_time(world, 3 * DAY_S + WINDOW_S)
    await world.post_proven_by_a_stranger(ids[2])
    await accuse(world, ids[2])
    before = await world.posted()
    balance = await world.rpc.balance(world.poster.address)
    snapshot = str(await world.rpc.request("evm_snapshot"))

    whole = CrashPoints()
    await _run(world, whole)
    await _assert_done(world, ids, before, balance)
    points = range(1, whole.passed + 1, _STEP)
    for at in points:
        snapshot = await rewind(world, snapshot)
        with pytest.raises(Crash):
            await _run(world, CrashPoints(at))
        await _run(world, CrashPoints())
        try:
            await _assert_done(world, ids, before, balance)
        except AssertionError as error:
            raise AssertionError(f"died before {whole.names[at - 1]} ({at})") from error
    print(f"{len(points)} of {whole.passed} crash points")


async def _assert_done(world: World, ids: list[int], before: int, balance: int) -> None:
    assert await hold_states(world) == dict(
        zip(ids, ("released", "lapsed", "disputed"), strict=True)
    )
    assert await world.credit(world.poster.address) == 2 * FEE // 5
    assert await world.posted() == before + 3
    kinds = [i["kind"] for i in await world.intents() if i["outcome"] == "done"]
    assert sorted(kinds) == ["close", "dispute", "release"]
    gas = sum(
        row["gas_used"] * row["effective_gas_price_wei"]
        for row in await world.attempts()
        if row["state"] == "mined"
    )
    assert balance - await world.rpc.balance(world.poster.address) == BOND + gas
    assert await world.pool.fetchval("SELECT dispute FROM node.disagreement") == "opened"
