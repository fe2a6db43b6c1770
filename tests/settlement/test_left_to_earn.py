"""What a transaction under way is still worth, where others have settled some of its results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inferd.settlement.data_fee import NO_DATA_PRICE
from inferd.settlement.intents import IntentReader
from inferd.settlement.observing import Evidence, Observer, Place
from inferd.settlement.settings import SettlementSettings
from tests.settlement.held import owner_of_workers
from tests.settlement.world import ETHER, POSTER_BPS, World

FEE = ETHER // 100


@pytest.mark.parametrize("gone", ["ours", "stranger's"])
async def test_it_is_what_the_others_earn__not_their_part_of_the_fees(
    world: World, gone: str
) -> None:
    """Of our own worker's result the whole fee is earned, of a stranger's the poster's share of
    four times as much: 5 and 4 parts."""
    ours, theirs = *await world.submit(1), *await world.submit(1, fee_wei=4 * FEE)
    await world.compute([ours], 0)
    await world.compute([theirs], 1)
    await world.pool.execute(
        "UPDATE chain.worker SET owner = $2 WHERE signer = $1", world.workers[1], b"\1" * 20
    )
    own = frozenset({owner_of_workers(world)})
    settlement = world.settlement(own_accounts=own)
    head = await world.index()
    await settlement.step(head)
    (row,) = await world.intents()
    reader = IntentReader(
        world.pool, chain_id=world.contracts.chain_id, sender=world.poster.address
    )
    intent = await reader.load(row["id"])
    assert intent.earning is not None
    assert intent.earning.revenue_wei == FEE + 4 * FEE * POSTER_BPS // 10_000
    settled, left_wei = (ours, 4 * FEE * POSTER_BPS // 10_000) if gone == "ours" else (theirs, FEE)
    await world.pool.execute("UPDATE chain.request SET status = 'fulfilled' WHERE id = $1", settled)
    observer: Any = SimpleNamespace(
        _pool=world.pool, _settings=SettlementSettings(poster_bps=POSTER_BPS, own_accounts=own)
    )
    sight: Any = SimpleNamespace(head=head, data=NO_DATA_PRICE)
    found = Evidence()
    await Observer._look_at_items(observer, intent, found, sight, Place(True, False, 12.0))
    assert Observer._worth_wei(observer, intent, found, sight) == left_wei // intent.earning.gas
