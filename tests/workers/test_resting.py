"""Models that leave memory: when, what is loaded again, and that rounds know of it."""

from __future__ import annotations

import asyncio

import pytest

from indexer.database import Pool
from indexer.errors import OperatorError
from indexer.types import Address, Contracts
from inferd.node.crew import hired
from inferd.node.settings import Settings
from inferd.protocol.request import model_id
from inferd.workers import local
from inferd.workers.backends.memory import ModelMemory
from inferd.workers.backends.resting import Resting
from inferd.workers.backends.wordllama import WordLlamaBackend
from inferd.workers.job import Job, WorkerFailed
from inferd.workers.pool import WorkerPool
from tests.workers.support import MODEL, Scripted, a_job, a_worker, until

SOON_S, NEVER_S = 0.01, 3_600.0
CONTRACTS = Contracts(31337, 0, *(Address(bytes([n]) * 20) for n in range(1, 6)))


async def test_it_is_unloaded_after_a_time_without_a_computation_and_loaded_for_the_next(
    pool: Pool,
) -> None:
    model = Scripted(loaded=False)
    backend = Resting(model, after_s=SOON_S)
    worker = a_worker(pool, backend)
    for number in (1, 2):
        result = await worker.compute(a_job(number))
        assert result.output == b"answer to hello"
        assert model.started == number
        await until(lambda: not model.loaded)
    await backend.close()
    assert model.closed == 1


async def test_one_that_left_just_before_its_computation_is_loaded_again() -> None:
    """As while a private input is opened."""

    async def if_loaded(job: Job) -> bytes:
        return b"done" if model.loaded else b"not loaded"

    model = Scripted(if_loaded, loaded=False)
    backend = Resting(model, after_s=SOON_S)
    async with ModelMemory().holding(backend):
        await until(lambda: model.unloaded)
        assert (await backend.run(a_job())).output == b"done"
    await backend.close()


async def test_a_computation_waits_for_the_end_of_an_unloading() -> None:
    go, left = asyncio.Event(), asyncio.Event()

    class Slow(Scripted):
        async def unload(self) -> None:
            self.unloaded += 1
            await go.wait()
            self.loaded = False
            left.set()

    async def if_loaded(job: Job) -> bytes:
        await left.wait()
        return b"done" if model.loaded else b"not loaded"

    model = Slow(if_loaded, loaded=False)
    backend = Resting(model, after_s=SOON_S)
    await backend.start()
    await until(lambda: model.unloaded)
    asked = asyncio.create_task(backend.run(a_job()))
    await asyncio.sleep(0)
    go.set()
    assert (await asked).output == b"done"
    await backend.close()


async def test_one_that_cannot_be_loaded_again_fails_the_job() -> None:
    class Gone(Scripted):
        async def start(self) -> None:
            raise OperatorError("no file", help_text="bring it back")

    backend = Resting(Gone(loaded=False), after_s=NEVER_S)
    with pytest.raises(WorkerFailed, match="cannot be loaded: no file"):
        await backend.run(a_job())
    await backend.close()


async def test_it_is_not_unloaded_while_it_computes(pool: Pool) -> None:
    go = asyncio.Event()

    async def when_told(job: Job) -> bytes:
        await go.wait()
        return b"done"

    model = Scripted(when_told, loaded=False)
    backend = Resting(model, after_s=SOON_S)
    worker = a_worker(pool, backend)
    jobs = [asyncio.create_task(worker.compute(a_job(number))) for number in (1, 2)]
    await until(lambda: len(model.calls) == 2)
    await asyncio.sleep(10 * SOON_S)
    await backend.unload()
    assert model.loaded
    assert model.unloaded == 0
    go.set()
    await asyncio.gather(*jobs)
    await until(lambda: not model.loaded)
    await backend.close()


async def test_what_was_loaded_and_never_asked_rests_too() -> None:
    model = Scripted(loaded=False)
    backend = Resting(model, after_s=SOON_S)
    await backend.start()
    await until(lambda: model.unloaded == 1)
    await backend.close()


async def test_one_that_is_closed_wakes_no_more() -> None:
    model = Scripted(loaded=False)
    backend = Resting(model, after_s=SOON_S)
    await backend.start()
    await backend.close()
    await asyncio.sleep(10 * SOON_S)
    assert model.unloaded == 0


async def test_loading_is_not_part_of_how_long_a_computation_takes(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = 0.0

    class Heavy(Scripted):
        async def start(self) -> None:
            nonlocal clock_s
            clock_s += 9.0
            await super().start()

    monkeypatch.setattr(local.time, "perf_counter", lambda: clock_s)
    result = await a_worker(pool, Heavy(loaded=False)).compute(a_job())
    assert (clock_s, result.compute_ms) == (9.0, 1)


async def test_a_model_that_cannot_be_loaded_again_fails_the_attempt(pool: Pool) -> None:
    class Gone(OperatorError):
        code = "gone"

    class Broken(Scripted):
        async def start(self) -> None:
            raise Gone("the file is gone", help_text="")

    with pytest.raises(WorkerFailed, match="its model cannot be loaded: the file is gone"):
        await a_worker(pool, Broken(loaded=False)).compute(a_job())


async def test_a_round_sees_which_models_are_loaded_and_what_loading_takes(pool: Pool) -> None:
    warm, cold = Scripted(load_ms=40.0), Scripted(load_ms=7_000.0, loaded=False)
    workers = WorkerPool([a_worker(pool, warm, seed=1), a_worker(pool, cold, seed=2)])
    async with pool.acquire() as connection:
        first, second = await workers.views(connection)
    assert (first.loaded, second.loaded) == ({model_id(MODEL)}, set())
    assert first.service[model_id(MODEL)].load_ms == 40.0  # type: ignore[index]
    assert second.service[model_id(MODEL)].load_ms == 7_000.0  # type: ignore[index]


async def test_embeddings_are_the_same_after_they_were_unloaded() -> None:
    backend = WordLlamaBackend(name="embeddings", threads=1)
    assert not backend.loaded
    assert backend.load_ms == 0.0
    await backend.start()
    before = await backend.run(a_job(text=b"a cat"))
    assert backend.load_ms > 0.0
    await backend.unload()
    assert not backend.loaded
    await backend.start()
    assert backend.loaded
    assert await backend.run(a_job(text=b"a cat")) == before
    await backend.close()
    assert not backend.loaded


@pytest.mark.parametrize("after_s", [0.0, NEVER_S])
async def test_a_worker_whose_model_rests_is_hired_so(after_s: float) -> None:
    one = {"name": "a", "backend": "markov", "model": "m", "key": {"dev_account": 5}}
    settings = Settings(workers=({**one, "unload_after_s": after_s},))
    async with hired(settings, CONTRACTS, ()) as crew:
        (member,) = crew.members
        assert isinstance(member.stock.backends[0], Resting) is bool(after_s)
        assert member.stock.backends[0].loaded
