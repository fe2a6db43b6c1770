"""The gas model learnt from receipts: exact where they tell, the prior where they do not."""

from __future__ import annotations

from dataclasses import astuple
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gas import INTRINSIC_GAS
from scheduler.gas_fit import GasObservation, fit_gas_model
from scheduler.model import GasModel

PRIOR = GasModel(45_000, 14_000, 5_500, 4_300, 5_000)


def _seen(gas: GasModel, groups, results, stored=0, callbacks=0, off=0) -> GasObservation:
    used = gas.of(groups, results, stored=stored, callbacks=callbacks) + off
    return GasObservation(groups, results, used, stored, callbacks)


@st.composite
def mixtures(draw, least=1, most=40):
    """Posts of any groups, sizes and deliveries, as (groups, results, stored, callbacks)."""
    posts = []
    for _ in range(draw(st.integers(least, most))):
        results = draw(st.integers(1, 120))
        stored = draw(st.integers(0, results))
        callbacks = draw(st.integers(0, results - stored))
        posts.append((draw(st.integers(1, min(results, 8))), results, stored, callbacks))
    return posts


models = st.builds(
    GasModel,
    st.integers(25_000, 150_000),
    st.integers(5_000, 40_000),
    st.integers(2_000, 20_000),
    st.integers(2_000, 15_000),
    st.integers(2_000, 15_000),
)


@given(models, mixtures(least=1, most=30))
def test_it_predicts_the_posts_it_has_seen_whatever_their_mixture(planted, posts):
    """Few, equal, collinear, mixed: one half per cent, or the noise that receipts have."""
    model = fit_gas_model([_seen(planted, *post) for post in posts], PRIOR)
    for groups, results, stored, callbacks in posts:
        exact = planted.of(groups, results, stored=stored, callbacks=callbacks)
        fitted = model.of(groups, results, stored=stored, callbacks=callbacks)
        assert fitted == pytest.approx(exact, rel=0.005, abs=1_000)


@given(models, st.integers(0, 2**32))
def test_many_mixed_posts_give_the_coefficients(planted, seed):
    rng = Random(seed)
    posts = []
    for _ in range(150):
        results = rng.randint(1, 100)
        stored = rng.randint(0, results)
        callbacks = rng.randint(0, results - stored)
        posts.append(
            _seen(planted, rng.randint(1, 8), results, stored, callbacks, rng.randint(-300, 300))
        )
    fitted = fit_gas_model(posts, PRIOR)
    assert fitted.fixed_gas == pytest.approx(planted.fixed_gas, abs=1_000)
    assert fitted.per_group_gas == pytest.approx(planted.per_group_gas, abs=200)
    for name in ("per_result_gas", "per_stored_gas", "per_callback_gas"):
        assert getattr(fitted, name) == pytest.approx(getattr(planted, name), abs=30)


@given(models, mixtures(), st.randoms(use_true_random=False))
def test_the_order_of_the_observations_is_irrelevant(planted, posts, rng):
    observations = [_seen(planted, *post, off=rng.randint(-5_000, 20_000)) for post in posts]
    shuffled = rng.sample(observations, len(observations))
    assert fit_gas_model(shuffled, PRIOR) == fit_gas_model(observations, PRIOR)


@given(
    st.lists(
        st.builds(
            GasObservation,
            st.integers(1, 10),
            st.integers(1, 300),
            st.integers(0, 30_000_000),
            st.integers(0, 300),
            st.integers(0, 300),
        ),
        max_size=20,
    )
)
def test_whatever_was_seen_coefficients_stay_near_their_priors(observations):
    fitted = fit_gas_model(observations, PRIOR)
    assert fitted.fixed_gas >= INTRINSIC_GAS
    for got, prior in list(zip(astuple(fitted), astuple(PRIOR), strict=True))[1:]:
        assert prior // 4 <= got <= prior * 4


def test_without_observations_it_is_the_prior():
    assert fit_gas_model([], PRIOR) == PRIOR


def test_one_post_moves_the_prior_no_further_than_it_tells():
    one = fit_gas_model([GasObservation(1, 1, 80_000)], PRIOR)
    assert one.of(1, 1) == pytest.approx(80_000, abs=100)
    assert PRIOR.fixed_gas < one.fixed_gas < 80_000
    assert (one.per_stored_gas, one.per_callback_gas) == (4_300, 5_000), "it tells nothing of these"


def test_posts_that_all_had_one_group_tell_the_sum_of_fixed_and_group():
    lines = [GasObservation(1, n, 70_000 + 5_000 * n) for n in (1, 5, 20)]
    model = fit_gas_model(lines, PRIOR)
    assert model.fixed_gas + model.per_group_gas == pytest.approx(70_000, abs=200)
    assert model.per_result_gas == pytest.approx(5_000, abs=20)
    # In proportion to how far each may be off.
    assert model.fixed_gas - PRIOR.fixed_gas > model.per_group_gas - PRIOR.per_group_gas > 0


def test_posts_that_stick_out_weigh_little():
    """Every tenth wrote a handful of fresh slots, one is nothing like the rest."""
    rng = Random(7)
    planted = GasModel(48_000, 12_000, 5_000, 4_000, 5_500)
    posts = []
    for number in range(60):
        results = rng.randint(1, 60)
        stored = rng.randint(0, results)
        off = 6 * 17_100 if number % 10 == 0 else rng.randint(-300, 300)
        posts.append(_seen(planted, rng.randint(1, 4), results, stored, off=off))
    posts.append(_seen(planted, 1, 40, off=3_000_000))
    model = fit_gas_model(posts, PRIOR)
    for groups, results, stored in ((1, 1, 0), (2, 30, 10), (4, 60, 60)):
        exact = planted.of(groups, results, stored=stored)
        assert model.of(groups, results, stored=stored) == pytest.approx(exact, rel=0.02)


def test_a_coefficient_at_its_bound_leaves_the_rest_to_the_others():
    falling = [
        GasObservation(1, 1, 90_000),
        GasObservation(1, 90, 70_000),
        GasObservation(2, 30, 95_000),
    ]
    model = fit_gas_model(falling, PRIOR)
    assert model.per_result_gas == PRIOR.per_result_gas // 4
    assert model.fixed_gas == INTRINSIC_GAS
