"""What commands print. Whatever others wrote (prompts, answers, names, reasons) is escaped."""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import Any

SCHEMA_VERSION = 1

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Invisible, but part of how some scripts and emoji are written, and harmless."""


class ReaderGone(Exception):
    """Whoever reads our stdout has closed it."""


def escape(text: str, *, keep_lines: bool = False) -> str:
    """Makes every character that could steer a terminal, or hide text in it, visible.

    `keep_lines` lets line feeds and tabs through.
    """
    kept = _JOINERS + ("\n\t" if keep_lines else "")
    return "".join(
        character
        if character in kept or unicodedata.category(character) not in _HIDDEN
        else _visible(ord(character))
        for character in text
    )


def show(text: str) -> None:
    """One line of a result on stdout."""
    write(escape(text) + "\n")


def show_json(value: dict[str, Any], *, one_line: bool = False) -> None:
    """A result for programs: ASCII only, keys in the order given."""
    write(json.dumps(value, indent=None if one_line else 2) + "\n")


def show_bytes(output: bytes, *, raw: bool) -> None:
    """An answer: its exact bytes to a file or a pipe (or if `raw`), readable text on a terminal."""
    if raw or not sys.stdout.isatty():
        write_bytes(output)
        return
    text = escape(output.decode("utf-8", "backslashreplace"), keep_lines=True)
    write(text if text.endswith("\n") else text + "\n")


def write(text: str) -> None:
    """Writes to stdout at once. Raises ReaderGone."""
    write_bytes(text.encode("utf-8", "backslashreplace"))


def write_bytes(data: bytes) -> None:
    """Writes to stdout at once. Raises ReaderGone."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise ReaderGone from error


def note(text: str) -> None:
    """One line of progress, a warning or an error on stderr."""
    sys.stderr.write(escape(text) + "\n")
    sys.stderr.flush()


def _visible(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
