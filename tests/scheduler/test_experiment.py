"""Arms, their merging, and the statistics of the report against known values."""

from __future__ import annotations

from itertools import product
from math import inf, isclose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.experiment import (
    Difference,
    _chi_square_tail,
    arm_of,
    arms_of,
    commitment_bytes,
    difference,
    places,
    ratio_p_value,
    sample,
    turns,
)


def commitments(count: int) -> np.ndarray:
    return commitment_bytes([number.to_bytes(20, "big") for number in range(count)])


@pytest.mark.parametrize("shares", [(90, 10), (50, 50), (1, 1, 1), (5, 3, 2)])
def test_arms_divide_as_the_shares_say(shares: tuple[int, ...]) -> None:
    counts = np.bincount(arms_of(commitments(20_000), 1, shares), minlength=len(shares))
    assert ratio_p_value(counts.tolist(), shares) > 0.001


def test_an_arm_depends_on_nothing_but_commitment_and_experiment() -> None:
    together = arms_of(commitments(500), 7, (30, 70))
    assert [arm_of(bytes(one), 7, (30, 70)) for one in commitments(500)] == together.tolist()


def test_no_requests_have_no_arms() -> None:
    assert arms_of(commitment_bytes([]), 1, (1, 2)).tolist() == []


def test_two_experiments_divide_independently() -> None:
    first = arms_of(commitments(20_000), 1, (50, 50))
    second = arms_of(commitments(20_000), 2, (50, 50))
    cells = np.bincount(2 * first + second, minlength=4)
    assert ratio_p_value(cells.tolist(), (1, 1, 1, 1)) > 0.001


@pytest.mark.parametrize("at", range(20))
def test_every_byte_of_a_commitment_counts(at: int) -> None:
    varied = [bytes(at) + bytes([value]) + bytes(19 - at) for value in range(256)]
    assert len(set(arms_of(commitment_bytes(varied), 3, (1,) * 64).tolist())) > 32


@given(
    shares=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    slots=st.integers(0, 400),
    begin=st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=3, max_size=3),
)
def test_each_arm_has_its_share_of_the_first_places(
    shares: list[int], slots: int, begin: list[float]
) -> None:
    """To within one with two arms, and one more for each further one."""
    arm = np.repeat(np.arange(len(shares)), 400)
    rank = np.tile(np.arange(400), len(shares))
    order = np.argsort(places(rank, arm, shares, np.array(begin)), kind="stable")
    first = np.bincount(arm[order[:slots]], minlength=len(shares))
    expected = slots * np.array(shares) / sum(shares)
    assert (np.abs(first - expected) <= max(1, len(shares) - 1) + 1e-6).all()


@given(shares=st.lists(st.integers(1, 50), min_size=2, max_size=3), slots=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_however_few_slots_a_round_has_each_arm_has_its_share_over_rounds(
    shares: list[int], slots: int
) -> None:
    """In the mean over all beginnings, exactly."""
    arm = np.repeat(np.arange(len(shares)), 20)
    rank = np.tile(np.arange(20), len(shares))
    grid = (np.arange(40) + 0.5) / 40
    got = np.zeros(len(shares))
    for begin in product(grid, repeat=len(shares) - 1):
        order = np.argsort(places(rank, arm, shares, np.array(begin)), kind="stable")
        got += np.bincount(arm[order[:slots]], minlength=len(shares))
    share = got / got.sum()
    assert share == pytest.approx(np.array(shares) / sum(shares), abs=2 / 40)


def test_turns_begin_anywhere_and_depend_on_the_round_alone() -> None:
    found = np.array([turns(7, 3, number, 1_700_000_000.0 + number) for number in range(4_000)])
    assert found.shape == (4_000, 2)
    assert ((found >= 0.0) & (found < 1.0)).all()
    assert found.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.02)
    assert abs(float(np.corrcoef(found.T)[0, 1])) < 0.05
    assert abs(float(np.corrcoef(found[1:, 0], found[:-1, 0])[0, 1])) < 0.05
    again = turns(7, 3, 5, 1_700_000_005.0)
    assert again.tolist() == found[5].tolist()
    for other in (turns(8, 3, 5, 1_700_000_005.0), turns(7, 3, 5, 1_700_000_005.1)):
        assert other.tolist() != again.tolist()
    assert turns(7, 1, 5, 1.0).tolist() == []


@pytest.mark.parametrize(
    ("freedom", "statistic", "p_value"),
    # Critical values as every table of the chi-square distribution has them.
    [
        (1, 3.841, 0.05),
        (1, 10.828, 0.001),
        (2, 5.991, 0.05),
        (2, 13.816, 0.001),
        (3, 7.815, 0.05),
        (3, 16.266, 0.001),
        (4, 18.467, 0.001),
        (5, 11.070, 0.05),
        (6, 22.458, 0.001),
    ],
)
def test_the_tail_is_that_of_the_tables(freedom: int, statistic: float, p_value: float) -> None:
    assert isclose(_chi_square_tail(statistic, freedom), p_value, rel_tol=2e-3)


def test_the_ratio_check_is_pearsons() -> None:
    assert isclose(ratio_p_value((60, 40), (50, 50)), _chi_square_tail(4.0, 1))
    assert isclose(ratio_p_value((30, 30, 40), (1, 1, 1)), _chi_square_tail(2.0, 2))
    assert ratio_p_value((950, 50), (90, 10)) < 1e-6
    assert ratio_p_value((0, 0), (1, 1)) == 1.0
    assert ratio_p_value((7,), (3,)) == 1.0


def test_a_difference_has_welchs_interval() -> None:
    one, other = sample([1.0, 2.0, 3.0, 4.0]), sample([1.0, 1.0, 2.0, 2.0])
    found = difference(one, other)
    margin = 1.959963984540054 * (5 / 3 / 4 + 1 / 3 / 4) ** 0.5
    assert isclose(found.mean, 1.0)
    assert isclose(found.lower, 1.0 - margin)
    assert isclose(found.upper, 1.0 + margin)
    assert not found.is_clear


def test_too_few_values_leave_a_difference_open() -> None:
    assert difference(sample([3.0]), sample([1.0, 2.0])) == Difference(1.5, -inf, inf)
    assert difference(sample([]), sample([])) == Difference(0.0, -inf, inf)
    assert not difference(sample([]), sample([])).is_clear


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        found = difference(sample(random.normal(2, 3, 200)), sample(random.normal(1, 1, 100)))
        covered += found.lower <= 1.0 <= found.upper
    assert 0.91 <= covered / 400 <= 0.985
