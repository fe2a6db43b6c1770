"""Real inference: SmolLM2 through llama.cpp. Correctness only, never speed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import xllamacpp

from inferd.workers.backends.base import Backend
from inferd.workers.backends.choice import BackendChoice
from inferd.workers.backends.llamacpp import LlamaCppBackend, TextModelUnusable
from inferd.workers.backends.opening import stocked
from inferd.workers.job import BadInput, Completion
from inferd.workers.model_files import SMOLLM2_SHA256, ModelFile, stamp_of
from tests.workers.support import a_job

NO_STAMP = (0, 0, 0, 0)


@pytest.fixture
async def backend(smollm2: ModelFile) -> AsyncIterator[LlamaCppBackend]:
    made = LlamaCppBackend(smollm2, name="smollm2-135m", context_tokens=512)
    await made.start()
    yield made
    await made.close()


async def test_it_answers_the_prompt_and_answers_it_the_same_again(
    backend: LlamaCppBackend, capfd: pytest.CaptureFixture[str]
) -> None:
    france = a_job(1, b"What is the capital of France?", max_tokens=8)
    first, other = await asyncio.gather(
        backend.run(france), backend.run(a_job(2, b"Name three colours.", max_tokens=8))
    )
    assert b"Paris" in first.output
    assert other.output != first.output
    # Not the first: with others in its batch an answer may differ.
    assert await backend.run(france) == await backend.run(france)
    assert first.manifest["completion_tokens"] == 8
    assert first.manifest["finish_reason"] == "length"
    assert first.manifest["sampling"]["seed"] == france.seed
    assert first.manifest["file_sha256"] == SMOLLM2_SHA256
    assert (await backend.run(a_job(3, b"Say\x00 hi", max_tokens=2))).output
    assert capfd.readouterr() == ("", ""), "llama.cpp keeps quiet"


async def test_impossible_prompts_are_refused_and_long_work_can_be_stopped(
    backend: LlamaCppBackend,
) -> None:
    for hostile in (b"\xff", b"", b"word " * 600, b"x" * 1_000_000):
        with pytest.raises(BadInput):
            await backend.run(a_job(1, hostile))
    running = asyncio.create_task(backend.run(a_job(1, b"word " * 200, max_tokens=300)))
    await asyncio.sleep(0.2)
    started = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await backend.close()
    assert time.monotonic() - started < 30, "closing waits for one step, not for the answer"


_LOAD_AND_DROP = """
import asyncio, sys
from pathlib import Path
from inferd.workers.backends.llamacpp import LlamaCppBackend
from inferd.workers.model_files import ModelFile, stamp_of

async def main() -> None:
    path = Path(sys.argv[1])
    file = ModelFile(path, "", "", "", stamp_of(path.stat()))
    backend = LlamaCppBackend(file, name="unused", context_tokens=128)
    for _ in range(6):
        await backend.start()
        await backend.unload()

asyncio.run(main())
"""


def test_a_model_that_nobody_asked_is_unloaded_too(smollm2: ModelFile) -> None:
    """In a process of its own, as in one that hangs here no thread goes on."""
    unused = [sys.executable, "-c", _LOAD_AND_DROP, str(smollm2.path)]
    assert subprocess.run(unused, check=False, timeout=120).returncode == 0


async def test_a_cancelled_answer_is_cut_at_the_next_token() -> None:
    class Endless:
        tokens = 0

        def handle_chat_completions(
            self, _: object, on_chunk: Callable[[dict[str, Any]], bool]
        ) -> None:
            chunk = {"choices": [{"delta": {"content": "x"}}]}
            while self.tokens < 10_000 and not on_chunk(chunk):
                self.tokens += 1
                time.sleep(0.001)

    endless = Endless()
    made = LlamaCppBackend(ModelFile(Path("none"), "", "", "", NO_STAMP), name="endless")
    made._server = endless
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(made.run(a_job(1)), 0.2)
    await asyncio.wait_for(made.close(), 10)
    assert 0 < endless.tokens < 10_000


async def test_two_models_take_turns_in_the_room_for_one(smollm2: ModelFile) -> None:
    """Its file's size is what it takes: of 150 MB one of the two fills two thirds."""
    folder = smollm2.path.parent.parent
    choices = [
        BackendChoice(backend="llamacpp", model=name, slots=2, unload_after_s=after_s)
        for name, after_s in (("one", 0.0), ("two", 3600.0))
    ]
    async with stocked(choices, memory_mb=150, cache_dir=folder) as stock:
        one, two = stock.backends

        async def ask(backend: Backend) -> Completion:
            async with stock.memory.holding(backend):
                assert backend.loaded
                return await backend.run(a_job(1, b"What is the capital of France?", max_tokens=4))

        answers = [await ask(backend) for backend in (one, two, one)]
        assert (one.loaded, two.loaded) == (True, False)
        assert answers[0] == answers[2]
        assert answers[0].output == answers[1].output


