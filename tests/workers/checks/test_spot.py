"""Results computed once more by others: who is wrong is recorded and suspended, and not posted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import structlog
from aiohttp import web

from indexer.database import Pool
from inferd.protocol.private import INPUT_MAGIC
from inferd.protocol.request import model_id
from inferd.protocol.result import digest_of, pack_items
from inferd.protocol.typed_data import group_digest, recover
from inferd.workers import reputation
from inferd.workers.checks import peers
from inferd.workers.checks.comparators import Text
from inferd.workers.checks.counts import Outcome
from inferd.workers.checks.desk import Desk
from inferd.workers.checks.evidence import Dispute, Kind, Recorded
from inferd.workers.checks.rules import CheckRules, ModelRule
from inferd.workers.checks.suspension import accuse
from inferd.workers.job import Completion, Job
from tests.workers.checks.house import ALWAYS, OURS, House, living_in, says
from tests.workers.remote.scripted import RESULTS_DOMAIN, ScriptedWorker, listening
from tests.workers.support import MODEL, Scripted, a_job


def proves(record: Recorded, worker: ScriptedWorker) -> bool:
    """Whether a third party that has the record alone can verify that the worker signed it."""
    found = record.disagreement
    assert found.accused.signature is not None
    digest = group_digest(RESULTS_DOMAIN, pack_items([found.item]))
    return recover(digest, found.accused.signature) == worker.address == found.accused.worker


async def test_a_result_is_not_posted_before_another_owner_has_computed_it(pool: Pool) -> None:
    async with living_in(pool) as house:
        first, second = await house.hire(1), await house.hire(2)
        job = a_job(1)
        await house.serve(job, first)
        assert await house.in_hand() == [(1, first.address)], "nobody computes it anew"
        assert await house.postable() == []
        assert "another worker computes it once more" in await house.why(1)
        await house.check()
        assert "once more" not in await house.why(1)
        assert second.computed == first.computed, "the very same job"
        assert (1, first.address) in await house.postable()
        assert await house.records() == []
        assert (await house.counted(first), await house.counted(second)) == (
            (1, 0, 0, 0),
            (1, 0, 0, 0),
        )
        assert house.outcomes == [(Kind.SPOT, Outcome.PASSED)] * 2
        assert second.dropped == second.computed, "it is told that nobody waits"
        assert house.changes == 1


async def test_one_owner_does_not_check_itself(pool: Pool) -> None:
    async with living_in(pool) as house:
        first, second = await house.hire(1, owner=9), await house.hire(2, owner=9)
        await house.serve(a_job(1), first)
        await house.check()
        assert second.asked == []
        assert await house.postable() == []


async def test_our_own_worker_decides_at_once(pool: Pool) -> None:
    own = Scripted()
    async with living_in(pool, own=own) as house:
        liar, stranger = await house.hire(1), await house.hire(2)
        liar.mangle = says(liar.key, b"a lie")
        await house.serve(a_job(1), liar)
        await house.check()
        assert len(own.calls) == 1
        assert stranger.asked == []
        (record,) = await house.records()
        found = record.disagreement
        assert (found.kind, found.decided, record.dispute) == (Kind.SPOT, True, Dispute.WANTED)
        assert found.accused.output == b"a lie"
        assert [side.output for side in found.others] == [b"answer to hello"]
        assert proves(record, liar)
        assert await house.suspended() == {liar.address}
        assert await house.lies(liar) == 1
        assert await house.counted(liar) == (0, 1, 0, 0)
        assert await house.postable() == [(1, house.own[0].address)], "ours is paid for it"


async def test_our_own_is_right_too_when_it_has_left(pool: Pool) -> None:
    """It has answered, and two strangers agree on something else after it stopped beating."""
    async with living_in(pool) as house:
        ours = await house.hire(1, owner=OURS[0])
        liars = [await house.hire(2), await house.hire(3)]
        job = replace(a_job(1), quorum=2)
        await house.serve(job, ours, quorum=2)
        house.pool.leave(ours.address)
        await house.see()
        for attempt, liar in enumerate(liars, start=2):
            liar.mangle = says(liar.key, b"a lie")
            await house.give(job, liar, attempt=attempt)
        assert await house.suspended() == {liar.address for liar in liars}
        assert await house.in_hand() == [(1, ours.address)]


async def test_nor_is_our_own_outvoted_in_a_check_when_it_has_left(pool: Pool) -> None:
    async with living_in(pool) as house:
        ours = await house.hire(1, owner=OURS[0])
        liars = [await house.hire(2), await house.hire(3)]
        for liar in liars:
            liar.mangle = says(liar.key, b"a lie")
        await house.serve(a_job(1), liars[0])
        await house.give(a_job(1), ours, attempt=2)
        house.pool.leave(ours.address)
        await house.see()
        await house.check()
        assert await house.suspended() == {liars[0].address}
        assert liars[1].asked == []


async def test_a_third_decides_between_two_strangers(pool: Pool) -> None:
    async with living_in(pool) as house:
        liar, honest = await house.hire(1), await house.hire(2)
        liar.mangle = says(liar.key, b"a lie")
        await house.serve(a_job(1), liar)
        await house.check()
        records = await house.records()
        assert {record.disagreement.accused.worker for record in records} == {
            liar.address,
            honest.address,
        }
        assert not any(record.disagreement.decided for record in records)
        assert await house.suspended() == set()
        assert await house.postable() == [], "nothing of it is posted while it is not known"
        assert len(await house.in_hand()) == 2, "and no round gives it away meanwhile"
        assert "contradict each other" in await house.why(1)
        await pool.execute("UPDATE node.spot_check SET held_until = now() - interval '1 s'")
        assert await house.postable() == [], "however long that takes"
        third = await house.hire(3)
        await house.check(rested=True)
        (record,) = await house.records()
        assert record.disagreement.decided
        assert record.disagreement.accused.worker == liar.address
        assert {side.worker for side in record.disagreement.others} == {
            honest.address,
            third.address,
        }
        assert await house.suspended() == {liar.address}
        right = {(1, honest.address), (1, third.address)}
        assert set(await house.postable()) == right
        assert await house.counted(liar) == (0, 1, 1, 0)
        assert await house.counted(honest) == (1, 0, 0, 0)


async def test_who_lies_about_an_honest_result_is_found_out_too(pool: Pool) -> None:
    async with living_in(pool) as house:
        honest, liar, third = [await house.hire(number) for number in (1, 2, 3)]
        house.pool.hold(third.address, "not yet")
        liar.mangle = says(liar.key, b"slander")
        await house.serve(a_job(1), honest)
        await house.check()
        house.pool.hold(third.address, None)
        await house.check(rested=True)
        assert await house.suspended() == {liar.address}
        assert (1, honest.address) in await house.postable()
        assert (1, liar.address) not in await house.in_hand()


async def test_what_else_a_liar_has_computed_is_computed_anew(pool: Pool) -> None:
    async with living_in(pool, replace(ALWAYS, spot_ppm=0), own=Scripted()) as house:
        liar = await house.hire(1)
        await house.serve(a_job(1), liar)
        assert await house.postable() == [(1, liar.address)], "it was not drawn"
    async with living_in(pool, own=Scripted()) as house:
        liar.mangle = says(liar.key, b"a lie")
        async with listening(liar):
            await house.meet(liar)
            await house.serve(a_job(2), liar)
            await pool.execute("DELETE FROM node.touched")
            await house.check()
        assert await house.suspended() == {liar.address}
        assert await house.in_hand() == [(2, house.own[0].address)]
        touched = await pool.fetch("SELECT request_id FROM node.touched")
        assert (None,) in [tuple(row) for row in touched], "the next round looks at all"
        async with pool.acquire() as connection:
            await reputation.resume(connection, liar.address)
        assert (1, liar.address) in await house.postable(), "as the operator says"
        assert (2, liar.address) not in await house.in_hand(), "that was wrong for good"


async def test_a_check_goes_on_under_the_next_daemon(pool: Pool) -> None:
    async with living_in(pool) as house:
        liar, honest, third = [await house.hire(number) for number in (1, 2, 3)]
        liar.mangle = says(liar.key, b"a lie")
        await house.serve(a_job(1), liar)
        for asked in (honest, third):
            asked.gate = asyncio.Event()
        await house.checker.look()
        async with asyncio.timeout(20):
            while not (honest.asked or third.asked):
                await asyncio.sleep(0.01)
        await house.checker.close()
        assert await house.records() == []
        honest.gate.set()  # type: ignore[union-attr]
        third.gate.set()  # type: ignore[union-attr]
        successor = House(pool)
        async with successor.stack:
            for worker in (liar, honest, third):
                await successor.meet(worker)
            await successor.check()
            assert await successor.suspended() == {liar.address}
            assert len(await successor.records()) == 1
            await successor.close()


async def test_a_check_waits_until_it_is_known_what_its_model_is_called(pool: Pool) -> None:
    """As at a start, when no heartbeat has come yet, and where another process knew it sooner."""
    async with living_in(pool) as house:
        first, second = await house.hire(1), await house.hire(2)
        await house.serve(a_job(1), first)
        names = house.checker._spot._names
        house.checker._spot._names = {}
        await house.check()
        assert second.computed == []
        assert await house.postable() == []
        house.checker._spot._names = names
        await house.check()
        assert len(second.computed) == 1
        assert await house.counted(first) == (1, 0, 0, 0)


async def test_one_that_hangs_does_not_hold_a_check_up_for_long(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check ends within the 60 s of `House.check`, and could take 150 s."""
    monkeypatch.setattr(peers, "LEAST_PATIENCE_S", 3.0)
    async with living_in(pool, replace(ALWAYS, hold_s=600.0)) as house:
        first, *others = [await house.hire(number) for number in (1, 2, 3)]
        hung, third = sorted(others, key=lambda one: one.address)
        hung.gate = asyncio.Event()
        job = a_job(1, deadline_in_s=600)
        await house.serve(job, first)
        await house.check()
        assert len(hung.asked) == len(third.computed) == 1
        assert house.outcomes == [(Kind.SPOT, Outcome.PASSED)] * 2
        assert (1, first.address) in await house.postable()
        assert peers.patience_s(house.pool, third.address, job) >= 3.0
        monkeypatch.setattr(peers, "LEAST_PATIENCE_S", 0.0)
        long = replace(job, max_tokens=10**6)
        assert peers.patience_s(house.pool, third.address, long) > peers.patience_s(
            house.pool, third.address, job
        ), "by what it is expected to take"


