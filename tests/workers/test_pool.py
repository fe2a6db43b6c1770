"""What the scheduler is shown of the workers."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from indexer.database import Pool
from indexer.types import Address
from inferd.protocol.request import model_id
from inferd.workers.local import LocalWorker
from inferd.workers.pool import UnknownWorker, WorkerPool
from inferd.workers.service_stats import Experience, record
from scheduler.model import WorkerView
from tests.workers.support import MODEL, Scripted, a_job, a_worker

OWNER = Address(b"\x22" * 20)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def register(
    pool: Pool, worker: LocalWorker, *, slots: int = 4, enabled: bool = True, staked: bool = True
) -> None:
    await pool.execute(
        """
        INSERT INTO chain.worker VALUES ($1, $2, $3, '', $4, 500, $5, $6, 1, 0, 1)
        ON CONFLICT (signer) DO UPDATE SET enabled = $5, staked = $6
        """,
        worker.address,
        OWNER,
        [model_id(MODEL), model_id("another")],
        slots,
        enabled,
        staked,
    )


async def view(workers: WorkerPool, pool: Pool, own: Collection[Address] = ()) -> WorkerView:
    async with pool.acquire() as connection:
        (only,) = await workers.views(connection, own)
    return only


async def test_a_view_joins_registry_machine_and_experience(pool: Pool) -> None:
    worker = a_worker(pool, Scripted(), slots=3)
    workers = WorkerPool([worker])
    unregistered = await view(workers, pool, [OWNER, worker.address])
    assert not unregistered.available
    assert not unregistered.owned
    assert set(unregistered.service) == {model_id(MODEL)}, "its requests wait, not refused"

    await register(pool, worker)
    registered = await view(workers, pool)
    assert registered.available
    assert not registered.owned
    assert (await view(workers, pool, [OWNER])).owned, "its owner is paid, and that is us"
    assert not (await view(workers, pool, [worker.address])).owned, "only its key is ours"
    assert (registered.slots, registered.memory_mb) == (3, 500), "the smaller promise of the two"
    assert set(registered.service) == {model_id(MODEL)}
    assert registered.service[model_id(MODEL)].samples == 0  # type: ignore[index]

    async with pool.acquire() as connection:
        job = a_job()
        result = await worker.compute(job)
        told = Experience(worker.address, job, result, prior_ms=100.0, at_s=0.0)
        await record(connection, [told])
    workers.reserve(worker.address)
    busy = await view(workers, pool)
    assert busy.in_flight == 1
    assert busy.service[model_id(MODEL)].samples == 1  # type: ignore[index]
    workers.release(worker.address)
    assert (await view(workers, pool)).in_flight == 0


@pytest.mark.parametrize(("enabled", "staked"), [(False, True), (True, False)])
async def test_disabled_or_unstaked_is_not_available(
    pool: Pool, enabled: bool, staked: bool
) -> None:
    worker = a_worker(pool, Scripted())
    await register(pool, worker, enabled=enabled, staked=staked)
    assert not (await view(WorkerPool([worker]), pool)).available


async def test_an_open_circuit_hides_the_worker_and_half_open_lets_one_try(pool: Pool) -> None:
    clock = Clock()
    worker = a_worker(pool, Scripted())
    workers = WorkerPool([worker], clock=clock)
    await register(pool, worker)
    for _ in range(5):
        workers.record(worker.address, success=False)
    assert not (await view(workers, pool)).available
    clock.now_s += 60
    probing = await view(workers, pool)
    assert probing.available
    assert probing.slots == 1
    workers.record(worker.address, success=True)
    assert (await view(workers, pool)).slots == 4


async def test_one_key_is_one_worker(pool: Pool) -> None:
    with pytest.raises(ValueError, match="two workers"):
        WorkerPool([a_worker(pool, Scripted()), a_worker(pool, Scripted())])
    with pytest.raises(UnknownWorker):
        await WorkerPool([]).sign_group(OWNER, b"")
