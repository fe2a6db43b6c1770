"""Files of outputs: whole or not there, verified when read, kept while needed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Hash32
from inferd.outputs import files as module
from inferd.outputs.files import ORPHAN_S, OutputFiles, OutputUnreadable, OutputUnwritable
from inferd.protocol.result import digest_of

OUTPUT = b"a large output"
DIGEST = digest_of(OUTPUT)


@pytest.fixture
def files(tmp_path: Path) -> OutputFiles:
    return OutputFiles(tmp_path / "outputs", above_bytes=4)


def everything(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def later() -> float:
    return time.time() + ORPHAN_S + 60


@given(st.binary(max_size=10), st.integers(0, 10))
def test_what_is_larger_than_the_limit_goes_into_files(output: bytes, limit: int) -> None:
    assert OutputFiles(Path("nowhere"), above_bytes=limit).takes(output) == (len(output) > limit)


def test_what_was_put_is_read_back_by_another_process(files: OutputFiles, tmp_path: Path) -> None:
    files.put(DIGEST, OUTPUT)
    files.put(DIGEST, OUTPUT)
    assert OutputFiles(tmp_path / "outputs", above_bytes=4).read(DIGEST) == OUTPUT
    (file,) = everything(tmp_path)
    assert file.name == DIGEST.hex()
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_not_there_or_damaged_is_not_given(files: OutputFiles, tmp_path: Path) -> None:
    with pytest.raises(OutputUnreadable, match="not on this machine"):
        files.read(DIGEST)
    files.put(DIGEST, OUTPUT)
    (file,) = everything(tmp_path)
    file.write_bytes(OUTPUT[:-1])
    with pytest.raises(OutputUnreadable, match="damaged"):
        files.read(DIGEST)
    files.put(DIGEST, OUTPUT)
    assert files.read(DIGEST) == OUTPUT


class Killed(BaseException):
    """As a kill of the process at that place."""


@pytest.mark.parametrize("step", ["write", "flush", "rename"])
def test_killed_on_the_way__not_there_or_whole(
    files: OutputFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def die(*_: object, **__: object) -> None:
        raise Killed

    place = {"write": (os, "fdopen"), "flush": (os, "fsync"), "rename": (Path, "replace")}[step]
    with monkeypatch.context() as patched:
        patched.setattr(*place, die)
        with pytest.raises(Killed):
            files.put(DIGEST, OUTPUT)
    with pytest.raises(OutputUnreadable):
        files.read(DIGEST)
    assert len(everything(tmp_path)) == 1, "the unfinished file"
    files.put(DIGEST, OUTPUT)
    assert files.read(DIGEST) == OUTPUT
    assert list(files.old(later())) == [DIGEST]
    assert len(everything(tmp_path)) == 1, "the sweep took the unfinished one"


def test_a_full_disk_leaves_nothing_behind(
    files: OutputFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(OutputUnwritable, match="No space"):
        files.put(DIGEST, OUTPUT)
    assert everything(tmp_path) == []


def test_only_old_files_are_deleted(files: OutputFiles, tmp_path: Path) -> None:
    files.put(DIGEST, OUTPUT)
    assert list(files.old()) == []
    assert files.delete([DIGEST]) == 0
    assert list(files.old(later())) == [DIGEST]
    assert files.delete([DIGEST, Hash32(bytes(32))], later()) == 1
    assert everything(tmp_path) == []


def test_named_again_between_look_and_delete__kept(files: OutputFiles, tmp_path: Path) -> None:
    files.put(DIGEST, OUTPUT)
    (file,) = everything(tmp_path)
    long_ago_s = time.time() - 2 * ORPHAN_S
    os.utime(file, (long_ago_s, long_ago_s))
    assert list(files.old()) == [DIGEST]
    files.put(DIGEST, OUTPUT)
    assert files.delete([DIGEST]) == 0
    assert files.read(DIGEST) == OUTPUT
