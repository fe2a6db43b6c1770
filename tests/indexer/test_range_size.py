"""The width of the next range: what was answered goes in, a width comes out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexer.range_size import Next, RangeSize
from indexer.rpc.ranges import Meaning, Refusal

TOO_LARGE = Refusal(Meaning.TOO_LARGE)


def grown(size: RangeSize, times: int) -> RangeSize:
    for _ in range(times):
        size.answered(size.blocks, 0, 0.1)
    return size


def test_no_limit_met__doubles_up_to_the_widest() -> None:
    size = RangeSize()
    assert grown(size, 1).blocks == 128
    assert grown(size, 20).blocks == 100_000


def test_slow_answer_or_a_short_last_range__does_not_grow() -> None:
    size = RangeSize()
    size.answered(64, 0, 5.0)
    size.answered(63, 0, 0.1)
    assert size.blocks == 64


def test_many_logs__next_range_fills_a_transaction() -> None:
    size = grown(RangeSize(), 5)
    size.answered(2_048, 40_000, 0.5)
    assert size.blocks == 256


def test_named_limit__taken_and_never_exceeded() -> None:
    size = grown(RangeSize(), 6)
    assert size.refused(4_096, Refusal(Meaning.TOO_LARGE, 1_000, lasting=True)) is Next.AGAIN
    assert size.blocks == 1_000
    assert grown(size, 5_000).blocks == 1_000


def test_proposed_range__taken_and_outgrown_slowly() -> None:
    size = grown(RangeSize(), 6)
    assert size.refused(4_096, Refusal(Meaning.TOO_LARGE, 800)) is Next.AGAIN
    assert size.blocks == 800
    assert grown(size, 1).blocks == 900


def test_refused_without_a_proposal__back_to_what_was_answered() -> None:
    size = grown(RangeSize(), 1)
    assert size.refused(128, TOO_LARGE) is Next.AGAIN
    assert size.blocks == 64
    assert grown(size, 2).blocks == 81
    assert size.refused(81, TOO_LARGE) is Next.AGAIN
    assert size.blocks == 72, "half would be less than what it takes"
    assert size.refused(72, TOO_LARGE) is Next.AGAIN
    assert size.blocks == 36, "what it took before, it takes no more"
    assert grown(size, 2).blocks == 45
    assert size.refused(45, TOO_LARGE) is Next.AGAIN
    assert size.blocks == 40


def test_refused_width__tried_again_after_ever_more_answers() -> None:
    size = grown(RangeSize(), 1)
    size.refused(128, TOO_LARGE)
    assert grown(size, 15).blocks == 127
    assert grown(size, 1).blocks > 128
    size.refused(size.blocks, TOO_LARGE)
    refused = 127 + 127 // 8
    assert grown(size, 31).blocks < refused
    assert grown(size, 1).blocks >= refused


def test_proposal_wider_than_the_question__halved_instead() -> None:
    size = RangeSize()
    assert size.refused(64, Refusal(Meaning.TOO_LARGE, 2_000)) is Next.AGAIN
    assert size.blocks == 32


def test_proposal_of_what_was_asked__never() -> None:
    assert RangeSize().refused(64, Refusal(Meaning.TOO_LARGE, 64)) is Next.NEVER


def test_one_block_too_large__never() -> None:
    assert RangeSize().refused(1, TOO_LARGE) is Next.NEVER


def test_rate_limit__however_often__width_stays() -> None:
    size = RangeSize()
    for _ in range(1_000):
        assert size.refused(64, Refusal(Meaning.RATE_LIMITED)) is Next.LATER
    assert size.blocks == 64


def test_timeouts__waited_out_first_then_halved_and_soon_regained() -> None:
    size = grown(RangeSize(), 6)
    for _ in range(2):
        assert size.refused(4_096, Refusal(Meaning.TIMEOUT)) is Next.LATER
    assert size.blocks == 4_096
    assert size.refused(4_096, Refusal(Meaning.TIMEOUT)) is Next.LATER
    assert size.blocks == 2_048
    assert grown(size, 1).blocks == 4_096


def test_timeouts_between_answers__width_stays() -> None:
    size = RangeSize()
    for _ in range(100):
        size.refused(64, Refusal(Meaning.TIMEOUT))
        size.answered(63, 0, 0.1)
    assert size.blocks == 64


def test_unknown_words_again_and_again__narrowed_to_what_is_taken() -> None:
    size = RangeSize()
    while size.blocks > 1:
        assert size.refused(size.blocks, Refusal(Meaning.UNKNOWN)) is Next.LATER
    assert size.refused(1, Refusal(Meaning.UNKNOWN)) is Next.LATER


@given(
    limit=st.integers(1, 50_000),
    names_it=st.booleans(),
    off_by=st.integers(0, 1),
    ranges=st.integers(1, 400),
)
def test_any_limit__found_in_few_questions_and_seldom_tried_again(
    limit: int, names_it: bool, off_by: int, ranges: int
) -> None:
    """Of an endpoint that takes `limit` blocks and names that, one less, or nothing."""
    size = RangeSize()
    refusals = answered = 0
    while answered < ranges:
        blocks = size.blocks
        if blocks <= limit:
            size.answered(blocks, 0, 0.1)
            answered += 1
            continue
        hint = max(1, limit - off_by) if names_it else None
        assert size.refused(blocks, Refusal(Meaning.TOO_LARGE, hint, lasting=True)) is Next.AGAIN
        refusals += 1
    if names_it:
        assert refusals <= 1
    else:
        assert refusals <= 10 + 2 * (ranges // 16 + 1).bit_length()
        assert ranges < 100 or size.blocks > limit // 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(Meaning),
            st.none() | st.integers(1, 10**6),
            st.booleans(),
            st.integers(0, 50_000),
        ),
        max_size=60,
    )
)
def test_any_history__width_stays_within_bounds(
    history: list[tuple[Meaning, int | None, bool, int]],
) -> None:
    size = RangeSize()
    for meaning, hint, lasting, logs in history:
        blocks = size.blocks
        next_step = size.refused(blocks, Refusal(meaning, hint, lasting))
        assert 1 <= size.blocks <= blocks
        if next_step is Next.AGAIN:
            assert size.blocks < blocks, "the same question would be asked for ever"
        size.answered(size.blocks, logs, 0.1)
        assert 1 <= size.blocks <= 100_000