async def test_a_check_that_takes_too_long_holds_nothing_back(pool: Pool) -> None:
    async with living_in(pool) as house:
        alone = await house.hire(1)
        await house.serve(a_job(1), alone)
        await house.check()
        assert await house.postable() == []
        await pool.execute("UPDATE node.spot_check SET held_until = now() - interval '1 s'")
        assert await house.postable() == [(1, alone.address)]
        await pool.execute("UPDATE node.spot_check SET until_at = now() - interval '1 s'")
        await house.check()
        assert await house.counted(alone) == (0, 0, 0, 1)
        assert await pool.fetchval("SELECT count(*) FROM node.spot_check") == 0


async def test_a_result_is_posted_meanwhile_where_the_operator_wants_that(pool: Pool) -> None:
    async with living_in(pool, replace(ALWAYS, hold=False)) as house:
        liar = await house.hire(1)
        liar.mangle = says(liar.key, b"a lie")
        await house.serve(a_job(1), liar)
        assert await house.postable() == [(1, liar.address)]
        for number in (2, 3):
            await house.hire(number)
        await house.check()
        assert await house.suspended() == {liar.address}, "found after it was posted"


async def test_a_worker_that_gives_no_answer_is_passed_over(pool: Pool) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": "failed", "message": "no"}, status=500)

    async with living_in(pool) as house:
        first, second, third = [await house.hire(number) for number in (1, 2, 3)]
        second.faults = [broken] * 5  # type: ignore[list-item]
        await house.serve(a_job(1), first)
        await house.check()
        assert third.computed == first.computed
        assert (1, first.address) in await house.postable()


