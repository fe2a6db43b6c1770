"""Addresses as people write them at the command line."""

from __future__ import annotations

from typing import ClassVar

from eth_utils.address import is_address, to_canonical_address

from indexer.errors import OperatorError
from indexer.types import Address


class BadAddress(OperatorError):
    """A text is not an address."""

    code: ClassVar[str] = "bad_address"


def parse_address(text: str) -> Address:
    """Raises BadAddress."""
    if not is_address(text):
        raise BadAddress(
            f"{text!r} is no address", help_text="write 0x and 40 hex digits, with a right checksum"
        )
    return Address(to_canonical_address(text))


def parse_optional_address(text: str | None) -> Address | None:
    """None where nothing was given. Raises BadAddress."""
    return None if text is None else parse_address(text)
