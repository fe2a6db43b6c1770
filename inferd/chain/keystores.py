"""Keystore files of version 3: made, filled with a key that exists, and asked for their address.

A file appears whole or not at all, is readable by its owner only, and is never written over. No
text of an error holds a key or a password, or any part of what should have been one.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from eth_utils.address import to_canonical_address

from indexer.errors import OperatorError
from indexer.types import Address
from inferd.chain.keys import BadKey, accounts

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_HEX_KEY = re.compile(r"(0x)?[0-9a-fA-F]{64}", re.ASCII)


class KeystoreExists(OperatorError):
    """A file that would be written over, and with it perhaps the only copy of a key."""

    code: ClassVar[str] = "keystore_exists"


class BadPassword(OperatorError):
    """A password cannot be read, or is none."""

    code: ClassVar[str] = "bad_password"


def read_password(place: Path) -> str:
    """A password file's password: all of it but a line end at the end. Raises BadPassword."""
    try:
        return checked_password(place.read_text().rstrip("\r\n"))
    except OSError as error:
        raise BadPassword(
            f"the password file {place} cannot be read: {error.strerror}",
            help_text="correct the path, or the file's permissions",
        ) from None
    except UnicodeDecodeError:
        raise BadPassword(
            f"the password file {place} is no text", help_text="write the password as UTF-8"
        ) from None


def checked_password(password: str) -> str:
    """Raises BadPassword where there is none."""
    if not password:
        raise BadPassword(
            "the password is empty",
            help_text="choose one: without it, whoever has the file has the key",
        )
    return password


def create(place: Path, password: str) -> Address:
    """A new key, from the system's own randomness. Raises as `store`."""
    return store(place, accounts().from_key(secrets.token_bytes(32)), password)


def store(place: Path, account: LocalAccount, password: str) -> Address:
    """Encrypts a key into a new file. Raises KeystoreExists, BadPassword, BadKey."""
    refuse_existing(place)
    return _written(place, account, password)


def from_hex(text: str) -> LocalAccount:
    """Raises BadKey."""
    text = text.strip()
    if _HEX_KEY.fullmatch(text):
        with suppress(Exception):  # its text may hold the key
            account: LocalAccount = accounts().from_key(bytes.fromhex(text.removeprefix("0x")))
            return account
    raise BadKey(
        "what was given is no key of 64 hex digits",
        help_text="give the hex digits alone, or a whole keystore file",
    )


def from_keystore(text: str, password: str) -> LocalAccount:
    """Raises BadKey."""
    try:
        encrypted = json.loads(text)
        key = accounts().decrypt(encrypted, password)
        account: LocalAccount = accounts().from_key(key)
    except Exception as error:  # its text or context may hold the password
        wrong = "MAC" in str(error)
    else:
        return account
    what = "its password is another one" if wrong else "it is no keystore of version 3"
    raise BadKey(
        f"the keystore that was given does not open: {what}",
        help_text="correct the password, or give the file of a wallet that exports keystore v3",
    )


def refuse_existing(place: Path) -> None:
    """Raises KeystoreExists."""
    if os.path.lexists(place):
        raise KeystoreExists(
            f"{place} exists", help_text="name another file: nothing is ever written over"
        )


def _written(place: Path, account: LocalAccount, password: str) -> Address:
    text = json.dumps(accounts().encrypt(account.key, checked_password(password)))
    written = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(written, place)  # fails where there is a file: a rename would replace it
        finally:
            written.unlink(missing_ok=True)
    except FileExistsError:
        refuse_existing(place)
        raise
    except OSError as error:
        raise BadKey(
            f"{place} cannot be written: {error.strerror}",
            help_text="make the folder (`mkdir -m 700`), or name another one",
        ) from None
    return Address(to_canonical_address(account.address))
