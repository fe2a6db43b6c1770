"""Learning how many tokens an output has."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.predict_length import (
    BINS,
    EDGES,
    LengthHistory,
    bin_of,
    law,
    observed,
)
from scheduler.predict_round import Size

lengths = st.integers(0, 300_000)


def _learn(outputs, history=None, keep=0.99) -> LengthHistory:
    history = history or LengthHistory.empty()
    for tokens, max_tokens in outputs:
        history = observed(history, tokens=tokens, max_tokens=max_tokens, p90_tokens=0.0, keep=keep)
    return history


def _p90(prediction) -> float:
    return Size(*prediction).p90_tokens


@given(lengths)
def test_a_bin_holds_what_is_between_its_ends(tokens: int) -> None:
    at = bin_of(tokens)
    assert tokens <= EDGES[at] or at == BINS - 1
    assert at == 0 or tokens > EDGES[at - 1]


def test_mean_and_p90_are_those_of_what_was_seen() -> None:
    rng = random.Random(1)
    outputs = [round(rng.lognormvariate(5.0, 0.6)) for _ in range(4_000)]
    found = law([_learn(((one, 0) for one in outputs), keep=1.0)]).predict(0)
    assert found.mean == pytest.approx(np.mean(outputs), rel=0.03)
    assert _p90(found) == pytest.approx(np.quantile(outputs, 0.9), rel=0.03)
    assert found.sigma == pytest.approx(0.6, abs=0.1)


def test_without_observations_the_limit_decides() -> None:
    nothing = law([])
    assert nothing.predict(16).mean == pytest.approx(16, rel=0.05)
    assert _p90(nothing.predict(16)) == pytest.approx(16)
    assert nothing.predict(0).mean == pytest.approx(128 * math.exp(0.5), rel=0.05)


def test_an_output_that_was_cut_says_that_it_would_have_been_longer() -> None:
    """A model that fills whatever it is given must not be taken for one that ends at 16."""
    filling = law([_learn([(16, 16)] * 200)])
    assert filling.predict(16).mean == pytest.approx(16, rel=0.01)
    assert filling.predict(64).mean > 48
    ending = law([_learn([(16, 0)] * 200)])
    assert ending.predict(64).mean < 20


def test_cut_and_ended_outputs_together_give_the_law_of_both() -> None:
    """Kaplan-Meier: half of all are cut at random, and the estimate stays that of all lengths."""
    rng = random.Random(2)
    lengths_ = [round(rng.lognormvariate(5.0, 0.5)) for _ in range(6_000)]
    limits = [round(rng.lognormvariate(5.0, 0.5)) for _ in lengths_]
    seen = [(min(one, limit), limit) for one, limit in zip(lengths_, limits, strict=True)]
    found = law([_learn(seen, keep=1.0)]).predict(0)
    assert found.mean == pytest.approx(np.mean(lengths_), rel=0.05)
    naive = np.mean([tokens for tokens, _ in seen])
    assert naive < 0.8 * found.mean


def test_a_requester_leans_on_the_model_until_it_is_known() -> None:
    model = _learn([(100, 0)] * 200)
    means = [
        law([model, _learn([(800, 0)] * seen)]).predict(0).mean for seen in (0, 1, 4, 16, 64, 256)
    ]
    assert all(earlier < later for earlier, later in pairwise(means))
    assert means[0] == pytest.approx(100, rel=0.15)
    assert means[-1] > 700


def test_the_past_is_forgotten() -> None:
    assert law([_learn([(1_000, 0)] * 500 + [(50, 0)] * 500)]).predict(0).mean < 60


@given(
    st.lists(st.tuples(lengths, st.integers(0, 5_000)), max_size=40),
    st.lists(st.tuples(lengths, st.integers(0, 5_000)), max_size=10),
    st.integers(0, 200_000),
    st.floats(-1.5, 1.5),
)
def test_no_prediction_is_beyond_the_limit(model, tenant, max_tokens, log_factor) -> None:
    def cut(outputs):
        return [(min(t, m) if m else t, m) for t, m in outputs]

    histories = [
        _learn(cut(model)),
        _learn(cut(tenant), LengthHistory.empty(log_factor)),
    ]
    found = law(histories).predict(max_tokens)
    limit = max_tokens or float(EDGES[-1])
    assert 1.0 <= found.mean <= limit
    assert 0.0 <= found.sigma <= 1.2816
    assert _p90(found) <= limit * (1 + 1e-9)


@given(st.lists(st.tuples(lengths, st.just(0)), max_size=40), st.integers(1, 4_000))
def test_a_higher_limit_never_means_less(outputs, max_tokens) -> None:
    learnt = law([_learn(outputs)])
    less, more = learnt.predict(max_tokens), learnt.predict(max_tokens + 1)
    assert less.mean <= more.mean * (1 + 1e-9)
    assert _p90(less) <= _p90(more) * (1 + 1e-9)


def test_only_a_p90_below_the_limit_is_judged() -> None:
    def after(p90_tokens: float, max_tokens: int) -> float:
        return observed(
            LengthHistory.empty(), tokens=50, max_tokens=max_tokens, p90_tokens=p90_tokens
        ).log_factor

    assert after(40.0, 100) == pytest.approx(0.09)
    assert after(60.0, 100) == pytest.approx(-0.01)
    assert after(100.0, 100) == 0.0
    assert after(0.0, 100) == 0.0


@pytest.mark.parametrize(
    "wrong", [{"tokens": -1}, {"max_tokens": -1}, {"keep": 0.0}, {"keep": 2.0}], ids=str
)
def test_impossible_observations_are_refused(wrong) -> None:
    values = {"tokens": 1, "max_tokens": 1, "p90_tokens": 1.0, **wrong}
    with pytest.raises(ValueError, match="cannot learn"):
        observed(LengthHistory.empty(), **values)
