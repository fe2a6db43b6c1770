"""Learning how long a service takes."""

from __future__ import annotations

import random
from itertools import pairwise
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.estimates import ServicePrior, ServiceStats, estimate, observed, sigma_of
from scheduler.model import ServiceEstimate
from tests.scheduler.make import p90_of

PRIOR = ServicePrior(mean_ms=2_000, deviation_ms=2_000)


def _after(values, keep=0.98) -> ServiceStats:
    stats = ServiceStats()
    for value in values:
        stats = observed(stats, value, keep)
    return stats


def test_a_newcomer_has_the_prior():
    newcomer = estimate(ServiceStats(), PRIOR)
    assert newcomer.base_ms == pytest.approx(2_000)
    assert newcomer.sigma == pytest.approx(log(2) ** 0.5)
    assert newcomer.samples == 0


def test_without_forgetting_it_is_the_plain_mean():
    stats = _after([100, 200, 600], keep=1.0)
    assert (stats.count, stats.mean_ms) == (3.0, pytest.approx(300))
    assert stats.mean_square_ms2 == pytest.approx((100**2 + 200**2 + 600**2) / 3)


def test_the_past_is_forgotten_at_the_stated_rate():
    stats = _after([5_000] * 500 + [500] * 150)
    assert stats.count == pytest.approx(50, rel=0.01)
    assert stats.mean_ms == pytest.approx(500 + 4_500 * 0.98**150, rel=1e-3)
    assert estimate(stats, PRIOR).samples == 50


def test_observations_outweigh_the_prior_step_by_step():
    means = [estimate(_after([100] * n), PRIOR).base_ms for n in range(40)]
    assert all(later < earlier for earlier, later in pairwise(means))
    assert means[3] == pytest.approx(1_050, rel=0.05)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0])
def test_p90_covers_nine_of_ten_of_a_log_normal_service(sigma):
    rng = random.Random(3)
    draws = [rng.lognormvariate(7, sigma) for _ in range(20_000)]
    stats = _after(draws, keep=1.0)
    p90_ms = p90_of(estimate(stats, PRIOR))
    assert sum(draw <= p90_ms for draw in draws) / len(draws) == pytest.approx(0.9, abs=0.015)


@given(st.floats(1, 1e6), st.floats(0, 1e7), st.floats(0, 1e7))
def test_more_spread_never_promises_an_earlier_end(mean_ms, one, other):
    less, more = sorted((one, other))
    times = [
        p90_of(ServiceEstimate(mean_ms, sigma=sigma_of(mean_ms, deviation_ms)))
        for deviation_ms in (0.0, less, more)
    ]
    assert [mean_ms, *times] == sorted([mean_ms, *times])


def test_no_time_at_all():
    assert sigma_of(0.0, 0.0) == 0.0


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_impossible_times_are_refused(value):
    with pytest.raises(ValueError, match="cannot learn"):
        observed(ServiceStats(), value)
