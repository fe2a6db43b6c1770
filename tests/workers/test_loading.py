"""A model is loaded once, however many wait for it and whoever stops waiting."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from inferd.workers.backends import wordllama
from inferd.workers.backends.base import Backend
from inferd.workers.backends.llamacpp import LlamaCppBackend
from inferd.workers.backends.wordllama import WordLlamaBackend
from inferd.workers.model_files import ModelFile
from tests.workers.support import until


class Loads:
    """In the place of what loads: it takes as long as the test says, and says how often it did."""

    def __init__(self) -> None:
        self.begun = 0
        self.together = 0
        self.fails = 0
        self.gate = threading.Event()
        self._inside = 0

    def __call__(self) -> tuple[Any, str]:
        self.begun += 1
        self._inside += 1
        self.together = max(self.together, self._inside)
        assert self.gate.wait(60)
        self._inside -= 1
        if self.fails:
            self.fails -= 1
            raise OSError("no memory")
        return object(), "1"


@pytest.fixture
def loads() -> Loads:
    return Loads()


@pytest.fixture(params=["llama.cpp", "wordllama"])
def backend(request: Any, loads: Loads, monkeypatch: pytest.MonkeyPatch) -> Backend:
    if request.param == "wordllama":
        monkeypatch.setattr(wordllama, "_load", loads)
        return WordLlamaBackend()
    made = LlamaCppBackend(ModelFile(Path("none.gguf"), "", "", "", (0, 0, 0, 0)), name="none")
    monkeypatch.setattr(made, "_load", loads)
    return made


async def _waiters(backend: Backend, loads: Loads, number: int) -> list[asyncio.Task[None]]:
    waiting = [asyncio.ensure_future(backend.start()) for _ in range(number)]
    await until(lambda: loads.begun > 0)
    return waiting


async def test_all_who_wait_share_one_load(backend: Backend, loads: Loads) -> None:
    waiting = await _waiters(backend, loads, 3)
    loads.gate.set()
    await asyncio.gather(*waiting)
    assert backend.loaded
    assert loads.begun == 1
    await backend.close()


async def test_who_stops_waiting_leaves_the_load_to_the_others(
    backend: Backend, loads: Loads
) -> None:
    """As where a lease runs out: the next one joins what its own load was."""
    first, second = await _waiters(backend, loads, 2)
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    later = asyncio.ensure_future(backend.start())
    await asyncio.sleep(0)
    loads.gate.set()
    await asyncio.gather(second, later)
    assert backend.loaded
    assert (loads.begun, loads.together) == (1, 1)
    await backend.close()


async def test_a_load_that_nobody_waits_for_is_there_for_the_next(
    backend: Backend, loads: Loads
) -> None:
    (only,) = await _waiters(backend, loads, 1)
    only.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await only
    loads.gate.set()
    await backend.start()
    assert loads.begun == 1
    await backend.close()


async def test_a_load_that_fails_fails_all_who_wait_and_is_tried_again(
    backend: Backend, loads: Loads
) -> None:
    loads.fails = 1
    waiting = await _waiters(backend, loads, 2)
    loads.gate.set()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [OSError, OSError]
    assert not backend.loaded
    await backend.start()
    assert backend.loaded
    assert loads.begun == 2
    await backend.close()


@pytest.mark.parametrize("end", ["close", "unload"])
async def test_what_is_freed_while_it_loads_does_not_come_back(
    backend: Backend, loads: Loads, end: str
) -> None:
    (waiting,) = await _waiters(backend, loads, 1)
    freed = asyncio.ensure_future(getattr(backend, end)())
    await asyncio.sleep(0)
    loads.gate.set()
    await asyncio.gather(waiting, freed)
    assert not backend.loaded
    await backend.close()
