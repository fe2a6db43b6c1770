"""Named inputs on real tables, rounds and dispatch: fetched once, for whoever names them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from indexer.database import Connection
from inferd.inputs import rows
from inferd.inputs.fetch import Fetcher, FetchLimits
from inferd.inputs.keeper import Keeper, KeeperLimits
from inferd.inputs.room import Room
from inferd.inputs.source import input_of
from inferd.inputs.tries import Wanted
from inferd.net.reach import OWN_MACHINE_AND_NETWORKS
from inferd.node.views import one_request
from inferd.node.wakeup import Wakeup
from inferd.node.why import why
from tests.node.house import House, house, no_fence

__all__ = ["house"]

CONTENT = b"the prompt at its address"


@dataclass
class Shelf:
    """An HTTP server that fails as often as it is told to."""

    url: str = ""
    asked: int = 0
    failures: int = 0
    content: bytes = CONTENT
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        await self.may_answer.wait()
        if self.failures:
            self.failures -= 1
            raise web.HTTPServiceUnavailable
        return web.Response(body=self.content)


@pytest.fixture
async def shelf() -> AsyncIterator[Shelf]:
    made = Shelf()
    made.may_answer.set()
    app = web.Application()
    app.router.add_get("/{anything:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/prompt"
    yield made
    await runner.cleanup()


@dataclass
class Kept:
    told: list[str] = field(default_factory=list)
    block: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, it makes a round."""
    bell: Wakeup = field(default_factory=Wakeup)
    keeper: Keeper = field(init=False)


@asynccontextmanager
async def keeping(
    house: House, *, max_tries: int = 6, total_bytes: int = 1_000_000
) -> AsyncIterator[Kept]:
    """A session's keeper and its rounds."""
    kept = Kept()

    keeper = Keeper(
        house.db,
        Fetcher(OWN_MACHINE_AND_NETWORKS, FetchLimits(10_000, 20)),
        KeeperLimits(4, 4, max_tries, inclusion_s=3, max_bytes=10_000, total_bytes=total_bytes),
        fence=no_fence,
        bell=kept.bell,
        on_try=kept.told.append,
        on_change=kept.block.set,
    )
    kept.keeper = keeper
    house.rounds = replace(house.rounds, on_decided=kept.bell.ring)
    await keeper.begin_again()

    async def rounds() -> None:
        while True:
            await house.rounds.round()
            await kept.block.wait()
            kept.block.clear()

    tasks = [asyncio.create_task(keeper.run()), asyncio.create_task(rounds())]
    try:
        yield kept
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                raise task.exception() or AssertionError("a task has ended")


async def eventually(condition: Callable[[], object], timeout_s: float = 90) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            held = condition()
            if asyncio.iscoroutine(held):
                held = await held
            if held:
                return
            await asyncio.sleep(0.02)


async def by_uri(house: House, number: int, uri: str, content: bytes = CONTENT) -> None:
    await house.request(number, input_kind=1, input=input_of(content, uri))


async def told_why(house: House, number: int) -> tuple[str, str, str]:
    async with house.db.acquire() as connection:
        view = await one_request(connection, {}, number)
    assert view is not None
    told = why(view)
    return str(told.state), told.reason, told.sentence


async def test_an_input_is_fetched_once_for_all_who_name_it(house: House, shelf: Shelf) -> None:
    shelf.may_answer.clear()
    await by_uri(house, 1, shelf.url)
    await by_uri(house, 2, shelf.url)
    async with keeping(house) as kept:
        await eventually(lambda: shelf.asked)
        state, reason, sentence = await told_why(house, 1)
        assert (state, reason) == ("waiting", "input_awaited")
        assert "being fetched" in sentence
        shelf.may_answer.set()
        await eventually(lambda: house.answered_by(1))
        await eventually(lambda: house.answered_by(2))
    given = [job.input for backend in house.backends for job in backend.calls]
    assert given == [CONTENT, CONTENT]
    assert (shelf.asked, kept.told) == (1, ["here"])

    # Neither a restart nor another request fetches it again.
    house.start_anew()
    await by_uri(house, 3, shelf.url)
    async with keeping(house):
        await eventually(lambda: house.answered_by(3))
    assert shelf.asked == 1


async def test_what_is_away_is_tried_again_and_says_so(house: House, shelf: Shelf) -> None:
    shelf.failures = 2
    await by_uri(house, 1, shelf.url)
    async with keeping(house) as kept:
        await eventually(lambda: house.answered_by(1))
    assert kept.told == ["again", "again", "here"]
    shelf.failures = 1_000
    await by_uri(house, 2, shelf.url + "/other")
    house.start_anew()
    async with keeping(house) as kept:
        await eventually(lambda: kept.told)
        _, _, sentence = await told_why(house, 2)
    assert "failed: the answer was HTTP 503." in sentence


