"""What the scheduler is shown of the workers."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from indexer.database import Pool
from indexer.types import Address
from inferd.protocol.request import ModelId, model_id
from inferd.workers.breaker import Circuit
from inferd.workers.local import LocalWorker
from inferd.workers.pool import UnknownWorker, WorkerPool
from inferd.workers.service_stats import Experience, record
from scheduler.model import WorkerId, WorkerView
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


async def test_an_open_circuit_hides_the_worker_and_half_open_lets_two_try(pool: Pool) -> None:
    clock = Clock()
    worker = a_worker(pool, Scripted())
    workers = WorkerPool([worker], clock=clock)
    await register(pool, worker)
    for _ in range(5):
        workers.failed(worker.address)
    assert not (await view(workers, pool)).available
    clock.now_s += 60
    probing = await view(workers, pool)
    assert probing.available
    assert probing.slots == 2
    workers.answered(worker.address)
    assert (await view(workers, pool)).slots == 1
    workers.answered(worker.address)
    assert (await view(workers, pool)).slots == 4


async def test_one_key_is_one_worker(pool: Pool) -> None:
    with pytest.raises(ValueError, match="two workers"):
        WorkerPool([a_worker(pool, Scripted()), a_worker(pool, Scripted())])
    with pytest.raises(UnknownWorker):
        await WorkerPool([]).sign_group(OWNER, b"")


async def test_workers_join_and_leave_while_the_pool_is_in_use(pool: Pool) -> None:
    embedded, other = a_worker(pool, Scripted(), seed=1), a_worker(pool, Scripted(), seed=2)
    workers = WorkerPool([embedded])
    await register(pool, other)
    workers.join(other, held="no heartbeat yet")
    async with pool.acquire() as connection:
        found = {one.id: one for one in await workers.views(connection)}
    assert not found[WorkerId(other.address)].available, "it is listed, and its requests wait"
    workers.join(other, held=None)
    async with pool.acquire() as connection:
        found = {one.id: one for one in await workers.views(connection)}
    assert found[WorkerId(other.address)].available

    workers.reserve(other.address)
    workers.leave(other.address)
    assert workers.worker(other.address) is other, "what it has in hand is not taken from it"
    assert workers.standing(other.address).held == "it has left"
    workers.release(other.address)
    with pytest.raises(UnknownWorker):
        workers.worker(other.address)
    assert workers.workers == (embedded,)


async def test_a_busy_worker_rests_and_is_asked_for_less_but_embedded_ones_are_as_they_are(
    pool: Pool,
) -> None:
    clock = Clock()
    embedded, other = a_worker(pool, Scripted(), seed=1), a_worker(pool, Scripted(), seed=2)
    workers = WorkerPool([embedded], clock=clock)
    workers.join(other, held=None)
    for worker in (embedded, other):
        await register(pool, worker)
        workers.reserve(worker.address)
        workers.busy(worker.address, begun_at_s=clock.now_s, retry_after_s=3.0)
    assert workers.standing(embedded.address).limit is None
    assert workers.standing(other.address).limit == 2

    async def slots() -> dict[bytes, int]:
        async with pool.acquire() as connection:
            return {one.id: one.slots for one in await workers.views(connection)}

    assert await slots() == {embedded.address: 4, other.address: 1}, "no more than it has"
    assert workers.circuit(other.address) is Circuit.CLOSED, "it is no failure"
    clock.now_s += 3.0
    assert await slots() == {embedded.address: 4, other.address: 2}


@pytest.mark.parametrize("retry_after_s", [0.0, 0.001])
async def test_the_rest_grows_with_each_refusal_but_not_within_a_burst(
    pool: Pool, retry_after_s: float
) -> None:
    clock = Clock()
    other = a_worker(pool, Scripted())
    workers = WorkerPool([], clock=clock)
    workers.join(other, held=None)

    def refused(begun_at_s: float) -> float:
        clock.now_s += 0.01
        workers.busy(other.address, begun_at_s=begun_at_s, retry_after_s=retry_after_s)
        return workers.standing(other.address).rests_s

    begun_at_s = clock.now_s
    assert max(refused(begun_at_s) for _ in range(50)) <= 0.25
    assert max(refused(clock.now_s) for _ in range(50)) > 1.0, "whatever it asks for"
    clock.now_s += 30.0
    workers.answered(other.address)
    assert refused(clock.now_s) <= 0.25


async def test_a_second_worker_is_one_that_is_free_fit_and_proved(pool: Pool) -> None:
    first, slow, quick = (
        a_worker(pool, Scripted(prior_ms=prior_ms), seed=seed)
        for seed, prior_ms in ((1, 100.0), (2, 400.0), (3, 200.0))
    )
    workers = WorkerPool([first, slow, quick])
    for worker in (first, slow, quick):
        await register(pool, worker)
    model = ModelId(model_id(MODEL))
    assert workers.second(first.address, model, 64, proved=0.0) is None, "no round has seen them"
    async with pool.acquire() as connection:
        await workers.views(connection)
    found = workers.second(first.address, model, 64, proved=0.0)
    assert found is not None
    assert found[0] == quick.address
    assert found[1] == pytest.approx(2.0)
    assert workers.second(first.address, model, 64, proved=0.999) is None, "strangers both"
    async with pool.acquire() as connection:
        await workers.views(connection, [OWNER])
    assert workers.second(first.address, model, 64, proved=0.999) is not None, "ours are trusted"
    for _ in range(4):
        workers.reserve(quick.address)
    found = workers.second(first.address, model, 64, proved=0.0)
    assert found is not None
    assert found[0] == slow.address
    for _ in range(5):
        workers.failed(slow.address)
    assert workers.second(first.address, model, 64, proved=0.0) is None
