"""What is calibrated is what a round decides on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import kinds
from scheduler.model import ServiceEstimate, WorkerView
from scheduler.plan import plan
from scheduler.planner import Changes, Planner
from scheduler.predict_round import p90_ms, size_of
from tests.scheduler.make import model, request, snapshot, worker


@given(
    st.floats(0.0, 2_000.0),
    st.floats(0.0, 60.0),
    st.floats(0.0, 1.2),
    st.floats(0.2, 4.0),
    st.floats(0.0, 500.0),
    st.floats(0.0, 1.2),
)
def test_the_p90_of_a_decision_is_the_one_that_is_judged(
    base_ms, per_token_ms, sigma, p90_factor, tokens_mean, tokens_sigma
) -> None:
    service = ServiceEstimate(base_ms, per_token_ms, sigma, p90_factor=p90_factor)
    size = size_of(tokens_mean, tokens_sigma)
    (decision,) = plan(
        snapshot(
            (request(tokens_mean=tokens_mean, tokens_sigma=tokens_sigma),),
            (worker(service={model(): service}),),
        )
    ).assigned
    assert decision.numbers.p90_ms == pytest.approx(p90_ms(service, size), rel=1e-9)
    assert size.tokens >= tokens_mean * (1 - 1e-9)
    assert size.sigma >= tokens_sigma - 1e-9


def test_what_was_measured_since_counts_in_the_next_round() -> None:
    def serving(p90_factor: float) -> WorkerView:
        service = ServiceEstimate(1_000.0, sigma=0.5, p90_factor=p90_factor)
        return worker(service={model(): service})

    planner = Planner()
    moment = snapshot((), ()).moment
    planner.apply(Changes(added=[request()], workers=[serving(1.0)]))
    before = planner.plan(moment).assigned[0].numbers.p90_ms
    planner.apply(Changes(workers=[serving(2.0)]))
    after = planner.plan(moment).assigned[0].numbers.p90_ms
    assert before is not None
    assert after == pytest.approx(2.0 * before)


@given(
    st.floats(0.0, 1e25) | st.integers(0, 300).map(lambda n: 2.0 ** (n / 8)), st.floats(0.0, 9.0)
)
def test_one_prediction_has_the_class_that_a_column_of_them_has(tokens_mean, tokens_sigma) -> None:
    codes = kinds.kind_codes(
        np.zeros(1, np.int64), np.array([tokens_mean]), np.array([tokens_sigma])
    )
    (tokens,), (sigma_class,) = kinds.tokens_of(codes), kinds.sigma_class_of(codes)
    assert size_of(tokens_mean, tokens_sigma) == (tokens, sigma_class / kinds.PER_SIGMA)


@given(st.floats(0.0, 3.0), st.floats(0.0, 2.0))
def test_one_p90_factor_is_that_of_a_column(sigma_worker, sigma_tokens) -> None:
    (column,) = kinds.p90_factors(np.array([sigma_worker]), sigma_tokens)
    assert kinds.p90_factor(sigma_worker, sigma_tokens) == pytest.approx(column, abs=2e-9)