async def test_only_what_can_be_compared_is_checked(pool: Pool) -> None:
    unknown = CheckRules({}, spot_ppm=10**6)
    jobs: list[tuple[CheckRules, Job, int]] = [
        (unknown, a_job(1), 1),
        (ALWAYS, a_job(2, INPUT_MAGIC + b"sealed"), 1),
        (ALWAYS, a_job(3), 3),
    ]
    for rules, job, quorum in jobs:
        async with living_in(pool, rules) as house:
            worker = await house.hire(job.request_id)
            await house.serve(job, worker, quorum=quorum)
            assert await pool.fetchval("SELECT count(*) FROM node.spot_check") == 0


async def test_a_deadline_beyond_all_calendars_is_none_of_its_business(pool: Pool) -> None:
    async with living_in(pool) as house:
        worker = await house.hire(1)
        await house.serve(replace(a_job(1), deadline_s=2**40 - 1), worker)
        assert await pool.fetchval("SELECT count(*) FROM node.spot_check") == 1


async def test_the_same_by_the_models_own_measure_is_no_disagreement(pool: Pool) -> None:
    rules = replace(ALWAYS, models={model_id(MODEL): ModelRule(True, Text())})
    async with living_in(pool, rules) as house:
        first, second = await house.hire(1), await house.hire(2)
        second.mangle = says(second.key, b"answer  to\nhello ")
        await house.serve(a_job(1), first)
        await house.check()
        assert await house.records() == []
        assert await house.counted(first) == (1, 0, 0, 0)


async def test_a_request_that_a_reorganisation_took_is_forgotten(pool: Pool) -> None:
    async with living_in(pool) as house:
        worker = await house.hire(1)
        await house.hire(2)
        await house.serve(a_job(1), worker)
        await pool.execute("DELETE FROM chain.request")
        await house.check()
        assert await pool.fetchval("SELECT count(*) FROM node.spot_check") == 0


