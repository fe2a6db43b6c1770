"""Learning how long a request takes on a worker."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.predict_round import Size, p90_ms
from scheduler.predict_service import (
    PEAK_DECAY_S,
    ServiceHistory,
    ServicePrior,
    estimate,
    fit,
    newcomer_prior,
    observed,
    peak_ewma,
)
from scheduler.reliability import Reliability

PRIOR = ServicePrior(base_ms=400.0, per_token_ms=25.0, tokens=64.0)
sizes = st.integers(0, 100_000)
times = st.floats(0.0, 1e8)


def _learn(pairs, prior=PRIOR, history=None, keep=0.97) -> ServiceHistory:
    history = history or ServiceHistory()
    for at_s, (tokens, service_ms) in enumerate(pairs):
        history = observed(
            history,
            prior,
            tokens=tokens,
            service_ms=service_ms,
            at_s=float(at_s),
            p90_ms=0.0,
            keep=keep,
        )
    return history


def _law(rng, count, base_ms, per_token_ms, sigma=0.1):
    for _ in range(count):
        tokens = rng.randrange(1, 400)
        yield tokens, (base_ms + per_token_ms * tokens) * rng.lognormvariate(-(sigma**2) / 2, sigma)


def test_a_newcomer_has_the_prior() -> None:
    newcomer = estimate(ServiceHistory(), PRIOR, Reliability(), now_s=0.0, load_ms=7.0)
    assert newcomer.base_ms == pytest.approx(400.0)
    assert newcomer.per_token_ms == pytest.approx(25.0)
    assert (newcomer.sigma, newcomer.samples) == (pytest.approx(0.5), 0)
    assert (newcomer.ewma_ms, newcomer.p90_factor, newcomer.load_ms) == (0.0, 1.0, 7.0)


def test_fixed_part_and_time_per_token_are_found() -> None:
    fitted = fit(_learn(_law(random.Random(1), 300, 800.0, 12.0)), PRIOR)
    assert fitted.base_ms == pytest.approx(800.0, rel=0.15)
    assert fitted.per_token_ms == pytest.approx(12.0, rel=0.1)
    assert fitted.sigma == pytest.approx(0.15, abs=0.06)


def test_a_worker_that_becomes_slower_is_believed() -> None:
    rng = random.Random(2)
    fast = _learn(_law(rng, 200, 100.0, 10.0))
    slow = _learn(_law(rng, 80, 400.0, 40.0), history=fast)
    assert fit(slow, PRIOR).mean_ms(200) == pytest.approx(400 + 40 * 200, rel=0.2)


def test_a_single_outlier_changes_little_and_many_change_all() -> None:
    rng = random.Random(3)
    known = _learn(_law(rng, 100, 500.0, 20.0))
    before_ms = fit(known, PRIOR).mean_ms(100)
    once = _learn([(100, 100 * before_ms)], history=known)
    assert fit(once, PRIOR).mean_ms(100) < 1.1 * before_ms
    often = _learn([(100, 100 * before_ms)] * 100, history=known)
    assert fit(often, PRIOR).mean_ms(100) > 50 * before_ms


def test_equal_lengths_are_learnt_at_that_length() -> None:
    fitted = fit(_learn([(64, 3_000.0)] * 100), PRIOR)
    assert fitted.mean_ms(64) == pytest.approx(3_000.0, rel=0.03)
    assert fitted.base_ms >= 0.0
    assert fitted.per_token_ms > 0.0


def test_outputs_without_tokens_are_learnt_as_a_fixed_part() -> None:
    fitted = fit(_learn([(0, 30.0)] * 100), PRIOR)
    assert fitted.mean_ms(0) == pytest.approx(30.0, rel=0.3)


@pytest.mark.parametrize("off", [0.01, 0.1, 10.0, 100.0])
def test_a_wrong_prior_is_overcome_at_either_side(off: float) -> None:
    wrong = ServicePrior(400.0 * off, 25.0 * off, 64.0)
    fitted = fit(_learn(_law(random.Random(4), 60, 400.0, 25.0), wrong), wrong)
    assert fitted.mean_ms(100) == pytest.approx(2_900.0, rel=0.5 if off == 100.0 else 0.15)


def test_the_level_of_the_prior_is_forgotten() -> None:
    wrong = ServicePrior(40_000.0, 2_500.0, 64.0)
    fitted = fit(_learn(_law(random.Random(4), 200, 400.0, 25.0), wrong), wrong)
    assert fitted.mean_ms(100) == pytest.approx(2_900.0, rel=0.1)


@given(st.lists(st.tuples(sizes, times), max_size=60), st.floats(0.1, 1.0))
def test_whatever_comes_the_fit_is_finite_and_not_negative(pairs, keep) -> None:
    fitted = fit(_learn(pairs, keep=keep), PRIOR)
    for value in (fitted.base_ms, fitted.per_token_ms, fitted.sigma, fitted.mean_ms(100)):
        assert math.isfinite(value)
        assert value >= 0.0
    means = [fitted.mean_ms(tokens) for tokens in (0, 1, 10, 1_000)]
    assert all(less <= more for less, more in pairwise(means))


def test_a_missed_p90_raises_it_and_a_held_one_lowers_it() -> None:
    held = observed(ServiceHistory(), PRIOR, tokens=10, service_ms=1.0, at_s=0.0, p90_ms=2.0)
    missed = observed(ServiceHistory(), PRIOR, tokens=10, service_ms=3.0, at_s=0.0, p90_ms=2.0)
    assert held.log_factor == pytest.approx(-0.01)
    assert missed.log_factor == pytest.approx(0.09)
    of = {
        name: estimate(history, PRIOR, Reliability(), now_s=0.0)
        for name, history in (("held", held), ("missed", missed))
    }
    size = Size(32.0, 0.5)
    assert p90_ms(of["missed"], size) > p90_ms(of["held"], size)


def test_a_peak_is_followed_at_once_and_fades() -> None:
    assert peak_ewma(100.0, 900.0, 0.0) == 900.0
    faded = peak_ewma(900.0, 100.0, PEAK_DECAY_S)
    assert faded == pytest.approx(100.0 + 800.0 * math.exp(-1.0))
    assert peak_ewma(900.0, 100.0, -5.0) == 900.0
    history = _learn([(64, 1_000.0)] * 50 + [(64, 9_000.0)])
    now = [estimate(history, PRIOR, Reliability(), now_s=50.0 + s).ewma_ms for s in (0, 60, 6_000)]
    assert 9_000.0 <= now[0] <= 9_000.0 * 2 ** (1 / 8)
    assert now[0] > now[1] > now[2] == 0.0


def test_time_alone_seldom_changes_an_estimate() -> None:
    """Rounds look again at a worker whose estimate is another."""
    calm = _learn([(64, 1_000.0)] * 50)
    shaken = _learn([(64, 9_000.0)], history=calm)
    for history, most in ((calm, 1), (shaken, 30)):
        seen = {estimate(history, PRIOR, Reliability(), now_s=50.0 + s).ewma_ms for s in range(600)}
        assert len(seen) <= most


def test_a_newcomer_is_taken_for_what_the_others_are() -> None:
    rng = random.Random(5)
    known = [_learn(_law(rng, 100, 50.0, speed)) for speed in (5.0, 6.0, 7.0)]
    prior = newcomer_prior(known, PRIOR)
    assert prior.per_token_ms == pytest.approx(6.0, rel=0.15)
    assert newcomer_prior([], PRIOR) == PRIOR
    assert newcomer_prior([ServiceHistory()], PRIOR).per_token_ms == pytest.approx(25.0)


def test_the_time_of_a_typical_request_is_a_prior() -> None:
    prior = ServicePrior.from_mean(2_000.0, 100.0)
    assert prior.base_ms + prior.per_token_ms * 100.0 == pytest.approx(2_000.0)
    assert ServicePrior.from_mean(2_000.0, 0.0).per_token_ms == pytest.approx(1_600.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": -1},
        {"service_ms": math.nan},
        {"service_ms": math.inf},
        {"service_ms": -1.0},
        {"keep": 0.0},
        {"keep": 1.5},
        {"p90_ms": math.inf},
    ],
    ids=str,
)
def test_impossible_observations_are_refused(wrong) -> None:
    values = {"tokens": 1, "service_ms": 1.0, "at_s": 0.0, "p90_ms": 1.0, **wrong}
    with pytest.raises(ValueError, match="cannot learn"):
        observed(ServiceHistory(), PRIOR, **values)
