"""The files of keys that private inputs are encrypted to."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from indexer.errors import OperatorError
from inferd.protocol.private import KEY_BYTES, DecryptionKey


class BadEncryptionKey(OperatorError):
    """A key for private inputs cannot be used."""

    code: ClassVar[str] = "bad_encryption_key"


def load_keys(named: Sequence[Path], own: Path) -> tuple[DecryptionKey, ...]:
    """Those in the files that are named, the newest first; where none is, the one in `own`, which
    is made where it is not there. Raises BadEncryptionKey.
    """
    if named:
        return tuple(_read(file) for file in named)
    if not own.exists():
        _make(own)
    return (_read(own),)


def _read(file: Path) -> DecryptionKey:
    try:
        text, mode = file.read_text().strip(), file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise BadEncryptionKey(
            f"the key for private inputs in {file} cannot be read: {type(error).__name__}",
            help_text="correct its name in the settings, or the file's owner",
        ) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadEncryptionKey(
            f"others than its owner may read {file}", help_text=f"chmod 600 {file}"
        )
    try:
        return DecryptionKey(bytes.fromhex(text))
    except ValueError:
        raise BadEncryptionKey(
            f"{file} does not hold 64 hex digits",
            help_text="name the right file in the settings, or leave it out",
        ) from None


def _make(file: Path) -> None:
    """Complete or not there: a half-written key would lose what is encrypted to it."""
    unfinished = file.with_suffix(f".{secrets.token_hex(4)}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secrets.token_hex(KEY_BYTES) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        unfinished.rename(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise BadEncryptionKey(
            f"a key for private inputs cannot be written to {file}: {error.strerror}",
            help_text="correct `data_dir`, or name a key in the settings",
        ) from None
