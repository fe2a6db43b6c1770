"""docs/protocol.md has every field of every back end's manifest, and no other."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import inferd.workers
from inferd.workers.backends.manifest import manifest_of

PACKAGE = Path(inferd.workers.__file__).parent
PROTOCOL = PACKAGE.parent.parent / "docs" / "protocol.md"
MAKERS = {"manifest_of", "_manifest"}
_NO_FIELD = {"more", "self", "told"}


def _named(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def given(source: str) -> Iterator[str]:
    """Names of what is given to whoever makes a manifest."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _named(node.func) in MAKERS:
            yield from (keyword.arg for keyword in node.keywords if keyword.arg)


def test_the_fields_of_manifests() -> None:
    fields = {name for file in PACKAGE.rglob("*.py") for name in given(file.read_text("utf-8"))}
    fields |= set(inspect.signature(manifest_of).parameters) - _NO_FIELD
    assert {"tokens_counted_by", "program_sha256", "file_sha256", "encoding"} <= fields
    (section,) = re.findall(r"^## Manifests\n(.*)", PROTOCOL.read_text("utf-8"), re.M | re.S)
    rows = re.findall(r"^\| ((?:`[a-z0-9_]+`(?:, )?)+) \|", section, re.M)
    told = {name for row in rows for name in re.findall(r"`([a-z0-9_]+)`", row)}
    assert told == fields | {"private"}
