"""A worker that does not sign its results together makes a batch dearer than was reckoned with."""

from __future__ import annotations

import pytest

from indexer.types import Address
from inferd.protocol.typed_data import CompactSignature
from inferd.settlement.settings import PausedReason
from inferd.workers.job import RefusedToSign
from tests.settlement.world import GWEI, World


async def test_results_of_others_do_not_wait_for_a_worker_that_signs_no_groups(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, sulky = world.workers[:2]
    real = world.sign_group

    async def sign_group(worker: Address, items: bytes) -> CompactSignature:
        if worker == sulky:
            raise RefusedToSign("no")
        return await real(worker, items)

    monkeypatch.setattr(world, "sign_group", sign_group)
    # Worth a post where each worker signs once, and none where one of them signs twenty times.
    ids = await world.submit(40, fee_wei=80_000 * GWEI)
    await world.compute(ids[:20], honest)
    await world.compute(ids[20:], sulky)
    settlement = world.settlement()
    await world.tick(settlement, 3)
    assert list(await world.items()) == ids[:20]
    assert await world.fulfilled_events() == dict.fromkeys(ids[:20], 1)
    assert settlement.status.paused_reason in {None, PausedReason.UNPROFITABLE}
