"""What is agreed on, whatever is said by whom and in which order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address, Hash32
from inferd.protocol.quorum import Answer, agreed, voices


def an_answer(worker: int, owner: int, digest: int, at_s: float = 0.0) -> Answer:
    return Answer(
        Address(bytes([worker]) * 20),
        Address(bytes([100 + owner]) * 20),
        Hash32(bytes([digest]) * 32),
        at_s,
    )


ANSWERS = st.lists(
    st.builds(
        an_answer, st.integers(0, 30), st.integers(0, 6), st.integers(0, 2), st.integers(0, 3)
    ),
    max_size=14,
    unique_by=lambda one: one.worker,
)


@given(ANSWERS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_at_most_one_answer_wins__and_no_owner_counts_twice(
    answers: list[Answer], quorum: int, order: random.Random
) -> None:
    found = agreed(answers, quorum)
    shuffled = list(answers)
    order.shuffle(shuffled)
    assert agreed(shuffled, quorum) == found
    said = voices(answers)
    assert len({one.owner for one in said}) == len(said)
    counts = dict.fromkeys({one.digest for one in said}, 0)
    for one in said:
        counts[one.digest] += 1
    best = sorted(counts.values(), reverse=True)
    if not found:
        assert not best or best[0] < quorum or best[0] in best[1:]
        return
    assert len({one.digest for one in found}) == 1
    assert len({one.owner for one in found}) == len(found) >= quorum
    assert [one.worker for one in found] == sorted(one.worker for one in found)
    assert counts[found[0].digest] == len(found) > max(best[1:], default=0)


@pytest.mark.parametrize(
    ("answers", "quorum", "workers"),
    [
        ([(1, 1, 1), (2, 2, 1), (3, 3, 1)], 3, [1, 2, 3]),
        ([(1, 1, 1), (2, 2, 1), (3, 3, 2)], 3, []),
        ([(1, 1, 1), (2, 2, 1), (3, 3, 2), (4, 4, 1)], 3, [1, 2, 4]),
        ([(1, 1, 1), (2, 1, 1), (3, 2, 1)], 3, []),
        ([(1, 1, 1), (2, 2, 1), (3, 3, 2), (4, 4, 2)], 2, []),
        ([(1, 1, 1), (2, 2, 1), (3, 3, 2), (4, 4, 2), (5, 5, 2)], 2, [3, 4, 5]),
        ([], 1, []),
    ],
)
def test_what_is_agreed_on(
    answers: list[tuple[int, int, int]], quorum: int, workers: list[int]
) -> None:
    found = agreed([an_answer(*one) for one in answers], quorum)
    assert [one.worker[0] for one in found] == workers


def test_of_an_owner_that_contradicts_itself_the_first_answer_counts() -> None:
    first, second = an_answer(2, 1, 1, 0.0), an_answer(1, 1, 2, 1.0)
    other = an_answer(3, 2, 2)
    assert voices([second, first]) == [first]
    assert agreed([first, second, other], 2) == ()
