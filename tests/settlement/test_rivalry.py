"""The chance to be first, and the waits that follow from it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inferd.settlement.rivalry import (
    LEAST_LOST,
    MEMORY_BLOCKS,
    MOST_LOST,
    WIDEST_BLOCKS,
    Outcomes,
    Standing,
    standing,
)

_BPS = 10_000
_HEAD = 10_000
outcomes = st.builds(
    Outcomes,
    st.integers(_HEAD - MEMORY_BLOCKS, _HEAD),
    st.integers(0, 100),
    st.integers(0, 100),
)
histories = st.lists(outcomes, max_size=20)
words = st.binary(min_size=20, max_size=32)


@given(st.lists(st.builds(Outcomes, st.integers(0, _HEAD), st.integers(0, 100), st.just(0))))
def test_without_rivals_it_costs_nothing(recent: list[Outcomes]) -> None:
    assert standing(recent, _HEAD) == Standing(_BPS, 0)
    assert Standing(_BPS, 0).expected_wei(10**18 + 1) == 10**18 + 1


@given(histories, outcomes)
def test_a_loss_widens_the_window_and_a_win_narrows_it(
    recent: list[Outcomes], more: Outcomes
) -> None:
    before = standing(recent, _HEAD)
    lost = standing([*recent, Outcomes(more.block, 0, more.lost)], _HEAD)
    won = standing([*recent, Outcomes(more.block, more.won, 0)], _HEAD)
    assert lost.window_blocks >= before.window_blocks >= won.window_blocks
    assert lost.chance_bps <= before.chance_bps <= won.chance_bps
    assert 0 <= lost.chance_bps <= _BPS
    assert lost.window_blocks <= WIDEST_BLOCKS


@given(histories, st.permutations(range(20)))
def test_the_order_says_nothing(recent: list[Outcomes], order: list[int]) -> None:
    shuffled = [recent[index] for index in order if index < len(recent)]
    one, other = standing(recent, _HEAD), standing(shuffled, _HEAD)
    assert abs(one.chance_bps - other.chance_bps) <= 1
    assert abs(one.window_blocks - other.window_blocks) <= 1


@given(histories, st.integers(0, 10 * MEMORY_BLOCKS))
def test_what_is_long_ago_is_forgotten(recent: list[Outcomes], blocks: int) -> None:
    now, later = standing(recent, _HEAD), standing(recent, _HEAD + blocks)
    assert later.chance_bps >= now.chance_bps
    if blocks >= 2 * MEMORY_BLOCKS:
        assert later.window_blocks == 0


def test_where_the_window_ends() -> None:
    assert standing([Outcomes(_HEAD, 96, 1)], _HEAD).window_blocks == 0  # 1 of 101 is below 1 %
    assert standing([Outcomes(_HEAD, 95, 1)], _HEAD).window_blocks > 0
    assert standing([Outcomes(_HEAD, 32, 4)], _HEAD).window_blocks == WIDEST_BLOCKS
    assert standing([Outcomes(_HEAD, 0, 1000)], _HEAD).window_blocks == WIDEST_BLOCKS
    assert LEAST_LOST < MOST_LOST


@given(words, words, st.integers(1, 64))
def test_a_wait_is_below_the_window_and_never_shorter_in_a_wider_one(
    commitment: bytes, poster: bytes, window: int
) -> None:
    wait = Standing(_BPS, window).wait_blocks(commitment, poster)
    assert 0 <= wait < window
    assert wait <= Standing(_BPS, window + 1).wait_blocks(commitment, poster)
    assert Standing(_BPS, 0).wait_blocks(commitment, poster) == 0


def test_two_posters_draw_the_same_block_once_in_a_window() -> None:
    window, drawn = 12, 3_000
    ours = Standing(_BPS, window)
    same = sum(
        ours.wait_blocks(n.to_bytes(32, "big"), b"a" * 20)
        == ours.wait_blocks(n.to_bytes(32, "big"), b"b" * 20)
        for n in range(drawn)
    )
    assert abs(same / drawn - 1 / window) < 0.02


def test_two_that_learn_from_each_other_come_to_rest_below_the_stated_share() -> None:
    """A race in which nobody sees the other's transactions before they are mined: what is ready in
    a block is posted by whoever draws less, and by both where they draw the same."""
    histories: list[list[Outcomes]] = [[], []]
    sent = lost = 0
    for block in range(2_000):
        standings = [standing(each[-MEMORY_BLOCKS:], block) for each in histories]
        commitment = block.to_bytes(32, "big")
        waits = [
            one.wait_blocks(commitment, bytes([number]) * 20)
            for number, one in enumerate(standings)
        ]
        first = block % 2 if waits[0] == waits[1] else waits.index(min(waits))
        histories[first].append(Outcomes(block, 1, 0))
        if waits[0] == waits[1]:
            histories[1 - first].append(Outcomes(block, 0, 1))
        if block >= 200:  # they have learnt
            sent += 1 + (waits[0] == waits[1])
            lost += waits[0] == waits[1]
    assert 0.02 < lost / sent < MOST_LOST