async def test_two_answers_of_one_worker_to_one_request_are_proof(pool: Pool) -> None:
    async with living_in(pool, replace(ALWAYS, spot_ppm=0)) as house:
        worker = await house.hire(1)
        job = a_job(1)
        await house.serve(job, worker)
        worker.mangle = says(worker.key, b"another")
        await house.give(job, worker, attempt=2)
        (record,) = await house.records()
        found = record.disagreement
        assert found.kind is Kind.EQUIVOCATION
        assert {found.accused.digest, found.others[0].digest} == {
            digest_of(b"answer to hello"),
            digest_of(b"another"),
        }
        for side in (found.accused, *found.others):
            item = replace(found.item, digest=side.digest)
            digest = group_digest(RESULTS_DOMAIN, pack_items([item]))
            assert side.signature is not None
            assert recover(digest, side.signature) == worker.address
        assert await house.suspended() == {worker.address}
        assert await house.postable() == []


async def test_two_checks_of_the_same_workers_do_not_wait_for_each_other(pool: Pool) -> None:
    async with living_in(pool) as house:
        first, second = await house.hire(1), await house.hire(2)
        desk_count = Desk.count

        async def count(self: Desk, *counted: Any) -> None:
            await desk_count(self, *counted)
            await asyncio.sleep(0.1)  # in which the other check counts its first worker

        await house.serve(a_job(1), first)
        await house.serve(a_job(2), second)
        with patch.object(Desk, "count", count):
            await house.check()
        assert await house.counted(first) == await house.counted(second) == (2, 0, 0, 0)


async def test_a_suspension_is_told_once_and_touches_the_rounds_once(pool: Pool) -> None:
    async with living_in(pool, own=Scripted()) as house:
        liar = await house.hire(1)
        liar.mangle = says(liar.key, b"a lie")
        for number in (1, 2):
            await house.serve(a_job(number), liar)
        async with pool.acquire() as connection:
            await reputation.suspend(connection, liar.address, "as I say", "the operator")
        with structlog.testing.capture_logs() as logs:
            await house.check()
            await pool.execute("DELETE FROM node.touched")
            async with pool.acquire() as connection:
                for record in await house.records(liar.address):
                    lie = replace(record.disagreement, kind=Kind.CANARY)
                    await accuse(connection, lie, ALWAYS.suspension)
        assert [one["event"] for one in logs].count("worker_suspended") == 1
        assert await house.lies(liar) >= 2
        assert (None,) not in [
            tuple(row) for row in await pool.fetch("SELECT request_id FROM node.touched")
        ]


async def test_what_a_liar_says_holds_back_nothing_once_it_is_known(pool: Pool) -> None:
    async with living_in(pool) as house:
        honest, liar = await house.hire(1), await house.hire(2)
        liar.mangle = says(liar.key, b"slander")
        await house.serve(a_job(1), honest)
        await house.check()
        assert await house.postable() == [], "contradicted"
        async with pool.acquire() as connection:
            await reputation.suspend(connection, liar.address, "found", "inferd", distrusted=True)
        house.pool.hold(liar.address, "suspended")
        await house.check(rested=True)
        assert await house.postable() == [], "its check goes on, but without the liar's word"
        assert "contradict each other" not in await house.why(1)
        await pool.execute("UPDATE node.spot_check SET held_until = now() - interval '1 s'")
        assert await house.postable() == [(1, honest.address)]


async def test_the_check_of_a_liars_result_does_not_hold_back_another(pool: Pool) -> None:
    async with living_in(pool) as house:
        liar = await house.hire(1)
        job = a_job(1)
        await house.serve(job, liar)
        async with pool.acquire() as connection:
            await reputation.suspend(connection, liar.address, "found", "inferd", distrusted=True)
        house.pool.hold(liar.address, "suspended")
        honest = await house.hire(2)
        await house.give(job, honest, attempt=2)
        await house.check()
        assert await house.postable() == [(1, honest.address)]
        assert await house.counted(liar) == (0, 0, 0, 1)


class Unstorable(Scripted):
    async def run(self, job: Job) -> Completion:
        done = await super().run(job)
        return replace(done, manifest={"model": "\ud800"})


async def test_an_answer_that_no_database_takes_ends_no_check(pool: Pool) -> None:
    own = Unstorable()
    async with living_in(pool, own=own) as house:
        first, second = await house.hire(1), await house.hire(2)
        await house.serve(a_job(1), first)
        await house.check()
        assert len(own.calls) == 1
        assert second.computed == first.computed
        assert (1, first.address) in await house.postable()
