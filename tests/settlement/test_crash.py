"""The process dies at any await of settlement's I/O; a new one ends the work, once.

Dying is an exception here, so that each await can be tried and not only each kind of it, as
`test_kill_points` does with real processes. HYPOTHESIS_PROFILE=deep takes them all.
"""

from __future__ import annotations

import os

import pytest
from eth_utils.address import to_checksum_address

from indexer.types import Address
from tests.settlement.scripted import Crash, CrashingPool, CrashingRpc, CrashPoints
from tests.settlement.world import ETHER, World

_TABLES = (
    "chain.block, chain.cursor, chain.log, chain.payment, chain.request, chain.worker, chain.hold,"
    " chain.terms, node.tx_item, node.tx_attempt, node.tx_intent, node.sender,"
    " node.gas_observation"
)
_MAX_TICKS = 12
_PARTS = 2
"""Tests that share the crash points, since two run at once."""
_USUAL_SHARE = 8
"""One of so many points is tried where nobody asks for all of them: all take four minutes."""
_STEP = _PARTS * (1 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else _USUAL_SHARE)


async def rewind(world: World, snapshot: str) -> str:
    """Chain and tables as before any transaction of the poster."""
    assert await world.rpc.request("evm_revert", [snapshot])
    await world.pool.execute(f"TRUNCATE {_TABLES} RESTART IDENTITY CASCADE")
    await world.pool.execute("UPDATE node.decision SET intent_id = NULL")
    world.indexer = None
    await world.index()
    return str(await world.rpc.request("evm_snapshot"))


async def _run(world: World, points: CrashPoints) -> None:
    """A process from its start until all is settled and followed to its end, or its death."""
    settlement = world.settlement(
        rpc=CrashingRpc(world.rpc, points), pool=CrashingPool(world.pool, points)
    )
    for _ in range(_MAX_TICKS):
        await settlement.step(await world.mine())
        open_ = await world.pool.fetchval(
            "SELECT (SELECT count(*) FROM chain.request WHERE status = 'pending')"
            " + (SELECT count(*) FROM node.tx_item WHERE live)"
            " + (SELECT count(*) FROM chain.request WHERE status = 'fulfilled' AND delivery = 2"
            "    AND callback_delivered_block IS NULL)"
        )
        if not open_:
            return


@pytest.mark.parametrize("part", range(_PARTS))
async def test_every_crash_point(world: World, part: int) -> None:
    diary = await world.new_diary()
    ids = [*await world.submit(1), await world.ask_by(diary)]
    (expired,) = await world.submit(1, lifetime_s=2)
    await world.compute(ids[:1], 0)
    await world.compute(ids[1:], 1)
    await world.decide([b"\x01" * 32])
    await world.rpc.request("evm_increaseTime", [10])
    await world.mine()
    snapshot = str(await world.rpc.request("evm_snapshot"))

    whole = CrashPoints()
    await _run(world, whole)
    await _assert_done(world, ids, expired, diary)
    assert {"send_raw_transaction", "COMMIT", "receipt", "call"} <= set(whole.names)
    points = range(1 + part * _STEP // _PARTS, whole.passed + 1, _STEP)
    for at in points:
        snapshot = await rewind(world, snapshot)
        with pytest.raises(Crash):
            await _run(world, CrashPoints(at))
        await _run(world, CrashPoints())
        try:
            await _assert_done(world, ids, expired, diary)
        except AssertionError as error:
            raise AssertionError(f"died before {whole.names[at - 1]} ({at})") from error
    print(f"{len(points)} of {whole.passed} crash points")


async def _assert_done(world: World, ids: list[int], expired: int, diary: Address) -> None:
    statuses = await world.statuses()
    assert {statuses[one] for one in ids} == {"fulfilled"}
    assert statuses[expired] == "refunded"
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await world.credit(world.poster.address) == 2 * ETHER // 100 // 5
    assert await world.credit(world.requester.address) == ETHER // 100
    assert await world.answer_of(diary, ids[1]) == f"answer {ids[1]}".encode()
    # One post, one delivery and one refund, whatever was begun twice: no gas is paid for nothing.
    assert await world.posted() == 3
    sender = await world.pool.fetchrow("SELECT address, next_nonce FROM node.sender")
    assert to_checksum_address(sender["address"]) == to_checksum_address(world.poster.address)
    assert sender["next_nonce"] == 3
    states = [intent["state"] for intent in await world.intents()]
    assert states.count("confirmed") == 3
    assert set(states) <= {"confirmed", "cancelled"}
    assert not await world.pool.fetchval("SELECT count(*) FROM node.tx_item WHERE live")
    nonces = [attempt["nonce"] for attempt in await world.attempts()]
    assert sorted(nonces) == [0, 1, 2]
