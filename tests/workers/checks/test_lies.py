"""Answers that are not what they say: each is counted once, recorded where it is signed."""

from __future__ import annotations

import asyncio

import msgspec

from indexer.database import Pool
from inferd.protocol.worker_api import JobDone, JobId
from inferd.workers.checks.evidence import Kind
from inferd.workers.checks.rules import CheckRules
from inferd.workers.checks.suspension import SuspensionRule
from inferd.workers.leases import FailureKind, failure_kind
from scheduler.patience import Patience
from tests.workers.checks.house import living_in, says
from tests.workers.remote.scripted import wrong_key
from tests.workers.support import a_job, lease_for, until

RULES = CheckRules(suspension=SuspensionRule(after_lies=3))
HURRIED = Patience(p90_ms=200, p99_ms=100_000, inclusion_s=1.0)
"""Nine of ten answers would be here after 0.2 s."""


def other_output(job: JobId, done: JobDone) -> JobDone:
    return msgspec.structs.replace(done, output=b"something else")


def impossible(job: JobId, done: JobDone) -> JobDone:
    return msgspec.structs.replace(done, manifest={"completion_tokens": 10**9})


async def test_three_lies_within_a_day_suspend(pool: Pool) -> None:
    async with living_in(pool, RULES) as house:
        liar = await house.hire(1)
        liar.mangle = lambda job, done: wrong_key(job, done.output)
        for number in (1, 2):
            await house.serve(a_job(number), liar)
        assert await house.suspended() == set()
        await house.serve(a_job(3), liar)
        assert await house.suspended() == {liar.address}
        assert await house.lies(liar) == 3
        assert await house.records() == [], "another key's signature proves nothing against it"


async def test_what_somebody_between_could_have_changed_suspends_nobody(pool: Pool) -> None:
    """A relay that mixes answers up, or somebody who changes them, costs tries and no trust."""
    async with living_in(pool, RULES) as house:
        worker = await house.hire(1)
        worker.vouches = False
        spoilt = [lambda job, done: wrong_key(job, done.output), other_output, impossible]
        for number, mangle in enumerate(spoilt * 2, 1):
            worker.mangle = mangle
            await house.serve(a_job(number), worker)
        assert await house.suspended() == set()
        assert await house.lies(worker) == 0
        assert await house.records() == []
        failed = await pool.fetchval("SELECT failed FROM node.reputation")
        assert failed == 2 * len(spoilt)


async def test_what_is_signed_all_the_same_is_kept(pool: Pool) -> None:
    async with living_in(pool, RULES) as house:
        liar = await house.hire(1)
        liar.mangle = other_output
        await house.serve(a_job(1), liar)
        liar.mangle = impossible
        await house.serve(a_job(2), liar)
        manifest, digest = [one.disagreement for one in await house.records()]
        assert (digest.kind, digest.accused.output) == (Kind.LIE, b"something else")
        assert manifest.kind is Kind.MANIFEST
        assert manifest.accused.manifest == {"completion_tokens": 10**9}
        assert await house.lies(liar) == 2, "each counts once"


async def test_the_lie_of_a_second_worker_counts_and_is_recorded(pool: Pool) -> None:
    async with living_in(pool, RULES) as house:
        slow, liar = await house.hire(1), await house.hire(2)
        slow.gate = asyncio.Event()
        liar.mangle = other_output
        job = a_job(1, deadline_in_s=60)
        await house.ask(job)
        lease = await lease_for(pool, job, slow.address, lease_ms=59_000)
        house.dispatcher.start(lease, job, HURRIED)
        await until(lambda: liar.computed)
        slow.gate.set()
        await house.settled()
        assert await house.in_hand() == [(1, slow.address)]
        assert (await house.lies(slow), await house.lies(liar)) == (0, 1)
        (record,) = await house.records()
        assert record.disagreement.accused.worker == liar.address
        failures = await pool.fetch("SELECT worker, failure FROM node.worker_failure")
        assert [(row["worker"], failure_kind(row["failure"])) for row in failures] == [
            (liar.address, FailureKind.LIED)
        ]


async def test_the_lie_of_a_first_worker_counts_where_the_second_answers(pool: Pool) -> None:
    async with living_in(pool, RULES) as house:
        liar, good = await house.hire(1), await house.hire(2)
        liar.gate, good.gate = asyncio.Event(), asyncio.Event()
        liar.mangle = other_output
        job = a_job(1, deadline_in_s=60)
        await house.ask(job)
        lease = await lease_for(pool, job, liar.address, lease_ms=59_000)
        house.dispatcher.start(lease, job, HURRIED)
        await until(lambda: good.asked)
        liar.gate.set()
        await until(lambda: liar.dropped)
        good.gate.set()
        await house.settled()
        assert await house.in_hand() == [(1, good.address)]
        assert (await house.lies(liar), await house.lies(good)) == (1, 0)
        assert len(await house.records(liar.address)) == 1


async def test_a_digest_that_was_signed_in_a_lie_and_another_later_are_proof(pool: Pool) -> None:
    async with living_in(pool, RULES) as house:
        worker = await house.hire(1)
        worker.mangle = other_output
        job = a_job(1)
        await house.serve(job, worker)
        worker.mangle = says(worker.key, b"a second answer")
        await house.give(job, worker, attempt=2)
        kinds = {record.disagreement.kind for record in await house.records()}
        assert kinds == {Kind.LIE, Kind.EQUIVOCATION}
        assert await house.suspended() == {worker.address}


async def test_a_lie_after_the_lease_counts_too(pool: Pool) -> None:
    async with living_in(pool, RULES) as house:
        liar = await house.hire(1)
        liar.gate = asyncio.Event()
        liar.mangle = other_output
        job = a_job(1)
        await house.ask(job)
        lease = await lease_for(pool, job, liar.address, lease_ms=300)
        house.dispatcher.start(lease, job)
        await until(lambda: house.dispatcher.waiting_late and not house.dispatcher.running)
        assert await house.lies(liar) == 0
        liar.gate.set()
        await until(lambda: not house.dispatcher.waiting_late)
        assert await house.lies(liar) == 1
        assert len(await house.records(liar.address)) == 1
        assert house.pool.standing(liar.address).failure_share == 1.0
