"""A program as a model: what it is told, what it may not do, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from inferd.workers.backends.check import ProbeFailed, check_backend
from inferd.workers.backends.choice import CommandOptions
from inferd.workers.backends.command import CommandBackend, CommandUnusable, question
from inferd.workers.job import BadInput, JobError, WorkerBusy, WorkerFailed
from tests.workers.support import a_job, until


@contextlib.asynccontextmanager
async def program(
    folder: Path, text: str, *arguments: str, **options: Any
) -> AsyncIterator[CommandBackend]:
    """A script of the shell, or of Python where it begins with `import`."""
    file = folder / "program"
    interpreter = sys.executable if text.startswith("import") else "/bin/sh"
    file.write_text(f"#!{interpreter}\n{text}\n")
    file.chmod(0o755)
    given = CommandOptions(**{"argv": (str(file), *arguments), "timeout_s": 60, **options})
    backend = CommandBackend(given, name="m", threads=2)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()


def gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_json_in_bytes_out(tmp_path: Path) -> None:
    job = a_job(7, b'say "hi"\n', max_tokens=9)
    async with program(tmp_path, 'cat; printf "%s" "$1"', "a $HOME;b") as backend:
        completion = await backend.run(job)
    told, _, rest = completion.output.partition(b"\n")
    assert rest == b"a $HOME;b", "no shell reads the arguments"
    assert json.loads(told) == {
        "schema_version": 1,
        "request_id": "7",
        "commitment": "0x" + job.commitment.hex(),
        "model": "test-model",
        "input": 'say "hi"\n',
        "max_tokens": 9,
        "seed": job.seed,
        "deadline_s": job.deadline_s,
    }
    manifest = completion.manifest
    assert manifest["backend"] == "command"
    assert manifest["weights"] == "program"
    assert manifest["completion_tokens"] is None
    file = (tmp_path / "program").read_bytes()
    assert manifest["program_sha256"] == hashlib.sha256(file).hexdigest()


async def test_a_program_that_was_replaced_is_told_by_its_new_hash(tmp_path: Path) -> None:
    async with program(tmp_path, "echo old") as backend:
        before = await backend.run(a_job())
        other = tmp_path / "other"
        other.write_text("#!/bin/sh\necho new\n")
        other.chmod(0o755)
        other.replace(tmp_path / "program")
        after = await backend.run(a_job())
    assert (before.output, after.output) == (b"old\n", b"new\n")
    content = (tmp_path / "program").read_bytes()
    assert after.manifest["program_sha256"] == hashlib.sha256(content).hexdigest()
    assert before.manifest["program_sha256"] != after.manifest["program_sha256"]


def test_an_input_that_is_no_text_is_told_in_base64() -> None:
    told = json.loads(question(a_job(1, b"\xff\x00")))
    assert told["input_base64"] == "/wA="
    assert "input" not in told


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("exit 65", BadInput, "does not take this input"),
        ("exit 75", WorkerBusy, "no capacity"),
        ("cat >&2; exit 3", WorkerFailed, "exit code 3$"),
        ("kill -9 $$", WorkerFailed, "signal 9"),
    ],
)
async def test_what_an_exit_code_means(
    tmp_path: Path, text: str, kind: type[JobError], reason: str
) -> None:
    async with program(tmp_path, text) as backend:
        with pytest.raises(kind, match=reason) as caught:
            await backend.run(a_job())
    assert type(caught.value) is kind
    assert "hello" not in caught.value.reason


async def test_it_gets_the_variables_of_the_list_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "1")
    monkeypatch.setenv("MY_PLACE", "here")
    async with program(
        tmp_path, "import json, os\nprint(json.dumps(dict(os.environ)))", environment=("MY_PLACE",)
    ) as backend:
        told = json.loads((await backend.run(a_job())).output)
    assert told["MY_PLACE"] == "here"
    assert told.keys() <= {"MY_PLACE", "LC_CTYPE"}, "Python sets the second by itself"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("while :; do echo xxxxxxxxxxxxxxxx; done", "more than 1024 bytes"),
        ("sleep 600", "longer than 1 s"),
        ("exec >&- 2>&-; sleep 600", "longer than 1 s"),
        ("trap '' TERM; sleep 600 & wait", "longer than 1 s"),
    ],
)
async def test_too_much_and_too_long_is_killed(tmp_path: Path, text: str, reason: str) -> None:
    timeout_s = 60.0 if "bytes" in reason else 1.0
    async with program(tmp_path, text, max_output_bytes=1_024, timeout_s=timeout_s) as backend:
        with pytest.raises(WorkerFailed, match=reason):
            await backend.run(a_job())


async def test_what_it_says_beside_its_answer_is_bounded(tmp_path: Path) -> None:
    script = "import sys\nsys.stderr.write('x' * 5_000_000 + 'end')\nprint('ok')"
    async with program(tmp_path, script) as backend:
        assert (await backend.run(a_job())).output == b"ok\n"
        assert backend.last is not None
        assert len(backend.last.stderr) <= 2_000
        assert backend.last.stderr.endswith(b"end")


async def test_it_may_leave_a_long_input_unread(tmp_path: Path) -> None:
    async with program(tmp_path, "echo done") as backend:
        assert (await backend.run(a_job(1, b"x" * 3_000_000))).output == b"done\n"
    async with program(tmp_path, "wc -c") as backend:
        assert int((await backend.run(a_job(1, b"x" * 3_000_000))).output) > 3_000_000


async def test_memory_is_bounded_and_measured(tmp_path: Path) -> None:
    script = "import sys\ntry:\n    b'x' * (1 << 29)\nexcept MemoryError:\n    sys.exit(9)"
    async with program(tmp_path, script, memory_mb=256) as backend:
        with pytest.raises(WorkerFailed, match="exit code 9"):
            await backend.run(a_job())
    script = "import sys\nkept = b'x' * (100 << 20)\nprint(len(kept))"
    async with program(tmp_path, script) as backend:
        report = await check_backend(backend)
    assert report.memory_mb
    assert 100 <= report.memory_mb < 1_000
    assert report.deterministic
    assert report.tokens_per_s is None


@pytest.mark.parametrize("how", ["cancelled", "ended"])
async def test_nothing_of_its_group_stays(tmp_path: Path, how: str) -> None:
    told = tmp_path / "pids"
    end = "wait" if how == "cancelled" else "exit 0"
    async with program(
        tmp_path, f"sleep 600 & echo $! $$ > {told}.new; mv {told}.new {told}; {end}"
    ) as backend:
        running = asyncio.create_task(backend.run(a_job()))
        await until(told.exists)
        if how == "cancelled":
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            await running
    await until(lambda: all(gone(int(pid)) for pid in told.read_text().split()))


async def test_it_dies_with_the_worker(tmp_path: Path) -> None:
    """Of a SIGKILL the worker hears nothing."""
    told = tmp_path / "pid"
    file = tmp_path / "program"
    file.write_text(f"#!/bin/sh\necho $$ > {told}.new; mv {told}.new {told}; sleep 600\n")
    file.chmod(0o755)
    script = f"""
