"""How long a result may wait, and which of several is posted: on slow chains, by dead workers."""

from __future__ import annotations

import asyncio
import threading
from types import ModuleType
from typing import Any

import pytest
from eth_utils.address import to_checksum_address

from indexer.types import Address
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.typed_data import CompactSignature, domain_separator
from inferd.settlement import batch, posting
from inferd.settlement.batch import build_groups, load_ready
from inferd.settlement.settings import SettlementSettings
from tests.settlement.world import ETHER, POSTER_BPS, World

BLOCK_S = 12
FEE = ETHER // 100
PATIENT = {"guard_s": 6.0, "delay_price_wei_per_s": 0, "refunds": False}
"""Only a deadline makes these settings post."""


async def slow_chain(world: World) -> None:
    """From now on each block is 12 s after the last, and so were those that are remembered."""
    await world.rpc.request("anvil_setBlockTimestampInterval", [BLOCK_S])
    await world.mine(24)


async def switch_off(world: World, worker: int) -> None:
    """As its owner does it."""
    owner = Sender(world.rpc, world.anvil.config.account(0), world.contracts.chain_id)
    signer = to_checksum_address(world.workers[worker])
    await world.automine(True)
    await owner.send(
        world.contracts.registry, calls._encode("WorkerRegistry", "setEnabled", [signer, False])
    )
    await world.automine(False)
    await world.index()


@pytest.mark.parametrize("lifetime_s", [12, 13, 23, 24, 25, 30, 35, 36, 37, 48, 60])
async def test_on_slow_blocks_a_result_is_posted_while_it_can_be_mined(
    world: World, lifetime_s: int
) -> None:
    await slow_chain(world)
    settlement = world.settlement(**PATIENT)
    ids = await world.submit(1, lifetime_s=BLOCK_S + lifetime_s)  # its own block takes 12 s of it
    await world.compute(ids, age_s=0)
    await settlement.step(await world.index())
    await world.tick(settlement, lifetime_s // BLOCK_S + 2)
    assert await world.statuses() == {ids[0]: "fulfilled"}
    assert await world.items() == {ids[0]: ["settled"]}


async def test_what_the_next_block_is_too_late_for_is_dropped_and_said(world: World) -> None:
    await slow_chain(world)
    settlement = world.settlement(**PATIENT)
    late = await world.submit(1, lifetime_s=BLOCK_S + 11)
    await world.compute(late, age_s=0)
    head = await world.index()
    await settlement.step(head)
    await settlement.step(head)
    assert await world.attempts() == []
    assert settlement.status.too_late == 1, "counted once, however often it is looked at"
    assert "1 would be past it in the next block" in settlement.status.posting
    # It keeps no other from being posted.
    fine = await world.submit(1, lifetime_s=BLOCK_S + 40)
    await world.compute(fine, age_s=0)
    await world.tick(settlement, 5)
    assert await world.items() == {fine[0]: ["settled"]}


async def test_a_result_of_a_worker_that_is_gone_does_not_stand_before_another(
    world: World,
) -> None:
    ids = await world.submit(1)
    await world.compute(ids, 0, age_s=60)
    await world.compute(ids, 1, age_s=30)
    await switch_off(world, 0)
    settlement = world.settlement()
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == {ids[0]: 1}
    assert await world.pool.fetchval("SELECT worker FROM chain.request") == world.workers[1]
    assert await world.posted() == 1


async def test_a_result_the_chain_would_skip_does_not_stand_before_another(world: World) -> None:
    ids = await world.submit(1)
    await world.compute(ids, 0, age_s=60)
    await world.compute(ids, 1, age_s=30)
    await world.pool.execute(
        "UPDATE node.result SET signature = $1 WHERE worker = $2", bytes(64), world.workers[0]
    )
    settlement = world.settlement()
    await settlement.step(await world.index())
    assert (settlement.status.ready, settlement.status.in_flight) == (0, 1), "at once"
    await world.tick(settlement, 4)
    assert await world.items() == {ids[0]: ["settled"]}
    assert await world.pool.fetchval("SELECT worker FROM chain.request") == world.workers[1]


async def test_a_request_of_a_block_after_the_head_waits_for_the_next_step(world: World) -> None:
    """While a step is under way the tables go on; at its head the contract knows nothing of that,
    and would make a batch with it worthless."""
    ids = await world.submit(2)
    await world.compute(ids)
    head = await world.index()
    newer = await world.submit(1)
    await world.compute(newer)
    settlement = world.settlement()
    await world.index()
    await settlement.step(head)
    assert settlement.status.held == 0
    assert await world.items() == {number: [None] for number in ids}
    await world.tick(settlement, 4)
    assert await world.items() == {number: ["settled"] for number in [*ids, *newer]}


async def test_only_a_worker_of_ones_own_makes_the_whole_fee_revenue(world: World) -> None:
    ids = await world.submit(1)
    await world.compute(ids)
    head = await world.index()
    owner = await world.pool.fetchval(
        "SELECT owner FROM chain.worker WHERE signer = $1", world.workers[0]
    )
    for own, revenue_wei in (
        (frozenset({owner}), FEE),
        (frozenset(), FEE * POSTER_BPS // 10_000),
        (frozenset({world.workers[0]}), FEE * POSTER_BPS // 10_000),  # its key is not its owner
    ):
        settings = SettlementSettings(POSTER_BPS, own_accounts=own)
        (result,) = await load_ready(world.pool, head, settings, max_gas=10**7)
        assert result.ready.revenue_wei == revenue_wei


async def test_what_takes_long_with_many_results_is_not_done_on_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, threading.Thread] = {}

    def noting(module: ModuleType, name: str) -> None:
        real = getattr(module, name)

        def noted(*args: Any) -> Any:
            threads[name] = threading.current_thread()
            return real(*args)

        monkeypatch.setattr(module, name, noted)

    noting(batch, "revenue_of")
    noting(posting, "decide")
    await world.compute(await world.submit(2))
    settlement = world.settlement()
    await world.tick(settlement, 2)
    assert set((await world.statuses()).values()) == {"fulfilled"}
    assert set(threads) == {"revenue_of", "decide"}
    assert threading.main_thread() not in threads.values()


async def test_all_workers_are_asked_at_once(world: World) -> None:
    ids = await world.submit(4)
    await world.compute(ids[:2], 0)
    await world.compute(ids[2:], 1)
    ready = await load_ready(
        world.pool,
        await world.index(),
        SettlementSettings(POSTER_BPS),
        max_gas=10**7,
    )
    everybody = asyncio.Barrier(2)

    async def sign(worker: Address, items: bytes) -> CompactSignature:
        await everybody.wait()
        return await world.sign_group(worker, items)

    domain = domain_separator(world.contracts.chain_id, world.contracts.results)
    groups = await build_groups(ready, sign, domain=domain, timeout_s=5.0)
    assert [(group.workers, len(group.items)) for group in groups] == [
        ((worker,), 2) for worker in world.workers
    ]
