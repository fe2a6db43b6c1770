"""The lower bound of a worker's reliability."""

from __future__ import annotations

import random
from itertools import pairwise
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.reliability import (
    CONFIDENCE,
    Reliability,
    beta_cdf,
    beta_quantile,
    outcome,
    success_lower,
)

shapes = st.floats(0.05, 500.0)


def _after(outcomes: list[bool], keep: float = 0.98) -> Reliability:
    known = Reliability()
    for success in outcomes:
        known = outcome(known, success=success, keep=keep)
    return known


@given(st.integers(1, 60), st.integers(1, 60), st.floats(0.001, 0.999))
def test_the_distribution_is_the_binomial_tail(a: int, b: int, x: float) -> None:
    """I_x(a, b) = P(Binomial(a + b - 1, x) >= a), for whole a and b (DLMF 8.17.5)."""
    n = a + b - 1
    tail = sum(comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
    assert beta_cdf(x, a, b) == pytest.approx(tail, abs=1e-9)


@given(shapes, shapes, st.floats(0.01, 0.99))
def test_the_quantile_inverts_the_distribution(a: float, b: float, probability: float) -> None:
    """To the step at which it stops: near an end that much of x can be a large part of the
    probability."""
    x = beta_quantile(probability, a, b)
    assert 0.0 <= x <= 1.0
    assert beta_cdf(x - 1e-8, a, b) - 1e-6 <= probability <= beta_cdf(x + 1e-8, a, b) + 1e-6


@pytest.mark.parametrize("probability", [1e-6, 0.1, 0.5, 0.9, 1 - 1e-6])
@pytest.mark.parametrize(
    ("a", "b"), [(0.01, 0.01), (0.5, 0.5), (1e4, 0.5), (0.5, 1e4), (1e-3, 5.0), (1.0, 1.0)]
)
def test_extreme_shapes_have_the_quantile_of_a_bisection(
    a: float, b: float, probability: float
) -> None:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if beta_cdf(middle, a, b) < probability else (low, middle)
    assert beta_quantile(probability, a, b) == pytest.approx(low, abs=1e-10)


def test_a_newcomer_is_neither_trusted_nor_shut_out() -> None:
    assert success_lower(Reliability()) == pytest.approx(0.6982, abs=1e-4)


def test_each_success_raises_it_and_each_failure_lowers_it() -> None:
    rising = [success_lower(_after([True] * n)) for n in range(60)]
    assert all(later > earlier for earlier, later in pairwise(rising))
    assert rising[-1] > 0.93
    known = _after([True] * 20)
    assert success_lower(outcome(known, success=False)) < success_lower(known)


def test_the_past_is_forgotten() -> None:
    mended = _after([False] * 200 + [True] * 200)
    assert success_lower(mended) > 0.88
    assert success_lower(_after([True] * 200 + [False] * 200)) < 0.1


@pytest.mark.parametrize("truth", [0.3, 0.7, 0.95])
def test_the_truth_is_above_the_bound_as_often_as_stated(truth: float) -> None:
    rng = random.Random(9)
    above = 0
    for _ in range(400):
        known = _after([rng.random() < truth for _ in range(400)], keep=1.0)
        above += truth >= success_lower(known)
    assert above / 400 == pytest.approx(CONFIDENCE, abs=0.09)


@pytest.mark.parametrize("keep", [0.0, 1.1, -0.5])
def test_an_impossible_memory_is_refused(keep: float) -> None:
    with pytest.raises(ValueError, match="cannot be kept"):
        outcome(Reliability(), success=True, keep=keep)
