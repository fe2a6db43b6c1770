"""When named inputs are tried, and when they are given up."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from inferd.inputs.tries import Wanted, due, next_try_s, wake_at_s

_NOW_S = 1_700_000_000.0
_jitter = st.floats(0, 1, exclude_max=True)
_left_s = st.floats(-10, 1e6)


@st.composite
def _wanted(draw: st.DrawFn) -> Wanted:
    host = draw(st.sampled_from(["a.test", "b.test", "c.test", ""]))
    content = draw(st.binary(min_size=1, max_size=2))
    return Wanted(
        key=content,
        input=bytes(32) + (f"https://{host}/".encode() if host else b"data:,x"),
        deadline_s=int(_NOW_S) + draw(st.integers(1, 100)),
        newest_request=1,
        next_try_s=_NOW_S + draw(st.sampled_from([-1.0, 0.0, 1.0, 7.0])),
    )


@given(st.integers(1, 200), st.integers(1, 100), _left_s, _jitter)
def test_a_next_try_is_later_in_time_and_never_too_often(
    tries: int, most: int, left_s: float, jitter: float
) -> None:
    latest_s = _NOW_S + left_s
    at_s = next_try_s(tries, max_tries=most, now_s=_NOW_S, latest_s=latest_s, jitter=jitter)
    if at_s is None:
        # Given up: for the number of tries, or because the longest pause would be too late.
        assert tries >= most or left_s <= 60
    else:
        assert tries < most
        assert _NOW_S < at_s < latest_s
        assert at_s - _NOW_S <= 60


@given(st.integers(1, 50), _left_s, st.lists(_jitter, min_size=50, max_size=50))
def test_tries_end(most: int, left_s: float, jitters: list[float]) -> None:
    now_s, latest_s, tries = _NOW_S, _NOW_S + left_s, 0
    for jitter in jitters:
        tries += 1
        at_s = next_try_s(tries, max_tries=most, now_s=now_s, latest_s=latest_s, jitter=jitter)
        if at_s is None:
            break
        now_s = at_s
    else:
        raise AssertionError("it is tried for ever")
    assert tries <= most


@given(
    st.lists(_wanted(), max_size=20, unique_by=lambda one: one.key),
    st.data(),
    st.integers(1, 6),
    st.integers(1, 3),
)
def test_what_begins_is_due_within_the_limits_and_nearest_its_deadline(
    wanted: list[Wanted], data: st.DataObject, at_once: int, per_host: int
) -> None:
    running = data.draw(st.lists(st.sampled_from(wanted), unique=True)) if wanted else []
    running = due(running, (), now_s=_NOW_S, at_once=at_once, per_host=per_host)
    chosen = due(wanted, running, now_s=_NOW_S, at_once=at_once, per_host=per_host)
    together = [*running, *chosen]
    assert len({one.key for one in together}) == len(together)
    assert len(together) <= at_once
    assert all(one.next_try_s <= _NOW_S for one in chosen)
    hosts = Counter(one.host for one in together)
    assert all(count <= per_host for count in hosts.values())
    for left in wanted:
        if left in together or left.next_try_s > _NOW_S:
            continue
        # There is no room, or its host has as many as it may, none of them with less haste.
        assert len(together) == at_once or hosts[left.host] == per_host
        assert all(
            one.deadline_s <= left.deadline_s
            for one in chosen
            if len(together) < at_once and one.host == left.host
        )


def test_it_wakes_for_the_next_that_is_not_due() -> None:
    def at(offset_s: float) -> Wanted:
        return Wanted(b"", b"", 0, 0, next_try_s=_NOW_S + offset_s)

    assert wake_at_s([at(-5), at(3), at(2)], _NOW_S) == _NOW_S + 2
    assert wake_at_s([at(-5), at(0)], _NOW_S) is None
