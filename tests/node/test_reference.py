"""The reference page is what the code says, and the code says something of everything in it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from pydantic import BaseModel

from indexer.errors import ExitCode, OperatorError
from inferd.chain.keys import KeySource
from inferd.node.limit_settings import TenantSettings
from inferd.node.reference import (
    attribute_docs,
    error_classes,
    reference,
    sentence,
    setting_docs,
    settings_classes,
)
from inferd.node.worker_settings import WorkerSettings
from inferd.workers.backends.choice import BACKEND_OPTIONS

_PAGE = Path(__file__).parents[2] / "docs" / "reference.md"


def test_the_page_is_what_the_code_says() -> None:
    assert _PAGE.read_text() == reference(), "run scripts/reference.py"


def test_the_alerts_are_about_metrics_that_there_are() -> None:
    rules = (_PAGE.parent / "operating" / "alerts.yml").read_text()
    named = {name for line in rules.splitlines() for name in re.findall(r"\binferd_\w+", line)}
    known = set(re.findall(r"^\| `(inferd_\w+)`", _PAGE.read_text(), flags=re.MULTILINE))
    assert named
    assert named <= known
    assert rules.count("- alert: ") == rules.count("summary: ")


def test_the_page_is_the_same_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    page = reference()
    assert str(Path.home()) not in page
    for variable in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "INFERD_DATA_DIR"):
        monkeypatch.setenv(variable, f"/elsewhere/{variable}")
    assert reference() == page


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_each_error_says_what_it_is(kind: type[OperatorError]) -> None:
    assert "code" in vars(kind)
    assert sentence(kind).endswith(".")


def test_no_two_errors_share_a_code() -> None:
    codes = Counter(kind.code for kind in error_classes())
    assert [code for code, uses in codes.items() if uses > 1] == []


@pytest.mark.parametrize(
    "owner",
    [
        *settings_classes().values(),
        WorkerSettings,
        *BACKEND_OPTIONS.values(),
        TenantSettings,
        KeySource,
    ],
    ids=lambda owner: owner.__name__,
)
def test_each_setting_says_what_it_is(owner: type[BaseModel]) -> None:
    assert [name for name, text in setting_docs(owner).items() if not text] == []


def test_each_exit_code_says_what_it_is() -> None:
    silent = {code.name for code in ExitCode} - attribute_docs(ExitCode).keys()
    assert silent <= {"OK"}
