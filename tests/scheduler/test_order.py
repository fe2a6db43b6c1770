"""Keys by which a round goes: those of two orders in one column."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.order import oldest_first, stable_order

_AGES = st.integers(0, 2) | st.integers(2**31 - 2, 2**31)
_PLACES = st.integers(0, 2) | st.integers(2**40 - 2, 2**40)


@example([(2**31, 1), (2**31, 0), (0, 2**40)])
@given(st.lists(st.tuples(_AGES, _PLACES), max_size=20))
def test_the_oldest_go_first_and_then_the_least_place_however_large_both_are(
    rows: list[tuple[int, int]],
) -> None:
    age, place = (np.array([row[at] for row in rows], np.float64) for at in (0, 1))
    ordered = stable_order(oldest_first(age, place)).tolist()
    assert ordered == sorted(range(len(rows)), key=lambda at: (-rows[at][0], rows[at][1]))


@given(st.lists(st.integers(-3, 3) | st.floats(-1e9, 1e9), max_size=40))
def test_the_order_is_that_of_a_stable_sort(keys: list[float]) -> None:
    column = np.array(keys, np.float64)
    assert stable_order(column).tolist() == np.argsort(column, kind="stable").tolist()
