"""Contracts and model do the same, whatever is done to them."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.stateful import run_state_machine_as_test

from tests.contracts.arena import Arena
from tests.contracts.coverage import not_seen
from tests.contracts.machine.protocol import protocol_on

_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
_SETTINGS = settings(
    max_examples=3_000 if _DEEP else 130,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
# A run lasts a minute; to shrink a failing one may take hypothesis five more.
pytestmark = pytest.mark.timeout(7_200 if _DEEP else 900)


@pytest.fixture(autouse=True)
def _every_example_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis would spend five of six examples on variations of the one before."""
    monkeypatch.setattr(ConjectureRunner, "generate_mutations_from", lambda *_: None, raising=False)


def test_the_same_cases_each_time_and_everything_happens(arena: Arena) -> None:
    arena.seen = Counter()

    run_state_machine_as_test(
        protocol_on(arena), settings=settings(_SETTINGS, derandomize=True, database=None)
    )

    assert not not_seen(arena.setting.abis, arena.seen)


@pytest.mark.skipif(not _DEEP, reason="new cases are for `make test-deep`")
def test_new_cases_each_time(arena: Arena) -> None:
    run_state_machine_as_test(protocol_on(arena), settings=_SETTINGS)
