"""The keys that private inputs are encrypted to: their files, and the poster's word for one."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from eth_keys.datatypes import PrivateKey

from indexer.errors import OperatorError
from indexer.types import Address, Contracts
from inferd.chain.keys import KeySource, open_account
from inferd.node.settings import Settings
from inferd.protocol.private import KEY_BYTES, DecryptionKey, EncryptionKey
from inferd.protocol.typed_data import (
    CompactSignature,
    domain_separator,
    encryption_key_digest,
    sign_digest,
)


class BadEncryptionKey(OperatorError):
    """A key for private inputs cannot be used."""

    code: ClassVar[str] = "bad_encryption_key"


@dataclass(frozen=True, slots=True)
class KeyStatement:
    """What requesters are told: which key, and whose."""

    key: EncryptionKey
    poster: Address
    signature: CompactSignature | None
    """The poster's; None where a remote signer has its key."""


def load_keys(settings: Settings) -> tuple[DecryptionKey, ...]:
    """The newest first; without a file that is named one is made in `data_dir`, once.

    Raises BadEncryptionKey.
    """
    named = settings.private.key_files
    if named:
        return tuple(_read(file) for file in named)
    file = settings.data_dir / "encryption.key"
    if not file.exists():
        _make(file)
    return (_read(file),)


def statement_of(
    keys: Sequence[DecryptionKey], poster: KeySource, address: Address, contracts: Contracts
) -> KeyStatement:
    """Raises BadKey."""
    key = keys[0].public
    if poster.remote_signer_url is not None:
        return KeyStatement(key, address, None)
    account = open_account(poster, contracts.chain_id, use="poster")
    domain = domain_separator(contracts.chain_id, contracts.requests)
    signature = sign_digest(PrivateKey(bytes(account.key)), encryption_key_digest(domain, key))
    return KeyStatement(key, address, signature)


def _read(file: Path) -> DecryptionKey:
    try:
        text, mode = file.read_text().strip(), file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise BadEncryptionKey(
            f"the key for private inputs in {file} cannot be read: {type(error).__name__}",
            help_text="correct `private.key_files`, or the file's owner",
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
            help_text="name the right file in `private.key_files`, or leave it out",
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
        raise BadEncryptionKey(
            f"a key for private inputs cannot be written to {file}: {error.strerror}",
            help_text="correct `data_dir`, or name a key in `private.key_files`",
        ) from None
