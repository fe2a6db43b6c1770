"""Reorganisations of depth 1 to 32 over posted results: before and after they are confirmed, with
the new branch empty, or with a rival's post of the same requests on it.

HYPOTHESIS_PROFILE=deep takes every depth.
"""

from __future__ import annotations

import os

import pytest

from inferd.settlement.engine import Settlement
from inferd.settlement.state import LIVE_SQL
from tests.settlement.rival import Rival
from tests.settlement.test_accounts_equal_the_chain import FEE, Books
from tests.settlement.world import World

_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
_DEPTHS = range(1, 33) if _DEEP else (1, 2, 3, 5, 8, 13, 21, 32)
_RESULTS = 3
_PATIENCE_BLOCKS = 12
_ALREADY = "skipped:already_settled"


async def _post(world: World, settlement: Settlement, depth: int, *, confirmed: bool) -> list[int]:
    """Requests that stay, and a post of theirs among the newest `depth` blocks: in the head, where
    it is not confirmed yet; else as deep as `depth` goes, where that is deep enough to confirm."""
    ids = await world.submit(_RESULTS)
    if not confirmed:
        await world.mine(depth - 1) if depth > 1 else None
    await world.compute(ids)
    await settlement.step(await world.index())
    await world.tick(settlement)
    if confirmed:
        await world.tick(settlement, max(depth - 1, 1))
    state = (await world.intents())[-1]["state"]
    assert state == ("confirmed" if confirmed else "mined"), depth
    return ids


async def _until_quiet(world: World, settlement: Settlement) -> None:
    for _ in range(_PATIENCE_BLOCKS):
        await world.tick(settlement)
        live = await world.pool.fetchval(f"SELECT count(*) FROM node.tx_intent WHERE {LIVE_SQL}")
        if not live and "pending" not in (await world.statuses()).values():
            return


async def _assert_outbox_is_the_chain(world: World, story: str) -> None:
    live = await world.pool.fetchval(f"SELECT count(*) FROM node.tx_intent WHERE {LIVE_SQL}")
    assert live == 0, story
    assert not await world.pool.fetchval("SELECT count(*) FROM node.tx_item WHERE live"), story
    assert await world.pool.fetchval("SELECT next_nonce FROM node.sender") == await world.posted()
    mined = [one for one in await world.attempts() if one["state"] == "mined"]
    assert len(mined) == await world.posted(), story
    for attempt in mined:
        receipt = await world.rpc.receipt(attempt["hash"])
        assert receipt is not None, story
        assert receipt.succeeded, story
        assert receipt.block_hash == attempt["mined_block_hash"], story
        assert receipt.gas_used == attempt["gas_used"], story


@pytest.mark.parametrize("rival_wins", [0, 2, 3])
@pytest.mark.parametrize("confirmed", [False, True])
async def test_each_request_is_paid_once(world: World, confirmed: bool, rival_wins: int) -> None:
    rival = await Rival(world).register()
    books = await Books(world).open()
    settlement = world.settlement(confirmations=2)
    lost = 0
    asked: list[int] = []
    for depth in _DEPTHS:
        ids = await _post(world, settlement, depth, confirmed=confirmed)
        asked += ids
        reached = not confirmed or depth > 1
        branch = []
        if rival_wins:
            raw = await rival.signed_post(ids[:rival_wins])
            branch = [["0x" + raw.hex(), 0]]
        await world.rpc.request("anvil_reorg", [depth, branch])
        head = await world.mine()
        statuses = await world.statuses()
        won = ids[:rival_wins] if reached else []
        lost += len(won)
        if reached:
            pending = [one for one in ids if statuses[one] == "pending"]
            assert pending == ids[len(won) :], depth
        await settlement.step(head)
        await _until_quiet(world, settlement)

        story = f"depth {depth}: {[dict(i) for i in (await world.intents())[-2:]]}"
        assert set((await world.statuses()).values()) == {"fulfilled"}, story
        assert await world.fulfilled_events() == dict.fromkeys(asked, 1), story
        await _assert_outbox_is_the_chain(world, story)
        ended = [(await world.items())[one][-1] for one in ids]
        # Where all are lost before our bytes are mined again, nothing takes their nonce.
        ends = {_ALREADY, None} if len(won) == _RESULTS else {_ALREADY}
        for one, end in zip(ids, ended, strict=True):
            assert end in (ends if one in won else {"settled"}), story
        await books.compare()
        assert await rival.credit() == lost * FEE, story
        ours = [await world.credit(one) for one in books.own]
        assert sum(ours) == (len(asked) - lost) * FEE, story
