"""A backlog fills all workers: checks have their slots all the same, and a liar is paid nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from indexer.database import Pool
from indexer.types import Address
from inferd.protocol.request import model_id
from inferd.workers.checks.peers import is_new, on_probation
from inferd.workers.checks.room import OpenCheck, load_open, with_room
from inferd.workers.checks.rules import FIRST_CHECKED, MOST_OPEN, CheckRules, ModelRule
from inferd.workers.job import Job
from scheduler.model import ModelId, RequestKey, ServiceEstimate, WorkerId, WorkerView
from tests.workers.checks.house import House, living_in, says
from tests.workers.remote.scripted import ScriptedWorker
from tests.workers.support import MODEL, a_job, lease_for, until

# Whom a draw meets depends on the key: so few that none does, apart from what is drawn in any case.
SELDOM = CheckRules({model_id(MODEL): ModelRule(True)}, spot_ppm=1, probation_spot_ppm=1)
_BACKLOG = 40
_PROVED = 0.8
_ON_PROBATION = 2
"""Requests in hand, at most."""


async def round_of(house: House, waiting: deque[Job]) -> None:
    """Fills every slot that a round sees with what waits, the first hired first."""
    async with house.database.acquire() as connection:
        views = await house.pool.views(connection)
        checks = await load_open(connection)
    seen = with_room(views, checks, proved=house.proved, under_way=house.checker.under_way)
    for view in seen:
        address, room = Address(view.id), view.slots - view.in_flight
        if on_probation(house.pool, address, model_id(MODEL), proved=house.proved):
            room = min(room, _ON_PROBATION - view.in_flight)
        for _ in range(min(room, len(waiting)) if view.available else 0):
            job = waiting.popleft()
            house.dispatcher.start(await lease_for(house.database, job, address), job)


@dataclass
class Outcome:
    paid: int = 0
    """Results of the liar that could be posted, at most at a time."""
    caught_after: int | None = None
    """Rounds until it was suspended."""
    left: int = 0
    """Requests that nobody has computed."""


async def work_off(
    house: House, honest: Sequence[ScriptedWorker], liar: ScriptedWorker, *, first: int = 1
) -> Outcome:
    """A backlog; all slots are as full as a round fills them whenever checks look for free ones."""
    waiting = deque(a_job(number) for number in range(first, first + _BACKLOG))
    found = Outcome()
    for job in waiting:
        await house.ask(job)
    for number in range(1, _BACKLOG + 1):
        for worker in honest:
            worker.gate = asyncio.Event()
        before = len(waiting)
        await round_of(house, waiting)
        house.checker._spot._rests.clear()
        await house.checker.look()
        for worker in honest:
            assert worker.gate is not None
            worker.gate.set()
        await house.settled()
        await house.begun()
        by_liar = [one for one in await house.postable() if one[1] == liar.address]
        found.paid = max(found.paid, len(by_liar))
        if found.caught_after is None and liar.address in await house.suspended():
            found.caught_after = number
            house.pool.hold(liar.address, "suspended")
        found.left = len(waiting)
        if before == found.left and not house.checker.busy:
            break
    return found


async def test_a_liar_has_nothing_of_a_backlog_posted_before_it_is_caught(pool: Pool) -> None:
    async with living_in(pool, SELDOM) as house:
        house.proved = _PROVED
        liar = await house.hire(1)
        liar.mangle = says(liar.key, b"a lie")
        honest = [await house.hire(number, slots=1) for number in (2, 3)]
        found = await work_off(house, honest, liar)
        assert found.paid == 0
        assert found.caught_after is not None
        assert found.caught_after <= 4, "long before the backlog is over"
        assert len(liar.computed) <= MOST_OPEN + _ON_PROBATION + 1, "with what it was a check for"
        assert found.left == 0
        by_honest = {one[0] for one in await house.postable()}
        wrong = {each.disagreement.key.id for each in await house.records(liar.address)}
        assert len(by_honest) >= _BACKLOG - MOST_OPEN - _ON_PROBATION
        assert wrong


async def test_a_stranger_that_one_other_contradicts_is_not_paid_and_hinders_nobody(
    pool: Pool,
) -> None:
    async with living_in(pool, SELDOM) as house:
        house.proved = _PROVED
        honest = await house.hire(2, slots=1)
        number = 1_000
        while is_new(house.pool, honest.address, model_id(MODEL), proved=_PROVED):
            number += 1
            await house.serve(a_job(number), honest)
            await house.see()
        liar = await house.hire(1)
        liar.mangle = says(liar.key, b"a lie")
        found = await work_off(house, [honest], liar)
        assert (found.paid, found.caught_after) == (0, None), "nobody knows who of them lies"
        assert found.left == 0, "who has proved itself goes on"
        right = {one for one, _ in await house.postable() if one <= _BACKLOG}
        assert len(right) >= _BACKLOG - MOST_OPEN - _ON_PROBATION - FIRST_CHECKED


async def test_a_check_comes_before_what_waits(pool: Pool) -> None:
    async with living_in(pool) as house:
        first, second = await house.hire(1, slots=1), await house.hire(2, slots=1)
        waiting = deque(a_job(number) for number in range(1, 9))
        for job in waiting:
            await house.ask(job)
        await round_of(house, waiting)
        await house.settled()
        gate = first.gate = second.gate = asyncio.Event()
        await round_of(house, waiting)
        assert len(waiting) == 6, "each has a result to check, and no slot for new work"
        await house.checker.look()
        await until(lambda: len(house.checker.under_way) == 2)
        await round_of(house, waiting)
        assert len(waiting) == 6, "they compute it now"
        gate.set()
        await house.begun()
        await round_of(house, waiting)
        assert len(waiting) == 4, "and then work again"
        await house.settled()


KNOWN = ServiceEstimate(base_ms=100.0, samples=30, success_lower=0.95)
NEW = replace(KNOWN, samples=2)


def view(
    number: int, slots: int, in_flight: int = 0, offer: ServiceEstimate | None = KNOWN, **other: Any
) -> WorkerView:
    return WorkerView(
        id=WorkerId(bytes([number]) * 20),
        slots=slots,
        in_flight=in_flight,
        memory_mb=1000,
        available=True,
        service={} if offer is None else {ModelId(model_id(MODEL)): offer},
        owned=False,
        owner=other.pop("owner", bytes([100 + number]) * 20),
        **other,
    )


def waits(number: int, of: int, **other: Any) -> OpenCheck:
    check = OpenCheck(
        key=RequestKey(number, bytes(20)),
        worker=Address(bytes([of]) * 20),
        model=ModelId(model_id(MODEL)),
        memory_mb=0,
        spoken=frozenset({bytes([100 + of]) * 20}),
        undecided=False,
        holds=True,
    )
    return replace(check, **other)


def slots_of(views: Sequence[WorkerView], *checks: OpenCheck, **other: Any) -> list[int]:
    return [one.slots for one in with_room(views, checks, proved=_PROVED, **other)]


def test_only_as_many_slots_are_kept_as_checks_wait() -> None:
    fleet = [view(1, 8), view(2, 8), view(3, 8, in_flight=8), view(4, 1, in_flight=1)]
    assert slots_of(fleet) == [8, 8, 8, 1]
    assert slots_of(fleet, waits(1, of=1)) == [8, 7, 8, 1], "a free one"
    assert slots_of(fleet, waits(1, of=1), under_way={RequestKey(1, bytes(20))}) == [8, 8, 8, 1]
    assert slots_of(fleet, *(waits(number, of=1) for number in range(9))) == [8, 6, 8, 1]
    assert slots_of(fleet, waits(1, of=1, holds=False)) == [8, 8, 8, 1], "nothing waits for it"


def test_a_full_worker_keeps_the_slot_that_is_free_next() -> None:
    assert slots_of([view(1, 1), view(2, 1, in_flight=1)], waits(1, of=1)) == [1, 1]
    assert slots_of([view(1, 1), view(2, 1, in_flight=0)], waits(1, of=1)) == [1, 0]
    both = [view(1, 1), view(2, 1, in_flight=1), view(3, 4, in_flight=4)]
    assert slots_of(both, waits(1, of=1)) == [1, 1, 4]
    assert slots_of([*both[:2], replace(both[2], in_flight=3)], waits(1, of=1)) == [1, 1, 3]


def test_no_slot_is_kept_where_nobody_could_use_it() -> None:
    check = waits(1, of=1)
    for other in (
        view(2, 4, owner=check_owner(check)),
        view(2, 4, offer=None),
        replace(view(2, 4), available=False),
        replace(view(2, 4), memory_mb=5),
    ):
        assert slots_of([view(1, 4, offer=NEW), other], replace(check, memory_mb=10)) == [4, 4]


def check_owner(check: OpenCheck) -> bytes:
    (owner,) = check.spoken
    return owner


def test_who_is_new_has_no_more_than_is_checked() -> None:
    fleet = [view(1, 4, offer=NEW), view(2, 40)]
    assert slots_of(fleet, waits(1, of=1)) == [MOST_OPEN - 1, 39]
    assert slots_of(fleet, *(waits(number, of=1) for number in range(5)))[0] == 0
    assert slots_of([replace(fleet[0], owned=True), fleet[1]], waits(1, of=1)) == [4, 39]
    everybody = frozenset(one.owner for one in fleet)
    undecided = waits(1, of=1, undecided=True, spoken=everybody)
    assert slots_of(fleet, *[undecided] * 3) == [0, 40], "whatever it answers is not believed"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=6),
    st.lists(st.tuples(st.integers(1, 7), st.booleans(), st.booleans()), max_size=40),
)
def test_real_work_keeps_most_of_all_slots(
    fleet: list[tuple[int, int, bool]], open_checks: list[tuple[int, bool, bool]]
) -> None:
    views = [
        view(number, slots, in_flight, NEW if new else KNOWN)
        for number, (slots, in_flight, new) in enumerate(fleet, 1)
    ]
    checks = [
        waits(number, of=of, undecided=undecided, holds=holds)
        for number, (of, undecided, holds) in enumerate(open_checks)
    ]
    seen = with_room(views, checks, proved=_PROVED)
    assert [one.id for one in seen] == [one.id for one in views]
    kept = 0
    for before, after, (_, _, new) in zip(views, seen, fleet, strict=True):
        assert min(before.slots, before.in_flight) <= after.slots <= before.slots
        if not new:
            kept += before.slots - after.slots
            assert before.slots - after.slots <= max(1, before.slots // 4)
    assert kept <= sum(check.holds for check in checks)
