"""A table in a module's docstring that says which test shows which case: does it tell the truth?"""

from __future__ import annotations

import ast
import re
from pathlib import Path

_FILE_OR_NAME = re.compile(r"([./a-z_]+\.py)|`(\w+)`")


def rows(docstring: str | None) -> list[str]:
    return [line for line in (docstring or "").splitlines() if line.startswith("| ")][1:]


def case(row: str) -> str:
    return row.split("|")[1].strip()


def assert_has_its_tests(row: str, folder: Path) -> None:
    """Files are named relative to the folder."""
    file, found = None, 0
    for named_file, name in _FILE_OR_NAME.findall(row.split("|")[2]):
        if named_file:
            file = named_file
        else:
            assert file is not None
            assert name in _names_in(folder / file)
            found += 1
    assert found


def _names_in(file: Path) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, kinds)}
