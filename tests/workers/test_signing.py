"""What a worker puts its name to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from eth_keys.datatypes import PrivateKey

from indexer.database import Pool
from indexer.types import Address, Hash32
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import (
    CompactSignature,
    domain_separator,
    group_digest,
    recover,
    sign_digest,
)
from inferd.workers import local, results
from inferd.workers.job import Job, RefusedToSign, SignedResult, WorkerBusy, WorkerFailed
from inferd.workers.local import LocalWorker
from tests.workers.support import DOMAIN, Scripted, a_job, a_worker, lease_for


async def stored(pool: Pool, worker: LocalWorker, job: Job) -> SignedResult:
    lease = await lease_for(pool, job, worker.address)
    result = await worker.compute(job)
    async with pool.acquire() as connection, connection.transaction():
        assert await results.store(connection, [(result, lease.id, True)])
    return result


async def test_the_signature_is_the_workers_over_the_group_of_one(pool: Pool) -> None:
    worker = a_worker(pool, Scripted())
    result = await worker.compute(a_job(5, b"question"))
    assert result.output == b"answer to question"
    assert result.digest == digest_of(result.output)
    item = ResultItem(5, a_job(5).commitment, result.digest)
    assert recover(group_digest(DOMAIN, pack_items([item])), result.signature) == worker.address


async def test_a_group_of_its_own_results_verifies(pool: Pool) -> None:
    worker = a_worker(pool, Scripted())
    made = [await stored(pool, worker, a_job(number)) for number in range(1, 6)]
    items = pack_items(result.item for result in made)
    assert recover(group_digest(DOMAIN, items), await worker.sign_group(items)) == worker.address


@pytest.mark.parametrize(
    "spoil",
    [
        lambda item: replace(item, request_id=99),
        lambda item: replace(item, commitment=a_job(77).commitment),
        lambda item: replace(item, digest=digest_of(b"something else")),
    ],
)
async def test_one_foreign_item_spoils_the_group(pool: Pool, spoil) -> None:  # type: ignore[no-untyped-def]
    worker = a_worker(pool, Scripted())
    made = [await stored(pool, worker, a_job(number)) for number in (1, 2)]
    items = pack_items([made[0].item, spoil(made[1].item)])
    with pytest.raises(RefusedToSign):
        await worker.sign_group(items)


async def test_not_yet_stored_other_workers_and_malformed_items_are_refused(pool: Pool) -> None:
    worker, other = a_worker(pool, Scripted()), a_worker(pool, Scripted(), seed=2)
    fresh = await worker.compute(a_job(1))
    with pytest.raises(RefusedToSign):
        await worker.sign_group(pack_items([fresh.item]))
    theirs = await stored(pool, other, a_job(2))
    with pytest.raises(RefusedToSign):
        await worker.sign_group(pack_items([theirs.item]))
    for malformed in (b"", b"x" * 59):
        with pytest.raises(RefusedToSign):
            await worker.sign_group(malformed)


async def test_what_it_has_just_signed_is_not_checked_again(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check takes longer than a signature."""
    checked = []

    def recovered(digest: Hash32, signature: CompactSignature) -> Address:
        checked.append(signature)
        return recover(digest, signature)

    monkeypatch.setattr(local, "recover", recovered)
    monkeypatch.setattr(local, "_REMEMBERED", 2)
    worker = a_worker(pool, Scripted())
    made = [await stored(pool, worker, a_job(number)) for number in (1, 2, 3)]
    await worker.sign_group(pack_items([one.item for one in made]))
    assert checked == [made[0].signature], "the oldest is forgotten, and checked"
    restarted = a_worker(pool, Scripted())
    await restarted.sign_group(pack_items([one.item for one in made]))
    assert len(checked) == 4


async def test_a_row_without_its_own_signature_is_not_believed(pool: Pool) -> None:
    worker = a_worker(pool, Scripted())
    mine = await stored(pool, worker, a_job(1))
    items = pack_items([mine.item])
    intruder = sign_digest(PrivateKey(b"\x09" * 32), group_digest(DOMAIN, items))
    elsewhere = domain_separator(1, Address(b"\x11" * 20))
    other_chain = sign_digest(PrivateKey((1).to_bytes(32, "big")), group_digest(elsewhere, items))
    for signature in (intruder, other_chain, b"\xff" * 64, b"short"):
        await pool.execute("UPDATE node.result SET signature = $1", signature)
        with pytest.raises(RefusedToSign):
            await worker.sign_group(items)
        with pytest.raises(WorkerFailed):
            await worker.compute(a_job(1))


async def test_a_second_run_returns_the_recorded_answer(pool: Pool) -> None:
    count = 0

    async def never_the_same(job: Job) -> bytes:
        nonlocal count
        count += 1
        return str(count).encode()

    backend = Scripted(never_the_same)
    worker = a_worker(pool, backend)
    first = await stored(pool, worker, a_job(1))
    again = await a_worker(pool, backend).compute(a_job(1))
    assert again == first
    assert len(backend.calls) == 1, "it is not even computed"


async def test_two_runs_at_once_leave_one_digest(pool: Pool) -> None:
    """Both compute before either has stored: the row of the first one stands."""
    count = 0

    async def never_the_same(job: Job) -> bytes:
        nonlocal count
        count += 1
        return str(count).encode()

    worker = a_worker(pool, Scripted(never_the_same))
    job = a_job(1)
    lease = await lease_for(pool, job, worker.address)
    both = await asyncio.gather(worker.compute(job), worker.compute(job))
    assert both[0].digest != both[1].digest
    for result in both:
        async with pool.acquire() as connection, connection.transaction():
            await results.store(connection, [(result, lease.id, True)])
    rows = await pool.fetch("SELECT digest FROM node.result")
    assert [row["digest"] for row in rows] == [both[0].digest]
    assert (await worker.compute(job)).digest == both[0].digest
    with pytest.raises(RefusedToSign):
        await worker.sign_group(pack_items([both[1].item]))


async def test_stored_while_computing_wins_over_the_fresh_output(pool: Pool) -> None:
    first = await a_worker(pool, Scripted()).compute(a_job(1))
    lease = await lease_for(pool, a_job(1), first.worker)

    async def slow_and_different(job: Job) -> bytes:
        async with pool.acquire() as connection, connection.transaction():
            await results.store(connection, [(first, lease.id, True)])
        return b"different"

    assert await a_worker(pool, Scripted(slow_and_different)).compute(a_job(1)) == first


async def test_no_slot_is_busy_and_an_unknown_model_fails(pool: Pool) -> None:
    release = asyncio.Event()

    async def wait(job: Job) -> bytes:
        await release.wait()
        return b"done"

    worker = a_worker(pool, Scripted(wait), slots=1)
    running = asyncio.create_task(worker.compute(a_job(1)))
    await asyncio.sleep(0.05)
    with pytest.raises(WorkerBusy):
        await worker.compute(a_job(2))
    release.set()
    assert (await running).output == b"done"
    with pytest.raises(WorkerFailed):
        await worker.compute(a_job(3, model="another"))
    assert (await worker.compute(a_job(2))).output == b"done", "the slot is free again"
