"""What an operator may write as a policy, a split and weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.choice import Arm, BadChoice, Choice, Weights, chosen


def test_one_policy_or_several_with_their_shares() -> None:
    assert chosen("fifo", "", "") == Choice((Arm("fifo"),))
    assert chosen("fifo", "value=90, balanced=10", "fee=6,wait=3.5,slack=0") == Choice(
        (Arm("value", 90), Arm("balanced", 10)), Weights(6.0, 3.5, 0.0)
    )


@pytest.mark.parametrize(
    ("policy", "split", "weights", "words"),
    [
        ("FIFO", "", "", "no name of a policy"),
        ("", "", "", "no name of a policy"),
        ("fifo", "value", "", "name=number"),
        ("fifo", "value=90", "", "two policies at least"),
        ("fifo", "value=90,value=10", "", "named twice"),
        ("fifo", "value=0,edf=10", "", "share '0'"),
        ("fifo", "value=9.5,edf=10", "", "share '9.5'"),
        ("fifo", "value=²,edf=10", "", "share '²'"),
        ("fifo", "value=99999999999999,edf=10", "", "share"),
        ("balanced", "", "fee=1,wait=1", "each once"),
        ("balanced", "", "fee=1,wait=1,slack=1,fee=2", "each once"),
        ("balanced", "", "fee=1,wait=1,haste=1", "each once"),
        ("balanced", "", "fee=-1,wait=1,slack=1", "weight '-1'"),
        ("balanced", "", "fee=nan,wait=1,slack=1", "weight 'nan'"),
        ("balanced", "", "fee=inf,wait=1,slack=1", "weight 'inf'"),
        ("balanced", "", "fee=0,wait=0,slack=0", "more than 0"),
        ("fifo", "", "fee=1,wait=1,slack=1", "only `balanced` has weights"),
    ],
)
def test_what_is_no_choice_is_refused_in_words(
    policy: str, split: str, weights: str, words: str
) -> None:
    with pytest.raises(BadChoice) as refused:
        chosen(policy, split, weights)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_a_choice_or_refused(policy: str, split: str, weights: str) -> None:
    try:
        found = chosen(policy, split, weights)
    except BadChoice:
        return
    assert sum(found.shares) > 0
