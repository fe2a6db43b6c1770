"""The exact assignment of a round, against all assignments of small ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import flow
from scheduler.flow import Seats

Options = tuple[dict[int, float], ...]
Chosen = tuple[int | None, ...]


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Options, dict[int, Seats]]:
    workers = range(draw(st.integers(1, 3)))
    seats = {}
    for worker in workers:
        slots = draw(st.integers(1, 2))
        seats[worker] = Seats(draw(st.integers(0, slots)), slots)
    mean_ms = st.integers(1, 6).map(lambda n: n * 100.0)
    options = tuple(
        {worker: draw(mean_ms) for worker in workers if draw(st.booleans())}
        for _ in range(draw(st.integers(0, 5)))
    )
    return options, seats


def possible(options: Options, seats: Mapping[int, Seats]) -> Iterator[Chosen]:
    for chosen in product(*((None, *option) for option in options)):
        if all(chosen.count(worker) <= seat.slots - seat.used for worker, seat in seats.items()):
            yield chosen


def completions_us(chosen: Chosen, options: Options, seats: Mapping[int, Seats]) -> int:
    """The least sum over the orders in which a worker's requests can take its slots."""
    total = 0
    for worker, (used, slots) in seats.items():
        means = sorted(
            (option[worker] for option, one in zip(options, chosen, strict=True) if one == worker),
            reverse=True,
        )
        total += sum(
            int(mean_ms * 1000.0 * (slots + used + taken) / slots)
            for taken, mean_ms in enumerate(means)
        )
    return total


def served(chosen: Sequence[int | None]) -> tuple[bool, ...]:
    return tuple(worker is not None for worker in chosen)


@given(rounds())
def test_serves_whom_the_order_prefers_and_finishes_soonest(
    drawn: tuple[Options, dict[int, Seats]],
) -> None:
    options, seats = drawn
    chosen = flow.assign(options, seats)
    assert chosen is not None
    everything = list(possible(options, seats))
    assert chosen in everything
    # True sorts above False: the first in the order counts most.
    best = max(served(one) for one in everything)
    assert served(chosen) == best
    least_us = min(completions_us(one, options, seats) for one in everything if served(one) == best)
    assert completions_us(chosen, options, seats) == least_us


def test_a_slot_is_left_to_the_only_request_that_can_use_it() -> None:
    options = ({1: 100.0, 2: 200.0}, {1: 100.0})
    assert flow.assign(options, {1: Seats(0, 1), 2: Seats(0, 1)}) == (2, 1)


def test_the_same_round_gives_the_same_assignment() -> None:
    options = tuple(dict.fromkeys(range(4), 100.0) for _ in range(6))
    seats = {worker: Seats(0, 1) for worker in range(4)}
    first = flow.assign(options, seats)
    assert first is not None
    assert served(first) == (True, True, True, True, False, False)
    turned = {worker: seats[worker] for worker in reversed(range(4))}
    assert flow.assign(tuple(dict(reversed(one.items())) for one in options), turned) == first


def test_too_many_arcs_are_left_to_the_heaps() -> None:
    options = ({1: 100.0, 2: 200.0}, {1: 100.0})
    seats = {1: Seats(0, 2), 2: Seats(0, 1)}
    assert flow.assign(options, seats, max_arcs=9) is not None
    assert flow.assign(options, seats, max_arcs=8) is None


def test_costs_beyond_64_bits_are_left_to_the_heaps() -> None:
    options = tuple({1: 1e9} for _ in range(2_000))
    assert flow.assign(options, {1: Seats(0, 1)}) is None


def test_a_full_round_needs_no_solver() -> None:
    assert flow.assign(({1: 100.0}, {}), {1: Seats(1, 1)}) == (None, None)


def test_without_or_tools_the_heaps_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flow.available()
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    monkeypatch.setitem(sys.modules, "ortools.graph.python.min_cost_flow", None)
    assert not flow.available()
    assert flow.assign(({1: 100.0},), {1: Seats(0, 1)}) is None
