"""Several models of one worker in the memory it has: who stays, who makes room, who waits."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.workers.backends.choice import BackendChoice
from inferd.workers.backends.memory import ModelMemory, ModelTooLarge, Resident, to_unload
from inferd.workers.backends.opening import stocked
from inferd.workers.job import Job
from tests.workers.support import Scripted, a_job, until

residents = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 100), st.booleans()), max_size=8
).map(lambda rows: [Resident(f"m{n}", *row) for n, row in enumerate(rows)])


@given(residents, st.integers(-10, 300))
def test_what_leaves_is_enough_and_not_more_than_that(loaded: list[Resident], room_mb: int) -> None:
    leaving = to_unload(loaded, room_mb)
    freed = sum(one.size_mb for one in leaving)
    assert freed >= min(room_mb, sum(one.size_mb for one in loaded))
    for one in leaving:
        assert freed - one.size_mb < room_mb, "it could have stayed"
    idle_mb = sum(one.size_mb for one in loaded if not one.busy)
    if idle_mb >= room_mb:
        assert not any(one.busy for one in leaving)


def test_the_one_used_longest_ago_leaves() -> None:
    loaded = [Resident("a", 10, 3, False), Resident("b", 10, 1, True), Resident("c", 10, 2, False)]
    assert [one.name for one in to_unload(loaded, 10)] == ["c"]
    assert [one.name for one in to_unload(loaded, 20)] == ["c", "a"]
    assert [one.name for one in to_unload(loaded, 30)] == ["c", "a", "b"]


def models(*names: str) -> list[Scripted]:
    return [Scripted(name=name, loaded=False) for name in names]


def a_memory(limit_mb: int, *backends: Scripted) -> ModelMemory:
    return ModelMemory(limit_mb, {one.name: 10 for one in backends})


async def use(memory: ModelMemory, backend: Scripted) -> None:
    async with memory.holding(backend):
        assert backend.loaded
        await backend.run(a_job(model=backend.name))


async def test_models_are_loaded_when_wanted_and_leave_for_others() -> None:
    a, b, c = models("a", "b", "c")
    memory = a_memory(20, a, b, c)
    for backend in (a, b, a, c, a):
        await use(memory, backend)
    assert [one.loaded for one in (a, b, c)] == [True, False, True], "b was used longest ago"
    assert [one.started for one in (a, b, c)] == [1, 1, 1]


async def test_one_that_computes_is_waited_for_and_nobody_overtakes() -> None:
    a, b = models("a", "b")
    memory = a_memory(10, a, b)
    go, begun, order = asyncio.Event(), asyncio.Event(), []

    async def holds(backend: Scripted, name: str, until_told: asyncio.Event | None = None) -> None:
        async with memory.holding(backend):
            order.append(name)
            begun.set()
            if until_told is not None:
                await until_told.wait()

    first = asyncio.create_task(holds(a, "a1", go))
    await begun.wait()
    joined = asyncio.create_task(holds(a, "a2", go))
    await until(lambda: len(order) == 2)
    other = asyncio.create_task(holds(b, "b"))
    await until(lambda: memory.waiting == 1)
    # It would keep b out for ever if it could begin.
    late = asyncio.create_task(holds(a, "a3"))
    await until(lambda: memory.waiting == 2)
    assert a.unloaded == 0
    go.set()
    await asyncio.gather(first, joined, other, late)
    assert order == ["a1", "a2", "b", "a3"]
    assert (a.unloaded, b.unloaded) == (1, 1)


async def test_who_waits_for_one_model_uses_it_together() -> None:
    a, b = models("a", "b")
    memory = a_memory(10, a, b)
    go = asyncio.Event()

    async def when_told(job: Job) -> bytes:
        await go.wait()
        return b""

    a.answer = b.answer = when_told
    uses = asyncio.gather(*(use(memory, backend) for backend in (a, b) * 5))
    await until(lambda: memory.waiting == 9)
    go.set()
    async with asyncio.timeout(20):
        await uses
    assert (len(a.calls), len(b.calls)) == (5, 5)
    assert (a.started, b.started) == (2, 1), "first one of a, then all of b, then the rest of a"


@pytest.mark.parametrize("given_up", [0, 1, 2], ids=["first", "second", "last"])
async def test_any_of_those_who_wait_may_give_up(given_up: int) -> None:
    a, b = models("a", "b")
    memory = a_memory(10, a, b)
    async with memory.holding(a):
        waits = [asyncio.create_task(use(memory, b)) for _ in range(3)]
        await until(lambda: memory.waiting == 3)
        waits[given_up].cancel()
        await until(waits[given_up].done)
        assert memory.waiting == 2
    done = await asyncio.gather(*waits, return_exceptions=True)
    assert sum(one is None for one in done) == 2
    assert (memory.waiting, len(b.calls)) == (0, 2)
    await use(memory, a)
    assert not b.loaded, "nobody holds it any more"


async def test_who_is_let_in_and_cancelled_at_once_holds_nothing() -> None:
    a, b = models("a", "b")
    memory = a_memory(10, a, b)
    first = asyncio.create_task(use(memory, b))
    async with memory.holding(a):
        follower = asyncio.create_task(use(memory, b))
        await until(lambda: memory.waiting == 2)
        # As soon as it may go on, before it does.
        memory._places["b"].followers[0].add_done_callback(lambda _: follower.cancel())
    await first
    with contextlib.suppress(asyncio.CancelledError):
        await follower
    async with asyncio.timeout(20):
        await use(memory, a)
    assert not b.loaded


async def test_who_gives_up_waiting_leaves_the_others_as_they_were() -> None:
    a, b = models("a", "b")
    memory = a_memory(10, a, b)
    async with memory.holding(a):
        waits = asyncio.create_task(use(memory, b))
        await until(lambda: memory.waiting == 1)
        waits.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waits
        await use(memory, a)
    assert (a.loaded, a.unloaded, b.started) == (True, 0, 0)
    await use(memory, b)
    assert b.loaded


async def test_one_that_cannot_be_loaded_keeps_no_memory_from_the_next() -> None:
    class Broken(Scripted):
        async def start(self) -> None:
            raise OSError("no file")

    bad, good = Broken(name="bad", loaded=False), Scripted(name="good", loaded=False)
    memory = a_memory(10, bad, good)
    for _ in range(2):
        with pytest.raises(OSError, match="no file"):
            await use(memory, bad)
        await use(memory, good)


@given(st.lists(st.sampled_from("abcd"), max_size=30), st.integers(1, 4))
def test_never_more_than_fits_and_everybody_gets_a_turn(wanted: list[str], room: int) -> None:
    async def run() -> None:
        backends = {name: Scripted(name=name, loaded=False) for name in "abcd"}

        async def answer(job: Job) -> bytes:
            await asyncio.sleep(0)
            assert sum(one.loaded for one in backends.values()) <= room
            assert backends[job.model].loaded
            return b""

        for one in backends.values():
            one.answer = answer
        memory = a_memory(10 * room, *backends.values())
        async with asyncio.timeout(20):
            await asyncio.gather(*(use(memory, backends[name]) for name in wanted))
        assert sum(len(one.calls) for one in backends.values()) == len(wanted)

    asyncio.run(run())


def test_a_model_that_never_fits_is_told() -> None:
    with pytest.raises(ModelTooLarge, match="the model a takes 10 MB, and its worker has 9 MB"):
        a_memory(9, *models("a"))


async def test_models_of_settings_share_and_one_alone_has_what_it_needs(tmp_path: Path) -> None:
    one = BackendChoice(backend="markov", model="one", resident_mb=600)
    two = BackendChoice(backend="markov", model="two", resident_mb=600)
    async with stocked([one], memory_mb=100, cache_dir=tmp_path) as stock:
        assert [backend.name for backend in stock.backends] == ["one"]
    with pytest.raises(ModelTooLarge, match="the model one takes 600 MB"):
        async with stocked([one, two], memory_mb=100, cache_dir=tmp_path):
            pass
    vectors = BackendChoice(backend="wordllama", model="vectors", resident_mb=600)
    async with stocked([vectors, two], memory_mb=1000, cache_dir=tmp_path) as stock:
        words, toy = stock.backends
        assert words.loaded, "the first is there when it is over"
        async with stock.memory.holding(toy):
            assert not words.loaded
        async with stock.memory.holding(words):
            assert words.loaded
