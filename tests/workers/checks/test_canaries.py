"""Known answers: jobs that look like requests, and requests that are the same question."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiohttp import web

from indexer.database import Connection, Pool
from inferd.protocol.request import model_id
from inferd.protocol.result import digest_of
from inferd.workers.checks import canaries
from inferd.workers.checks.comparators import Text
from inferd.workers.checks.counts import Outcome
from inferd.workers.checks.evidence import Dispute, Kind
from inferd.workers.checks.rules import ALL_PPM, CheckRules, ModelRule
from tests.workers.checks.house import living_in, says
from tests.workers.support import MODEL, Scripted, a_job

RULES = CheckRules(canary_ppm=ALL_PPM)
RIGHT = b"answer to what is right?"


async def know(pool: Pool, output: bytes | None = RIGHT, *, learn: bool = False) -> int:
    async with pool.acquire() as connection:
        number = await canaries.add(
            connection,
            model=MODEL,
            text=b"what is right?",
            max_tokens=7,
            digest=None if learn else digest_of(output or RIGHT),
            output=None if learn else output,
        )
    assert number is not None
    return number


async def test_a_canary_looks_like_a_request_and_is_none(pool: Pool) -> None:
    await know(pool)
    async with living_in(pool, RULES) as house:
        worker = await house.hire(1)
        for number in range(40, 60):
            await house.ask(a_job(number))
        await house.check()
        await house.serve(a_job(60), worker)
        await house.check()
        request, canary = worker.computed
        assert 52 <= canary.request_id <= 60
        assert canary.attempt == request.attempt
        assert len(canary.commitment) == 20
        assert canary.commitment != request.commitment
        assert await house.postable() == [(60, worker.address)], "no row is a canary's"
        assert await house.counted(worker, Kind.CANARY) == (1, 0, 0, 0)
        assert house.outcomes == [(Kind.CANARY, Outcome.PASSED)]
        assert worker.dropped[-1] == canary
        await house.check()
        assert len(worker.computed) == 2, "one for each draw"


async def test_a_wrong_answer_is_recorded_and_suspends(pool: Pool) -> None:
    number = await know(pool)
    async with living_in(pool, RULES) as house:
        liar = await house.hire(1)
        house.proved = 1.0
        liar.mangle = says(liar.key, b"a lie")
        await house.check()
        (record,) = await house.records()
        found = record.disagreement
        assert (found.kind, found.decided, found.on_chain) == (Kind.CANARY, True, False)
        assert record.dispute is Dispute.NONE
        assert str(number) in found.reason
        (known,) = found.others
        assert (known.worker, known.digest, known.output) == (None, digest_of(RIGHT), RIGHT)
        assert await house.suspended() == {liar.address}
        assert await house.lies(liar) == 1
        assert await pool.fetchval("SELECT count(*) FROM node.result") == 0


async def test_a_worker_on_probation_is_sent_one_at_once_and_no_second(pool: Pool) -> None:
    await know(pool)
    async with living_in(pool, replace(RULES, canary_ppm=0)) as house:
        worker = await house.hire(1)
        await house.check()
        assert worker.computed == []
        house.proved = 1.0
        await house.check()
        await house.check()
        assert len(worker.computed) == 1


async def test_beside_who_has_all_checks_whom_an_inspection_has_drawn_is_sent_one(
    pool: Pool,
) -> None:
    async with living_in(pool, RULES) as house:
        worker, untried = await house.hire(1), await house.hire(2)
        house.proved = 1.0
        # There is none when it begins.
        await know(pool)
        await house.check(everything=False)
        assert worker.computed == []
        await house.serve(a_job(1), worker)
        await house.check(everything=False)
        assert await house.counted(worker, Kind.CANARY) == (1, 0, 0, 0)
        assert untried.computed == []


async def test_by_digest_alone_bytes_must_be_equal(pool: Pool) -> None:
    await know(pool)
    await pool.execute("UPDATE node.canary SET expected_output = NULL")
    rules = CheckRules({model_id(MODEL): ModelRule(comparator=Text())})
    async with living_in(pool, rules) as house:
        honest, other = await house.hire(1), await house.hire(2)
        house.proved = 1.0
        other.mangle = says(other.key, RIGHT + b" ")
        await house.check()
        assert await house.suspended() == {other.address}
        assert await house.counted(honest, Kind.CANARY) == (1, 0, 0, 0)


async def test_an_answer_is_compared_by_the_models_own_measure(pool: Pool) -> None:
    await know(pool)
    rules = CheckRules({model_id(MODEL): ModelRule(comparator=Text())})
    async with living_in(pool, rules) as house:
        worker = await house.hire(1)
        house.proved = 1.0
        worker.mangle = says(worker.key, RIGHT + b" ")
        await house.check()
        assert await house.suspended() == set()


async def test_no_answer_is_a_failure_like_any(pool: Pool) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": "failed", "message": "no"}, status=500)

    await know(pool)
    async with living_in(pool, RULES) as house:
        worker = await house.hire(1)
        house.proved = 1.0
        worker.faults = [broken]  # type: ignore[list-item]
        await house.check()
        assert await house.counted(worker, Kind.CANARY) == (0, 0, 0, 1)
        assert await house.suspended() == set()
        failed = await pool.fetchval("SELECT failed FROM node.reputation")
        assert failed == 1


async def test_a_busy_worker_is_sent_it_later(pool: Pool) -> None:
    async def busy(request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": "busy", "message": ""}, status=503)

    await know(pool)
    async with living_in(pool, RULES) as house:
        worker = await house.hire(1)
        house.proved = 1.0
        worker.faults = [busy]  # type: ignore[list-item]
        await house.check()
        assert len(worker.computed) == 1
        assert await house.counted(worker, Kind.CANARY) == (1, 0, 0, 0)
        assert await pool.fetchval("SELECT count(*) FROM node.reputation") == 0


async def test_our_own_worker_computes_what_is_to_be_learnt(pool: Pool) -> None:
    await know(pool, learn=True)
    own = Scripted()
    async with living_in(pool, RULES, own=own) as house:
        stranger = await house.hire(1)
        await house.check()
        async with pool.acquire() as connection:
            (canary,) = await canaries.load(connection)
        assert (canary.output, canary.digest) == (RIGHT, digest_of(RIGHT))
        assert stranger.asked == []
        assert len(own.calls) == 1
        assert await pool.fetchval("SELECT count(*) FROM node.result") == 0
        house.proved = 1.0
        await house.check()
        assert await house.counted(stranger, Kind.CANARY) == (1, 0, 0, 0)


@pytest.mark.parametrize("output", [RIGHT, b"a lie"])
async def test_a_request_that_is_the_same_question_is_checked_for_nothing(
    pool: Pool, output: bytes
) -> None:
    await know(pool)
    async with living_in(pool, replace(RULES, canary_ppm=0)) as house:
        worker = await house.hire(1)
        worker.mangle = says(worker.key, output)
        await house.serve(a_job(1, b"what is right?", max_tokens=7), worker)
        assert len(worker.computed) == 1
        if output == RIGHT:
            assert await house.postable() == [(1, worker.address)]
            assert await house.counted(worker, Kind.CANARY) == (1, 0, 0, 0)
            return
        assert await house.in_hand() == [], "not for a moment"
        (record,) = await house.records()
        assert (record.disagreement.on_chain, record.dispute) == (True, Dispute.WANTED)
        assert await house.suspended() == {worker.address}


async def test_another_question_is_no_canary(pool: Pool) -> None:
    await know(pool)
    async with living_in(pool, replace(RULES, canary_ppm=0)) as house:
        worker = await house.hire(1)
        await house.serve(a_job(1, b"what is right?", max_tokens=8), worker)
        await house.serve(a_job(2, b"what is right", max_tokens=7), worker)
        assert await house.counted(worker, Kind.CANARY) == (0, 0, 0, 0)


async def test_the_key_is_made_once(pool: Pool, connection: Connection) -> None:
    async with living_in(pool):
        first = await connection.fetchval("SELECT key FROM node.check_key")
    async with living_in(pool):
        assert await connection.fetchval("SELECT key FROM node.check_key") == first
    assert len(first) == 32


async def test_one_question_is_one_canary(pool: Pool, connection: Connection) -> None:
    number = await know(pool)
    with pytest.raises(AssertionError):
        await know(pool)
    assert await canaries.remove(connection, number)
    assert not await canaries.remove(connection, number)
