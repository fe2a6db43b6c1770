"""Rules that commands check before they send anything, at their bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inferd.chain.admin import BadModelTerms, check_model_terms
from inferd.chain.deploy import NOBODY
from inferd.protocol.request import model_id
from inferd.protocol.terms import MAX_BOND_WEI, ModelTerms
from tests.chain.world import ETHER, GWEI

MARKOV = model_id("markov")


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"min_quorum": 15},
        {"dispute_window_s": 100, "bond_wei": GWEI},
        {"dispute_window_s": 1, "bond_wei": MAX_BOND_WEI},
    ],
    ids=str,
)
def test_terms_that_can_be_set(terms: dict[str, Any]) -> None:
    check_model_terms(ModelTerms(MARKOV, **terms), max_window_s=100)


@pytest.mark.parametrize(
    "terms",
    [
        {"min_quorum": 16},
        {"min_quorum": -1},
        {"dispute_window_s": 101, "bond_wei": GWEI},
        {"dispute_window_s": 1},
        {"bond_wei": GWEI},
        {"dispute_window_s": 1, "bond_wei": GWEI + 1},
        {"dispute_window_s": 1, "bond_wei": MAX_BOND_WEI + GWEI},
    ],
    ids=str,
)
def test_terms_that_cannot_be_set(terms: dict[str, Any]) -> None:
    with pytest.raises(BadModelTerms):
        check_model_terms(ModelTerms(MARKOV, **terms), max_window_s=100)


def test_a_window_fits_its_field_whatever_the_deployment_allows() -> None:
    longest = ModelTerms(MARKOV, dispute_window_s=2**32 - 1, bond_wei=GWEI)
    check_model_terms(longest, max_window_s=2**39)

    with pytest.raises(BadModelTerms):
        check_model_terms(replace(longest, dispute_window_s=2**32), max_window_s=2**39)


def test_terms_come_back_as_they_went() -> None:
    terms = ModelTerms(MARKOV, b"\x11" * 20, 60, ETHER, 3)

    assert ModelTerms.from_abi(MARKOV, terms.as_abi()) == terms


def test_no_terms_keep_the_model_that_was_asked_for() -> None:
    none = (bytes(32), "0x" + NOBODY.hex(), 0, 0, 0)

    assert ModelTerms.from_abi(MARKOV, none) == ModelTerms(MARKOV)
