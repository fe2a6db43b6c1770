"""The factor that keeps a quantile true."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.calibration import BOUND, STEP, factor, tracked

finite = st.floats(0.0, 1e9)


def _coverage(outcomes: list[float], law: float) -> float:
    log_factor, below = 0.0, 0
    for outcome in outcomes:
        predicted = law * factor(log_factor)
        below += outcome <= predicted
        log_factor = tracked(log_factor, predicted=predicted, observed=outcome)
    return below / len(outcomes)


@pytest.mark.parametrize("law", [0.6, 1.0, 3.0])
def test_nine_of_ten_stay_below_whatever_the_law_says(law: float) -> None:
    rng = random.Random(5)
    outcomes = [rng.lognormvariate(0.0, 0.5) for _ in range(4_000)]
    assert _coverage(outcomes, law) == pytest.approx(0.9, abs=0.005)


def test_nine_of_ten_also_while_all_grows() -> None:
    rng = random.Random(6)
    outcomes = [rng.lognormvariate(0.0, 0.3) * (1 + n / 4_000) for n in range(4_000)]
    assert _coverage(outcomes, 1.0) == pytest.approx(0.9, abs=0.01)


@given(st.lists(st.tuples(finite, finite), max_size=60))
def test_the_coverage_is_bound_by_how_far_the_factor_went(pairs: list[tuple[float, float]]) -> None:
    """As long as the bound is not met, misses - a tenth of all = the way of the factor / STEP."""
    log_factor, misses = 0.0, 0
    for number, (predicted, observed) in enumerate(pairs, start=1):
        log_factor = tracked(log_factor, predicted=predicted, observed=observed)
        misses += observed > predicted
        assert abs(log_factor) <= BOUND
        if abs(log_factor) == BOUND:
            return
        assert misses - 0.1 * number == pytest.approx(log_factor / STEP, abs=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="cannot calibrate"):
        tracked(0.0, predicted=value, observed=1.0)
