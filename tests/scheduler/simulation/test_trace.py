"""Recorded traces, and the law that stands in for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulation.trace import (
    CODE,
    CONVERSATION,
    TraceError,
    TraceLaw,
    TraceRow,
    drawn,
    fit,
    parse_azure,
    window,
)

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_reads_the_azure_format_in_order_of_arrival() -> None:
    lines = [
        HEADER,
        "2023-11-16 18:15:50.9951690,396,109\r\n",
        "2023-11-16 18:15:46.6805900,374,44\n",
        "\n",
    ]
    first, second = parse_azure(lines)
    assert first == TraceRow(0.0, 374, 44)
    assert second.arrival_s == pytest.approx(4.314579)
    assert (second.context_tokens, second.generated_tokens) == (396, 109)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "line 1 is '', not the header"),
        (["a,b,c"], "line 1 is 'a,b,c', not the header TIMESTAMP"),
        ([HEADER], "no request"),
        ([HEADER, "2023-11-16 18:15:50,1"], "line 2 is"),
        ([HEADER, "2023-11-16 18:15:50,1,2", "yesterday,1,2"], "line 3 is 'yesterday,1,2'"),
        ([HEADER, "2023-11-16 18:15:50,1.5,2"], "two numbers of tokens"),
        ([HEADER, "2023-11-16 18:15:50,1,-2"], "line 2 has a number of tokens that"),
    ],
)
def test_a_bad_line_is_named(lines: list[str], words: str) -> None:
    with pytest.raises(TraceError, match=words):
        parse_azure(lines)


@pytest.mark.parametrize("law", [CONVERSATION, CODE])
def test_what_is_drawn_from_a_law_fits_it(law: TraceLaw) -> None:
    rows = drawn(law, 40_000, np.random.default_rng(1))
    found = fit(rows)
    assert rows[0].arrival_s == 0.0
    assert found.rate_per_s == pytest.approx(law.rate_per_s, rel=0.25)
    assert found.gap_cv == pytest.approx(law.gap_cv, rel=0.1)
    assert found.generated_log_mean == pytest.approx(law.generated_log_mean, abs=0.05)
    assert found.generated_log_sigma == pytest.approx(law.generated_log_sigma, rel=0.1)
    assert max(row.generated_tokens for row in rows) <= law.generated_max
    assert min(row.generated_tokens for row in rows) >= 1


def test_a_law_needs_gaps() -> None:
    with pytest.raises(ValueError, match="three requests at different times"):
        fit([TraceRow(0.0, 1, 1), TraceRow(0.0, 1, 1), TraceRow(0.0, 1, 1)])


def test_the_same_seed_draws_the_same_trace() -> None:
    one, other = (drawn(CONVERSATION, 50, np.random.default_rng(7)) for _ in range(2))
    assert one == other


@given(st.integers(1, 30), st.integers(0, 100), st.integers(1, 10))
def test_a_window_goes_round_the_trace(count: int, start: int, size: int) -> None:
    rows = tuple(TraceRow(float(n), n, n) for n in range(size))
    chosen = window(rows, count, start)
    assert [row.context_tokens for row in chosen] == [(start + n) % size for n in range(count)]
    gap_s = 1.0 if size > 1 else 0.0
    assert [row.arrival_s for row in chosen] == pytest.approx([n * gap_s for n in range(count)])


def test_no_window_of_nothing() -> None:
    with pytest.raises(ValueError, match="no request"):
        window((), 1, 0)