async def test_what_ends_while_the_rows_are_read_is_not_begun_again(
    house: House, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, stale = rows.load_wanted, asyncio.Event()
    await by_uri(house, 1, shelf.url)
    shelf.may_answer.clear()
    async with keeping(house) as kept:

        async def late(connection: Connection) -> tuple[list[Wanted], list[int]]:
            found = await read(connection)
            if found[0] and not stale.is_set():
                shelf.may_answer.set()
                await eventually(lambda: kept.told)
                stale.set()
            return found

        await eventually(lambda: shelf.asked)
        monkeypatch.setattr(rows, "load_wanted", late)
        kept.bell.ring()
        await stale.wait()
        await eventually(lambda: house.answered_by(1))
        kept.bell.ring()
        await eventually(lambda: not kept.bell._event.is_set())
    assert (shelf.asked, kept.told) == (1, ["here"])


async def test_what_can_never_be_had_is_refused_with_its_reason(house: House, shelf: Shelf) -> None:
    shelf.content = b"not what was committed to"
    await by_uri(house, 1, shelf.url)
    await by_uri(house, 2, "data:,%20")
    async with keeping(house):
        for number in (1, 2):
            await eventually(lambda number=number: refused(house, number))
    state, reason, sentence = await told_why(house, 1)
    assert (state, reason) == ("refused", "input_unavailable")
    assert "another hash" in sentence
    assert shelf.asked == 1


async def refused(house: House, number: int) -> bool:
    return (await told_why(house, number))[0] == "refused"


async def test_tries_are_bounded_and_a_later_request_or_start_has_others(
    house: House, shelf: Shelf
) -> None:
    shelf.failures = 2
    await by_uri(house, 1, shelf.url)
    async with keeping(house, max_tries=2) as kept:
        await eventually(lambda: refused(house, 1))
        assert shelf.asked == 2
        await by_uri(house, 2, shelf.url)
        kept.block.set()
        await eventually(lambda: house.answered_by(2))
    assert shelf.asked == 3
    assert (await told_why(house, 1))[0] == "refused"
    house.start_anew()
    async with keeping(house, max_tries=2):
        await eventually(lambda: house.answered_by(1))
    assert shelf.asked == 3


async def test_a_start_gives_what_was_given_up_another_chance(house: House, shelf: Shelf) -> None:
    shelf.failures = 1
    await by_uri(house, 1, shelf.url)
    async with keeping(house, max_tries=1):
        await eventually(lambda: refused(house, 1))
    house.start_anew()
    async with keeping(house, max_tries=1):
        await eventually(lambda: house.answered_by(1))


async def test_nothing_is_fetched_for_what_is_not_served(house: House, shelf: Shelf) -> None:
    content = input_of(CONTENT, shelf.url)
    await house.request(1, input_kind=1, input=content, model_id=b"\x09" * 32)
    await house.request(2, input_kind=1, input=content, fee_wei=1)
    await by_uri(house, 3, "data:,the%20prompt%20at%20its%20address")
    async with keeping(house):
        await eventually(lambda: house.answered_by(3))
    assert shelf.asked == 0


async def test_who_came_while_it_was_written_is_seen_to(house: House) -> None:
    """Its row was not visible when the content's triggers looked for who waits."""
    await by_uri(house, 1, "data:,the%20prompt%20at%20its%20address")
    await house.rounds.round()
    async with house.db.acquire() as connection, connection.transaction():
        (wanted,), overlooked = await rows.load_wanted(connection)
        assert overlooked == []
        await rows.write_content(connection, wanted, CONTENT)
        await connection.execute("DELETE FROM node.touched")
    async with house.db.acquire() as connection:
        assert await rows.load_wanted(connection) == ([], [1])
    async with keeping(house):
        await eventually(lambda: house.answered_by(1))


async def test_beyond_its_room_content_waits_untried_until_other_is_needed_no_more(
    house: House, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferd.inputs.keeper._LOOKS_FOR_ROOM_EVERY_S", 0.05)
    shelf.content = b"x" * 6_000
    for number in (1, 2, 3):
        await by_uri(house, number, f"{shelf.url}/{number}", shelf.content)
    async with keeping(house, total_bytes=21_000) as kept:
        await eventually(lambda: len(kept.told) == 2)
        await eventually(lambda: kept.keeper.waiting_for_room == 1)
        await eventually(lambda: house.db.fetchval("SELECT count(*) = 2 FROM node.result"))
        late = await house.db.fetchval(
            "SELECT id FROM chain.request WHERE id NOT IN (SELECT request_id FROM node.result)"
        )
        state, reason, sentence = await told_why(house, late)
        assert (state, reason) == ("waiting", "input_awaited")
        assert "It waits for room: this node keeps as much content as `inputs.total_mb`" in sentence
        assert kept.keeper.room.held_bytes == 12_000
        assert shelf.asked == 2, "what pending requests name is kept"
        async with house.db.acquire() as connection:
            await connection.execute(
                "UPDATE chain.request SET status = 'fulfilled' WHERE id <> $1", late
            )
        await eventually(lambda: house.answered_by(late))
        await eventually(lambda: kept.keeper.waiting_for_room == 0)
    assert (shelf.asked, kept.told) == (3, ["here"] * 3)
    async with house.db.acquire() as connection:
        assert await rows.held_bytes(connection) == 6_000, "room was made"
        assert await connection.fetchval("SELECT tries FROM node.input") == 1, "to wait is no try"


@given(
    st.lists(st.tuples(st.sampled_from(("begin", "end", "delete", "measure")), st.integers(0, 50))),
    st.integers(50, 400),
)
def test_what_is_kept_never_exceeds_the_room(steps: list[tuple[str, int]], total: int) -> None:
    room, table, running, before = Room(total, 50), 0, 0, 0
    for step, size in steps:
        if step == "begin":
            running += room.for_more(running) > 0
        elif step == "end" and running:
            running -= 1
            table += size
            room.add(size)
        elif step == "delete":
            table = max(0, table - size)
        elif step == "measure":
            room.measured(table, added_before=before)
            before = room.added_bytes
        assert table + 50 * running <= total


async def test_content_is_forgotten_when_nobody_waits_for_it(house: House) -> None:
    await by_uri(house, 1, "data:,the%20prompt%20at%20its%20address")
    async with keeping(house):
        await eventually(lambda: house.answered_by(1))
    async with house.db.acquire() as connection:
        assert await rows.forget(connection, 0) == 0
        await connection.execute("UPDATE chain.request SET status = 'fulfilled'")
        assert await rows.forget(connection, 3600) == 0
        assert await rows.forget(connection, 0) == 1
