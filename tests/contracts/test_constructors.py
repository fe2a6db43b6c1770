"""What cannot be deployed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.abi import NOBODY, Address, words
from tests.contracts.cast import ADMIN, ALICE, TREASURY
from tests.contracts.setting import Setting

_YEAR = 365 * 24 * 3600
_STAKES = (ALICE, ALICE, ALICE, ALICE, TREASURY, 1, 10)


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("InferenceRequests", (ALICE, ALICE, ADMIN, 10_001, 60), ("InvalidPosterBps", 10_001)),
        ("InferenceRequests", (ALICE, ALICE, ADMIN, 10_000, 0), ("CancelDelayZero",)),
        ("InferenceRequests", (ALICE, ALICE, ADMIN, 10_000, 1), None),
        ("InferenceRequests", (ALICE, ALICE, NOBODY, 0, 2**40 - 1), None),
        ("StakeManager", (*_STAKES, 5_001), ("InvalidReporterBps", 5_001)),
        ("StakeManager", (*_STAKES, 5_000), None),
        ("StakeManager", (*_STAKES[:6], _YEAR + 1, 0), ("UnbondingDelayTooLong", _YEAR + 1)),
        ("StakeManager", (*_STAKES[:6], _YEAR, 0), None),
        ("StakeManager", (*_STAKES[:4], NOBODY, 1, 10, 0), ("NoTreasury",)),
    ],
)
def test_what_a_constructor_refuses(
    setting: Setting,
    name: str,
    arguments: tuple[Address | int, ...],
    error: tuple[Any, ...] | None,
) -> None:
    assert setting.try_deploy(name, words(*arguments)) == error
