"""Large outputs as files that are named after their digests.

A file is written whole, flushed to the disk and renamed before the row that names it is committed;
so a crash leaves a file without a row at worst, never a row without its file. What no row names
goes with the next sweep once it is old enough that no transaction can still be about to name it.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from indexer.types import Hash32
from inferd.protocol.result import digest_of

ORPHAN_S = 3600.0
"""A file that no row names is kept so long: its transaction may be under way."""
_UNFINISHED = ".tmp"

log = structlog.get_logger("outputs")


class OutputUnreadable(Exception):
    """The file is not there, or is not what its name says. `reason` is in words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OutputUnwritable(Exception):
    """The disk does not take a file: it is full, or broken. `reason` is in words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OutputFiles:
    """One folder of one daemon. Every method blocks: call it in a thread."""

    def __init__(self, folder: Path, *, above_bytes: int) -> None:
        """Outputs with more than `above_bytes` belong here, others into PostgreSQL."""
        self._folder = folder
        self._above_bytes = above_bytes
        self._lock = threading.Lock()

    def takes(self, output: bytes) -> bool:
        """Whether the output belongs into a file."""
        return len(output) > self._above_bytes

    def put(self, digest: Hash32, output: bytes) -> None:
        """The output is on the disk when this returns, whole, and safe from a sweep for an hour.

        Raises OutputUnwritable.
        """
        place = self._place(digest)
        try:
            with self._lock:
                if self._is_there(place, digest):
                    os.utime(place)
                    return
            _write(place, output)
        except OSError as error:
            raise OutputUnwritable(os.strerror(error.errno or 0)) from error

    def read(self, digest: Hash32) -> bytes:
        """Raises OutputUnreadable, also where the bytes have another digest."""
        try:
            output = self._place(digest).read_bytes()
        except FileNotFoundError:
            raise OutputUnreadable("its file is not on this machine") from None
        except OSError as error:
            raise OutputUnreadable(f"its file cannot be read: {error.strerror}") from None
        if digest_of(output) != digest:
            log.error("output_damaged", digest=digest.hex())
            raise OutputUnreadable("its file is damaged")
        return output

    def old(self, now_s: float | None = None) -> Iterator[Hash32]:
        """Digests of the files that were written, or named again, more than an hour ago.

        What a crash left unfinished is deleted on the way.
        """
        before_s = (time.time() if now_s is None else now_s) - ORPHAN_S
        if not self._folder.is_dir():
            return
        for part in sorted(self._folder.iterdir()):
            for file in sorted(part.iterdir()) if part.is_dir() else ():
                if not _is_older(file, before_s):
                    continue
                if file.suffix == _UNFINISHED:
                    file.unlink(missing_ok=True)
                elif len(file.name) == 64:
                    yield Hash32(bytes.fromhex(file.name))

    def delete(self, digests: Sequence[Hash32], now_s: float | None = None) -> int:
        """Deletes those that are still old; gives how many."""
        before_s = (time.time() if now_s is None else now_s) - ORPHAN_S
        deleted = 0
        for digest in digests:
            place = self._place(digest)
            with self._lock:
                if _is_older(place, before_s):
                    place.unlink()
                    deleted += 1
        return deleted

    def _is_there(self, place: Path, digest: Hash32) -> bool:
        """A damaged file is not: it is written anew."""
        if not place.exists():
            return False
        try:
            self.read(digest)
        except OutputUnreadable:
            return False
        return True

    def _place(self, digest: Hash32) -> Path:
        name = digest.hex()
        return self._folder / name[:2] / name


def _write(place: Path, output: bytes) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = place.with_name(f"{place.name}.{secrets.token_hex(4)}{_UNFINISHED}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(output)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(place)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    for folder in (place.parent, place.parent.parent):
        _flush_folder(folder)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_older(file: Path, before_s: float) -> bool:
    try:
        return file.stat().st_mtime < before_s
    except FileNotFoundError:
        return False