import asyncio
from inferd.workers.backends.choice import CommandOptions
from inferd.workers.backends.command import CommandBackend
from tests.workers.support import a_job
async def main():
    backend = CommandBackend(CommandOptions(argv=({str(file)!r},)), name="m", threads=1)
    await backend.start()
    await backend.run(a_job())
asyncio.run(main())
"""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=Path(__file__).parents[3]
    )
    await until(told.exists, 60)
    worker.kill()
    await worker.wait()
    await until(lambda: gone(int(told.read_text())))


async def test_many_at_once_and_the_deadline(tmp_path: Path) -> None:
    async with program(tmp_path, "cat") as backend:
        answers = await asyncio.gather(
            *(backend.run(a_job(number, str(number).encode())) for number in range(1, 9))
        )
        inputs = [json.loads(answer.output)["input"] for answer in answers]
        assert inputs == [str(number) for number in range(1, 9)]
        with pytest.raises(WorkerFailed, match="longer than 0 s"):
            await backend.run(a_job(1, deadline_in_s=-5))


def _no_such_program(_: Path) -> dict[str, Any]:
    return {"argv": ("no-such-program",)}


def _not_executable(folder: Path) -> dict[str, Any]:
    (folder / "text").write_text("hello")
    return {"argv": (str(folder / "text"),)}


def _no_such_folder(folder: Path) -> dict[str, Any]:
    return {"argv": ("/bin/sh",), "working_dir": folder / "none"}


@pytest.mark.parametrize("options", [_no_such_program, _not_executable, _no_such_folder])
async def test_what_cannot_be_started_is_told_before(
    tmp_path: Path, options: Callable[[Path], dict[str, Any]]
) -> None:
    backend = CommandBackend(CommandOptions(**options(tmp_path)), name="m", threads=1)
    with pytest.raises(CommandUnusable) as caught:
        await backend.start()
    assert caught.value.help_text
    await backend.close()


async def test_the_check_repeats_its_last_words(tmp_path: Path) -> None:
    async with program(tmp_path, "echo 'no GPU' >&2; exit 1") as backend:
        with pytest.raises(ProbeFailed, match="exit code 1") as caught:
            await check_backend(backend)
    assert "no GPU" in caught.value.help_text


async def test_a_program_that_the_system_cannot_run_fails_the_attempt(tmp_path: Path) -> None:
    async with program(tmp_path, "exit 0") as backend:
        (tmp_path / "program").write_text("what is this")
        with pytest.raises(WorkerFailed, match="exit code"):
            await backend.run(a_job())