async def test_a_file_that_is_no_model_says_so(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + b"\x00" * 100)
    with pytest.raises(TextModelUnusable, match="cannot load") as refused:
        await LlamaCppBackend(
            ModelFile(file, "", "", "", stamp_of(file.stat())), name="broken"
        ).start()
    assert refused.value.help_text


@pytest.mark.parametrize("how", ["replaced", "gone"])
async def test_a_file_that_is_not_the_hashed_one_is_not_loaded(tmp_path: Path, how: str) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    made = LlamaCppBackend(ModelFile(file, "", "", "", stamp_of(file.stat())), name="changed")
    file.unlink()
    if how == "replaced":
        file.write_bytes(b"GGUF and more")
    with pytest.raises(TextModelUnusable, match="another file" if how == "replaced" else "No such"):
        await made.start()
    await made.close()


@pytest.mark.parametrize("ended", ["cancelled", "refused"])
async def test_an_unloaded_model_is_gone_though_its_last_computation_is_remembered(
    smollm2: ModelFile, ended: str
) -> None:
    """Whoever keeps an exception keeps the frames that it came through."""
    made = LlamaCppBackend(smollm2, name="left", slots=1, context_tokens=512)
    await made.start()
    address = urlsplit(made._server.listening_address)
    words = b"word " * (400 if ended == "cancelled" else 600)
    asked = asyncio.create_task(made.run(a_job(1, words, max_tokens=100)))
    if ended == "cancelled":
        await asyncio.sleep(0.1)
        asked.cancel()
    await asyncio.wait([asked])
    await made.unload()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(address.hostname, address.port)
    with pytest.raises(BadInput if ended == "refused" else asyncio.CancelledError):
        await asked
    await made.close()


_OVERWRITE = """
import asyncio, os, sys
from pathlib import Path
from inferd.workers.backends.llamacpp import LlamaCppBackend
from inferd.workers.model_files import ModelFile, stamp_of
from tests.workers.support import a_job

async def main() -> None:
    path = Path(sys.argv[1])
    backend = LlamaCppBackend(
        ModelFile(path, "", "", "", stamp_of(path.stat())), name="spoilt", context_tokens=128
    )
    await backend.start()
    job = a_job(1, b"What is the capital of France?", max_tokens=4)
    whole = await backend.run(job)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(30_000_000))
    assert await backend.run(job) == whole, "overwritten"
    os.truncate(path, 0)
    assert await backend.run(job) == whole, "truncated"
    await backend.close()

asyncio.run(main())
"""


def test_a_loaded_model_stays_as_it_was_hashed_whatever_becomes_of_its_file(
    smollm2: ModelFile, tmp_path: Path
) -> None:
    """In a process of its own: one that maps a file into memory dies where it is cut."""
    copy = tmp_path / "model.gguf"
    shutil.copy(smollm2.path, copy)
    spoilt = [sys.executable, "-c", _OVERWRITE, str(copy)]
    assert subprocess.run(spoilt, check=False, timeout=120).returncode == 0
    copy.unlink()


async def test_a_file_that_changes_while_it_is_loaded_is_not_served(
    smollm2: ModelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.gguf"
    file.symlink_to(smollm2.path)
    made = LlamaCppBackend(
        ModelFile(file, "", "", "", stamp_of(file.stat())), name="changing", context_tokens=128
    )
    load = xllamacpp.Server

    def loads_and_is_late(params: object) -> object:
        server = load(params)
        file.unlink()
        file.write_bytes(b"GGUF")
        return server

    monkeypatch.setattr(xllamacpp, "Server", loads_and_is_late)
    with pytest.raises(TextModelUnusable, match="another file"):
        await made.start()
    assert not made.loaded
    await made.close()


async def test_a_slow_disk_stops_neither_the_process_nor_its_end(tmp_path: Path) -> None:
    """A pipe stands for the disk: it gives what the test writes, and no more."""
    file = tmp_path / "model.gguf"
    os.mkfifo(file)
    made = LlamaCppBackend(ModelFile(file, "", "", "", stamp_of(file.stat())), name="slow")
    starting = asyncio.create_task(made.start())
    with await asyncio.to_thread(file.open, "wb", buffering=0) as disk:
        disk.write(b"GGUF")
        closing = asyncio.create_task(made.close())
        await asyncio.sleep(0)
        with contextlib.suppress(BrokenPipeError):
            disk.write(b"more")
        with pytest.raises(TextModelUnusable, match="cut short"):
            await starting
        await closing
